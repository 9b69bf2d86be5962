"""Bytes of stored vectors, with their scales."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.architecture import Architecture
from kvcore.formats import (
    ALIASES,
    FORMATS,
    FormatError,
    dtype_bytes,
    find_format,
    index_key_bytes,
    latent_bytes,
)

MIB = 2**20


@pytest.mark.parametrize(
    ("name", "head_dim", "num_bytes"),
    [
        ("bf16", 128, 256),
        ("fp16", 128, 256),
        ("fp32", 128, 512),
        ("fp8", 128, 128),
        ("int8_per_token_head", 128, 132),
        ("int8_per_token_head", 64, 68),
        ("fp8_per_token_head", 128, 132),
        ("int4_per_token_head", 128, 68),
        ("nvfp4", 128, 72),
        ("q8_0", 128, 136),
        ("q5_1", 128, 96),
        ("q5_0", 128, 88),
        ("q4_1", 128, 80),
        ("q4_0", 128, 72),
        ("iq4_nl", 128, 72),
    ],
)
def test_bytes_of_one_vector(name, head_dim, num_bytes):
    assert FORMATS[name].bytes_for(1, head_dim) == num_bytes


@pytest.mark.parametrize(
    ("name", "head_dim", "over"),
    [
        ("int8_per_token_head", 128, 0.031),
        ("int8_per_token_head", 64, 0.063),
        ("int4_per_token_head", 128, 0.063),
    ],
)
def test_scales_cost_what_the_reference_says(name, head_dim, over):
    bare = FORMATS[name].bits / 8
    assert FORMATS[name].bytes_per_element(head_dim) / bare - 1 == pytest.approx(over, abs=0.001)


def test_nvfp4_takes_0_5625_bytes_an_element():
    assert FORMATS["nvfp4"].bytes_per_element(128) == 0.5625


@pytest.mark.parametrize(("name", "mib"), [("fp16", 1024), ("q8_0", 544), ("q4_0", 288)])
def test_llama_8b_at_8192_tokens_in_ggml_formats(name, mib):
    assert Architecture.uniform(32, 8, 128).cache_bytes(8192, name) == mib * MIB


def test_a_ggml_row_spans_the_heads_of_a_token():
    """Phi-2: 32 heads of 80 fill 80 blocks of 32 with nothing left over."""
    assert FORMATS["q8_0"].bytes_for(32, 80) == 80 * 34


def test_latent_vectors():
    assert latent_bytes(FORMATS["bf16"], 512, 64) == 1152
    assert latent_bytes(FORMATS["fp8"], 512, 64) == 576
    assert latent_bytes(FORMATS["fp8_ds_mla"], 512, 64) == 656
    # ik_llama.cpp#259: DeepSeek-V3 in q8_0 at 32,768 tokens is 1166.62 MiB.
    assert 61 * latent_bytes(FORMATS["q8_0"], 512, 64) * 32_768 / MIB == pytest.approx(
        1166.62, abs=0.0051
    )


def test_index_keys():
    assert index_key_bytes(FORMATS["bf16"], 128) == 256
    assert index_key_bytes(FORMATS["fp8"], 128) == 132
    assert index_key_bytes(FORMATS["fp8_ds_mla"], 128) == 132


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_aliases(alias, name):
    assert find_format(alias).name == name
    assert find_format(f" {alias.upper()} ").name == name


def test_torch_names_are_understood():
    assert find_format("torch.bfloat16").name == "bf16"


@pytest.mark.parametrize("name", ["int3", "", None, 16])
def test_unknown_formats_are_refused_with_the_list(name):
    with pytest.raises(FormatError, match="nvfp4"):
        find_format(name)


def test_dtype_bytes_is_for_plain_dtypes():
    assert [dtype_bytes(name) for name in ("fp32", "bfloat16", "float16")] == [4, 2, 2]
    with pytest.raises(FormatError, match="plain dtype"):
        dtype_bytes("nvfp4")


def test_auto_is_the_checkpoints_own_cache_dtype():
    quantised = Architecture.uniform(2, 8, 128, kv_dtype="fp8", model_dtype="bf16")
    assert quantised.growth_bytes("auto") * 2 == quantised.growth_bytes("bf16")
    assert Architecture.uniform(2, 8, 128).growth_bytes("auto") == 2 * 2 * 8 * 128 * 2


@given(st.sampled_from(sorted(FORMATS)), st.integers(0, 512), st.integers(0, 1024))
def test_bytes_are_whole_and_hold_every_element(name, vectors, width):
    fmt = FORMATS[name]
    size = fmt.bytes_for(vectors, width)
    assert isinstance(size, int)
    assert 8 * size >= vectors * width * fmt.bits


def test_negative_counts_are_refused():
    with pytest.raises(FormatError, match="-1"):
        FORMATS["bf16"].bytes_for(-1, 128)
