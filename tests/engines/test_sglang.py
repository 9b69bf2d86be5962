"""SGLang's rules: the headroom, the cell, the window ratio, the states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.architecture import Architecture, LayerGroup, LayerKind
from kvcore.engines import sglang
from kvcore.engines.reference_models import CONFIGS, architecture
from kvcore.engines.sglang import PlanError
from kvcore.units import GIB

QWEN9 = Architecture.from_config(
    {
        **CONFIGS["Qwen3.5-35B-A3B"],
        "num_hidden_layers": 32,
        "layer_types": CONFIGS["Qwen3.5-35B-A3B"]["layer_types"][:32],
        "num_key_value_heads": 4,
    }
)


def test_headroom_is_a_share_of_what_was_free_before_loading():
    assert sglang.pool_bytes(100 * GIB, 40 * GIB, 0.9) == 30 * GIB
    assert sglang.pool_bytes(100 * GIB, 5 * GIB, 0.9) == pytest.approx(-5 * GIB)


@pytest.mark.parametrize("share", [0, 1, 1.5, -1])
def test_headroom_needs_a_share(share):
    with pytest.raises(PlanError, match="mem_fraction_static"):
        sglang.pool_bytes(GIB, GIB, share)


def test_tokens_are_memory_over_the_cell_in_whole_pages():
    llama = architecture("Llama-3.1-8B")
    p = sglang.plan(llama, 10 * GIB, page_size=64)
    assert p.cell_bytes == 131_072
    assert p.tokens == 10 * GIB // 131_072 // 64 * 64
    assert p.k_bytes == p.v_bytes == (p.tokens + 64) * 65_536


def test_windows_are_sized_by_a_ratio():
    oss = architecture("gpt-oss-20b")
    p = sglang.plan(oss, 10 * GIB, swa_full_tokens_ratio=0.5)
    assert p.cell_bytes == 12 * 2048 + 0.5 * 12 * 2048
    assert p.tokens == int(10 * GIB // p.cell_bytes)
    assert p.window_tokens == p.tokens // 2
    assert p.pool_bytes <= 10 * GIB + 2 * 24 * 2048


def test_only_windows_take_the_whole_pool():
    p = sglang.plan(architecture("Mistral-7B-v0.1"), GIB)
    assert p.window_tokens == p.tokens == GIB // (32 * 4096)


def test_a_hybrids_log():
    """Qwen3.5-9B on two GPUs: 186 slots, 0.10 + 4.38 GiB of states, 327,310 tokens."""
    p = sglang.plan(QWEN9, int(9.47995 * GIB), tensor_parallel=2)
    assert p.state_slots == 186
    assert p.tokens == pytest.approx(327_310, abs=5)
    assert p.conv_state_bytes / GIB == pytest.approx(0.10, abs=0.005)
    assert p.matrix_state_bytes / GIB == pytest.approx(4.38, abs=0.005)
    assert p.k_bytes / GIB == pytest.approx(2.50, abs=0.005)
    assert p.max_requests_by_state == 62
    lines = sglang.startup_lines(p)
    assert lines[0].startswith("Mamba Cache is allocated. max_mamba_cache_size: 186, conv_state")
    assert "K size: 2.50 GB, V size: 2.50 GB" in lines[1]


def test_draft_layers_widen_the_cell():
    llama = architecture("Llama-3.1-8B")
    assert sglang.plan(llama, GIB, draft_layers=1).cell_bytes == pytest.approx(131_072 * 33 / 32)


def test_latent_attention_prints_one_size():
    p = sglang.plan(architecture("DeepSeek-V3.2"), None, "fp8", page_size=64, tokens=1_462_784)
    assert sglang.startup_lines(p)[0] == (
        "KV Cache is allocated. #tokens: 1462784, KV size: 65.49 GB"
    )


@pytest.mark.parametrize(
    ("a", "settings", "message"),
    [
        (architecture("Llama-3.1-8B"), {"available_bytes": 1000}, "Not one token fits"),
        (
            architecture("Llama-3.1-8B"),
            {"available_bytes": None},
            "memory for the pools is missing",
        ),
        (architecture("Llama-3.1-8B"), {"page_size": 0}, "at least 1"),
        (architecture("gpt-oss-20b"), {"swa_full_tokens_ratio": 0}, "swa_full_tokens_ratio"),
        (QWEN9, {"state_ratio": 0}, "mamba_full_memory_ratio"),
        (QWEN9, {"available_bytes": 10**6}, "Not one recurrent state fits"),
        (architecture("Whisper-large-v3"), {}, "encoder-decoder"),
        (Architecture("x", (LayerGroup(LayerKind.NONE, 2),)), {}, "keeps no cache"),
    ],
)
def test_refusals_say_what_is_wrong(a, settings, message):
    with pytest.raises(PlanError, match=message):
        sglang.plan(a, **{"available_bytes": GIB, **settings})


@given(
    name=st.sampled_from(sorted(set(CONFIGS) - {"Whisper-large-v3"})),
    memory=st.integers(2 * GIB, 2**42),
    page_size=st.sampled_from([1, 16, 64]),
    ranks=st.sampled_from([1, 2, 8]),
    ratio=st.floats(0.05, 1.0),
)
def test_pools_never_exceed_the_memory_by_more_than_a_page(name, memory, page_size, ranks, ratio):
    a = architecture(name)
    p = sglang.plan(
        a, memory, tensor_parallel=ranks, page_size=page_size, swa_full_tokens_ratio=ratio
    )
    page = page_size * a.growth_bytes(tensor_parallel=ranks)
    windows = sum(g.count * g.entry_bytes("bf16", ranks) for g in a.layers if g.window)
    assert 0 < p.pool_bytes <= memory + page + page_size * windows + 1
    assert p.tokens % page_size == 0
    assert sglang.startup_lines(p)
