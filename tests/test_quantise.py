"""Quantise and restore: within the step of each format, and of exactly its size."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.formats import FORMATS, FormatError, latent_bytes
from kvcore.quantise import error_bound, quantisable, quantise, restored

VECTOR_FORMATS = [name for name in quantisable() if name != "fp8_ds_mla"]


@st.composite
def rows(draw):
    """[tokens, heads, head_dim] of any size, spread and shape: outliers, constants, empty rows."""
    tokens = draw(st.integers(1, 4))
    heads = draw(st.integers(1, 3))
    head_dim = draw(st.sampled_from([1, 7, 16, 31, 64, 80]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    x = torch.randn(tokens, heads, head_dim, generator=generator)
    x = x * 10.0 ** draw(st.integers(-6, 3)) + draw(st.sampled_from([0.0, 0.0, 3.0, -40.0]))
    kind = draw(st.sampled_from(["plain", "outlier", "constant", "empty row", "two-sided"]))
    if kind == "outlier":
        x[..., 0] *= 300
    if kind == "constant":
        x[:] = x[0, 0, 0]
    if kind == "empty row":
        x[0] = 0
    if kind == "two-sided":
        x[..., -1] = -x[..., 0]
    return x.clamp(-60_000, 60_000)


@pytest.mark.parametrize("name", VECTOR_FORMATS)
@settings(max_examples=60, deadline=None)
@given(x=rows())
def test_restoring_stays_within_the_bound(name, x):
    error = (quantise(x, name).restore() - x).abs()
    excess = (error - error_bound(x, name)).max().item()
    assert excess <= 1e-6 * x.abs().max().item()


@pytest.mark.parametrize("name", VECTOR_FORMATS)
@settings(max_examples=25, deadline=None)
@given(x=rows())
def test_bytes_are_what_the_formats_say(name, x):
    tokens, heads, head_dim = x.shape
    assert quantise(x, name).nbytes == tokens * FORMATS[name].bytes_for(heads, head_dim)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), exponent=st.integers(-4, 3))
def test_a_latent_vector_keeps_its_rotary_part_in_bf16(seed, exponent):
    x = torch.randn(5, 1, 576, generator=torch.Generator().manual_seed(seed)) * 10.0**exponent
    stored = quantise(x, "fp8_ds_mla")
    assert stored.nbytes == 5 * latent_bytes(FORMATS["fp8_ds_mla"], 512, 64) == 5 * 656
    back = stored.restore()
    assert torch.equal(back[..., 512:], x[..., 512:].bfloat16().float())
    assert ((back - x).abs() <= error_bound(x, "fp8_ds_mla")).all()


def test_every_storage_format_can_be_quantised():
    assert quantisable() == list(FORMATS)


# The bounds themselves, from the definition of each format: blocks that hold -1 and 1.
@pytest.mark.parametrize(
    ("name", "largest_error"),
    [
        ("fp32", 0.0),
        ("fp16", 2**-11),
        ("bf16", 2**-8),
        ("fp8", 1 / 16),
        ("fp8_per_token_head", 1 / 16),
        ("int8_per_token_head", 1 / 254),
        ("q8_0", 1 / 254),
        ("int4_per_token_head", 1 / 14),
        ("q4_1", 1 / 15),
        ("q5_1", 1 / 31),
        ("q5_0", 1 / 16),
        ("q4_0", 1 / 8),
        ("iq4_nl", 14 / 127),
        ("nvfp4", 1 / 6 * 17 / 16),
    ],
)
def test_the_bound_is_the_step_of_the_format(name, largest_error):
    x = torch.linspace(-1, 1, 64).view(2, 32).t().reshape(1, 1, 64)
    x[..., [0, 16, 32, 48]], x[..., [1, 17, 33, 49]] = -1.0, 1.0
    bound = error_bound(x, name).max().item()
    assert bound == pytest.approx(largest_error, rel=0.06, abs=1e-9)
    assert (restored(x, name) - x).abs().max().item() <= bound


def test_the_bound_is_reached():
    """A bound that nothing comes near would prove little: each format uses most of its own."""
    x = torch.rand(2048, 1, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    x[:, :, ::16], x[:, :, 1::16] = -1.0, 1.0
    for name in VECTOR_FORMATS:
        if name == "fp32":
            continue
        used = ((restored(x, name) - x).abs() / error_bound(x, name)).max().item()
        assert used > 0.8, f"{name} uses {used:.2f} of its bound"


def test_fewer_bits_are_less_exact():
    x = torch.randn(256, 3, 64, generator=torch.Generator().manual_seed(1))

    def error(name):
        return (restored(x, name) - x).square().mean().sqrt().item()

    assert error("bf16") < error("q8_0") < error("q5_1") < error("q4_1") < error("q4_0")
    assert error("iq4_nl") < error("int4_per_token_head")


def test_int4_takes_half_a_byte_and_its_scale():
    x = torch.randn(10, 2, 64)
    assert quantise(x, "int4_per_token_head").nbytes == 10 * 2 * (32 + 4)
    assert quantise(x, "q4_1").nbytes == 10 * 2 * 2 * 20
    assert quantise(x, "nvfp4").nbytes == 10 * 2 * 4 * 9


def test_what_cannot_be_stored_is_refused():
    with pytest.raises(FormatError, match="Only finite"):
        quantise(torch.tensor([[1.0, float("nan")]]), "q8_0")
    with pytest.raises(FormatError, match="beyond fp16"):
        quantise(torch.full((1, 4), 1e6), "fp16")
    with pytest.raises(FormatError, match="is not a storage format"):
        quantise(torch.ones(1, 4), "int3")
    with pytest.raises(FormatError, match="multiple of 128"):
        quantise(torch.ones(1, 100), "fp8_ds_mla")
