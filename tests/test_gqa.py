"""The tables of the sharing-heads page, against numbers known from elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.attention import ARITHMETIC, READ, Sample, Shape, Sharing, timings, variants
from kvcore.catalog import GPUS, MODELS
from kvcore.gqa import (
    Setting,
    as_mha,
    comparable_models,
    head_table,
    ladder_table,
    memory_table,
    models_frame,
    shape_of,
    sharing_words,
    simple_models,
    timing_rows,
)

LLAMA_8B = Setting(Sharing(32, 8), 32, 128, 8_000, "bf16", 80 * 10**9, 16 * 10**9)


def test_llama_in_80_gb_serves_61_users():
    assert LLAMA_8B.cache_bytes == 1_048_576_000
    assert LLAMA_8B.users == 61
    assert LLAMA_8B.as_mha.cache_bytes == 4 * 1_048_576_000
    assert LLAMA_8B.as_mha.users == 15


def test_every_sharing_divides_the_bytes():
    frame = memory_table(LLAMA_8B).to_pandas().set_index("sharing")
    assert list(frame.index) == ["MHA", "GQA-16", "GQA-8", "GQA-4", "GQA-2", "MQA"]
    assert frame["times_less"].tolist() == [1, 2, 4, 8, 16, 32]
    assert frame.loc["GQA-8", "state"] == "chosen"
    assert (frame["cache_bytes"] * frame["times_less"] == 4 * 1_048_576_000).all()


@given(heads=st.integers(1, 128), seed=st.randoms(use_true_random=False))
def test_pictures_show_every_head_once(heads, seed):
    kv_heads = seed.choice([count for count in range(1, heads + 1) if heads % count == 0])
    sharing = Sharing(heads, kv_heads)
    frame = head_table(sharing).to_pandas()
    assert frame["query_head"].tolist() == list(range(heads))
    assert frame["first_of_group"].sum() == kv_heads
    assert frame["query_x"].between(0, 1).all()
    ladder = ladder_table(Setting(sharing, 2, 64, 100, "bf16", 10**9, 0)).to_pandas()
    for _, boxes in ladder.groupby("sharing"):
        assert boxes["start"].tolist() == [0, *boxes["end"].tolist()[:-1]]
        assert boxes["end"].iloc[-1] == heads
    assert len(ladder[ladder["state"] == "chosen"]) == kv_heads


def test_had_it_stayed_mha():
    twin = as_mha(MODELS["Llama-3.1-70B"].architecture)
    assert twin.growth_bytes() == 8 * MODELS["Llama-3.1-70B"].architecture.growth_bytes()
    # OPT-13B is MHA: 819,200 bytes a token either way.
    assert as_mha(MODELS["OPT-13B"].architecture).growth_bytes() == 819_200
    # Two geometries and windows: every attending layer gets all heads, the windows stay.
    gemma = MODELS["Gemma-3-27B"].architecture
    assert as_mha(gemma).cache_bytes(100_000) == 2 * gemma.cache_bytes(100_000)
    assert as_mha(MODELS["DeepSeek-V3"].architecture) is None


def test_models_as_they_are_beside_their_twins():
    frame = models_frame(["Falcon-7B", "Llama-2-7B"], 8_192, "bf16", GPUS["H100 80 GB SXM"])
    sizes = frame.set_index(["model", "what"])["cache_bytes"]
    assert sizes["Falcon-7B", "had it stayed MHA"] == 71 * sizes["Falcon-7B", "as it is"]
    assert sizes["Llama-2-7B", "had it stayed MHA"] == sizes["Llama-2-7B", "as it is"]
    assert sharing_words(MODELS["Falcon-7B"].architecture) == "MQA"
    assert sharing_words(MODELS["Gemma-4-26B-A4B"].architecture) == "GQA-8 and GQA-2"
    assert (frame["users"] > 0).all()


def test_models_to_start_from_are_described_by_five_numbers():
    assert {"Llama-3.1-8B", "Qwen3-8B", "Falcon-7B"} <= set(simple_models())
    for name in simple_models():
        shape = shape_of(MODELS[name])
        setting = Setting(shape.sharing, shape.num_layers, shape.head_dim, 1, "bf16", 10**12, 0)
        assert setting.cache_bytes == MODELS[name].architecture.growth_bytes()
    assert "Gemma-3-27B" in comparable_models()
    assert "Gemma-3-27B" not in simple_models()


def test_timing_rows_are_complete():
    shape = Shape(2, 8, 64, 1_000)
    samples = [
        Sample(0, each, None, 1e-3, shape.cache_bytes(each.sharing.num_kv_heads), shape.flops)
        for each in variants(8, [2])
    ]
    samples += [
        Sample(0, None, READ, 1e-3, bytes_read=10**7),
        Sample(0, None, ARITHMETIC, 1e-3, flops=10**8),
    ]
    rows = timing_rows(shape, timings(samples), threads=1)
    assert len(rows) == 5
    assert {row["ideal"] for row in rows} == {1, 4}
    copied = next(row for row in rows if row["formulation"].startswith("repeat"))
    assert copied["bytes_gone_through"] == shape.cache_bytes(2) + 2 * shape.cache_bytes(8)
    assert all(row["median_ms"] == pytest.approx(1.0) for row in rows)
