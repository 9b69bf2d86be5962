"""Sharing maps, decode attention in every formulation, and what the samples are turned into."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore import attention
from kvcore.attention import (
    ARITHMETIC,
    ENABLE_GQA,
    FORMULATIONS,
    PACKED,
    READ,
    REPEATED,
    Sample,
    Shape,
    Sharing,
    Variant,
    divisors,
    explain,
    measure,
    required_bytes,
    sharings,
    timings,
    variants,
)


def test_every_divisor_has_its_name():
    assert [(s.num_kv_heads, s.name) for s in sharings(32)] == [
        (32, "MHA"),
        (16, "GQA-16"),
        (8, "GQA-8"),
        (4, "GQA-4"),
        (2, "GQA-2"),
        (1, "MQA"),
    ]
    assert [s.name for s in sharings(9)] == ["MHA", "GQA-3", "MQA"]
    assert [s.name for s in sharings(1)] == ["MHA"]


def test_figure_2_of_ainslie_eight_heads_in_four_groups():
    sharing = Sharing(8, 4)
    assert [list(group) for group in sharing.groups] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [sharing.kv_head_of(head) for head in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]


@given(num_query_heads=st.integers(1, attention.MAX_QUERY_HEADS))
def test_groups_cover_every_query_head_once(num_query_heads):
    for sharing in sharings(num_query_heads):
        heads = [head for group in sharing.groups for head in group]
        assert heads == list(range(num_query_heads))
        assert {len(group) for group in sharing.groups} == {sharing.group_size}
        assert all(head in sharing.query_heads_of(sharing.kv_head_of(head)) for head in heads)


@given(num_query_heads=st.integers(1, 64), num_kv_heads=st.integers(-2, 70))
def test_only_divisors_share_evenly(num_query_heads, num_kv_heads):
    if num_kv_heads in divisors(num_query_heads):
        assert Sharing(num_query_heads, num_kv_heads).group_size * num_kv_heads == num_query_heads
        return
    with pytest.raises(ValueError, match="cannot share .* evenly; choose one of 1"):
        Sharing(num_query_heads, num_kv_heads)


def test_heads_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="numbered 0 to 7"):
        Sharing(8, 2).kv_head_of(8)
    with pytest.raises(ValueError, match="numbered 0 to 1"):
        Sharing(8, 2).query_heads_of(-1)
    with pytest.raises(ValueError, match="between 1 and 256"):
        Sharing(0, 1)


def expanded(q, k, v):
    """The definition: each query head by itself against its own drawer, in float64."""
    sharing = Sharing(q.shape[1], k.shape[1])
    out = torch.empty_like(q, dtype=torch.float64)
    for head in range(sharing.num_query_heads):
        drawer = sharing.kv_head_of(head)
        keys, values = k[:, drawer].double(), v[:, drawer].double()
        scores = torch.einsum("bd,btd->bt", q[:, head, 0].double(), keys) * q.shape[-1] ** -0.5
        out[:, head, 0] = torch.einsum("bt,btd->bd", scores.softmax(-1), values)
    return out


@pytest.mark.parametrize("name", FORMULATIONS)
@settings(max_examples=25, deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (8, 8), (8, 4), (9, 3), (12, 1), (32, 8)]),
    batch=st.integers(1, 3),
    context=st.integers(1, 70),
    head_dim=st.sampled_from([8, 33, 64, 128]),
    seed=st.integers(0, 2**31),
)
def test_grouped_attention_equals_expanded_attention(name, heads, batch, context, head_dim, seed):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(batch, heads[0], 1, head_dim, generator=generator)
    k, v = (torch.randn(batch, heads[1], context, head_dim, generator=generator) for _ in "kv")
    difference = (FORMULATIONS[name](q, k, v).double() - expanded(q, k, v)).abs().max().item()
    assert difference <= 1e-5


def test_grouped_attention_equals_expanded_attention_over_a_long_cache():
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 32, 1, 128, generator=generator)
    k, v = (torch.randn(1, 8, 4096, 128, generator=generator) for _ in "kv")
    for run in FORMULATIONS.values():
        assert (run(q, k, v).double() - expanded(q, k, v)).abs().max().item() <= 1e-5


def test_the_wrong_drawer_is_noticed():
    """Neighbours share a drawer; taking every g-th head instead gives other numbers."""
    q, k, v = torch.randn(1, 8, 1, 16), torch.randn(1, 2, 20, 16), torch.randn(1, 2, 20, 16)
    strided = [0, 2, 4, 6, 1, 3, 5, 7]
    wrong = attention.packed_attention(q[:, strided], k, v)
    assert (wrong[:, [0, 4, 1, 5, 2, 6, 3, 7]].double() - expanded(q, k, v)).abs().max() > 1e-2


def test_bytes_of_a_step():
    shape = Shape(batch=8, num_query_heads=32, head_dim=128, context=1024)
    assert shape.cache_bytes(32) == 2 * 8 * 32 * 1024 * 128 * 4 == 268_435_456
    assert shape.cache_bytes(8) * 4 == shape.cache_bytes(32)
    packed, switch, copied = (
        Variant(Sharing(32, 8), form) for form in (PACKED, ENABLE_GQA, REPEATED)
    )
    assert packed.traffic_bytes(shape) == shape.cache_bytes(8)
    assert switch.traffic_bytes(shape) == shape.cache_bytes(32)
    assert copied.traffic_bytes(shape) == shape.cache_bytes(8) + 2 * shape.cache_bytes(32)
    chosen = variants(32, [8, 1])
    held = shape.cache_bytes(32) + shape.cache_bytes(8) + shape.cache_bytes(1)
    assert required_bytes(shape, chosen) == held + shape.cache_bytes(32)


def test_variants_name_mha_once():
    names = [variant.name for variant in variants(8, [8, 2, 1], [PACKED, ENABLE_GQA])]
    assert names == [
        "MHA",
        f"GQA-2, {PACKED}",
        f"GQA-2, {ENABLE_GQA}",
        f"MQA, {PACKED}",
        f"MQA, {ENABLE_GQA}",
    ]


def test_a_measurement_samples_every_variant_once_a_round():
    shape, chosen = Shape(1, 4, 16, 64), variants(4, [2, 1])
    samples = list(measure(shape, chosen, rounds=3))
    assert len(samples) == 3 * (len(chosen) + 2)
    for index in range(3):
        of_round = [s for s in samples if s.round == index]
        assert {s.variant for s in of_round if s.variant} == set(chosen)
        assert {s.limit for s in of_round if s.limit} == {READ, ARITHMETIC}
    assert [s.variant for s in samples[:2]] != [s.variant for s in samples[len(chosen) + 2 :][:2]]
    assert {line.variant for line in timings(samples)} == set(chosen)


def test_a_measurement_too_large_for_memory_is_refused_before_it_starts():
    with pytest.raises(ValueError, match="GiB.*Lower the batch, the heads or the context"):
        next(measure(Shape(64, 32, 128, 8192), variants(32, [8])))
    with pytest.raises(ValueError, match="context must be at least 1"):
        Shape(1, 8, 64, 0)


def test_a_formulation_that_is_wrong_is_not_timed(monkeypatch):
    monkeypatch.setitem(FORMULATIONS, PACKED, lambda q, k, v: q)
    with pytest.raises(RuntimeError, match="is off by .*; it was not timed"):
        next(measure(Shape(1, 4, 16, 64), variants(4, [2])))


def sample(index, variant, seconds, shape):
    read = shape.cache_bytes(variant.sharing.num_kv_heads)
    return Sample(index, variant, None, seconds, bytes_read=read, flops=shape.flops)


def test_speed_up_is_the_median_of_paired_rounds():
    shape = Shape(1, 8, 64, 1000)
    mha, gqa = Variant(Sharing(8, 8), PACKED), Variant(Sharing(8, 2), PACKED)
    samples = []
    # The second round ran on a busy machine: both slow, the ratio as before.
    for index, slow in enumerate([1, 10, 1]):
        samples.append(sample(index, mha, 4e-3 * slow, shape))
        samples.append(sample(index, gqa, 1.25e-3 * slow, shape))
        samples.append(Sample(index, None, READ, 1.0, bytes_read=2 * 10**9))
        samples.append(Sample(index, None, ARITHMETIC, 1.0, flops=10**11))
    by_name = {line.variant.sharing.name: line for line in timings(samples)}
    assert by_name["GQA-2"].speed_up == pytest.approx(3.2)
    assert by_name["GQA-2"].ideal_speed_up == 4
    assert by_name["MHA"].median_seconds == pytest.approx(4e-3)
    assert by_name["MHA"].share_of_bandwidth == pytest.approx(2 * 8 * 64 * 1000 * 4 / 4e-3 / 2e9)


@pytest.mark.parametrize(
    ("group_size", "formulation", "read", "multiplied", "words"),
    [
        (1, PACKED, 0.95, 0.03, "Close to what this machine can read"),
        (4, PACKED, 0.75, 0.11, "Close to what this machine can read"),
        (4, PACKED, 0.55, 0.10, "Mostly reading"),
        (4, ENABLE_GQA, 0.27, 0.04, "Goes through each K and V 4 times"),
        (4, REPEATED, 0.04, 0.01, "Writes every head out again"),
        (32, PACKED, 0.33, 0.34, "arithmetic counts"),
        (1, PACKED, 0.10, 0.10, "fixed costs"),
    ],
)
def test_the_shares_say_why(group_size, formulation, read, multiplied, words):
    assert words in explain(group_size, formulation, read, multiplied)


def test_no_line_before_the_first_round_is_complete():
    shape = Shape(1, 8, 64, 1000)
    assert timings([sample(0, Variant(Sharing(8, 8), PACKED), 1e-3, shape)]) == []
    assert timings([]) == []


def test_sharing_maps_need_no_torch():
    code = (
        "import sys; from kvcore.attention import sharings, Shape, variants;"
        "variants(32, [s.num_kv_heads for s in sharings(32)]);"
        "Shape(1, 32, 128, 10).cache_bytes(8);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
