"""llama.cpp's rules: padding, slots, windows, cache types, states in f32."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.architecture import Architecture, LayerGroup, LayerKind
from kvcore.engines import llamacpp
from kvcore.engines.common import PlanError
from kvcore.engines.reference_models import CONFIGS, architecture
from kvcore.formats import FormatError
from kvcore.units import MIB

OSS = architecture("gpt-oss-20b")
LLAMA = architecture("Llama-3.1-8B")


@pytest.mark.parametrize(("tokens", "cells"), [(1, 256), (256, 256), (257, 512), (31_000, 31_232)])
def test_context_is_padded_to_256(tokens, cells):
    assert llamacpp.padded(tokens) == cells
    assert llamacpp.plan(LLAMA, tokens).caches[0].cells == cells


@pytest.mark.parametrize(
    ("kv_format", "mib"),
    [("f16", 1024), ("q8_0", 544), ("q4_0", 288), ("q5_1", 384), ("f32", 2048)],
)
def test_cache_types_carry_their_scales(kv_format, mib):
    """Reference 3.3: Llama-3.1-8B at 8,192 tokens."""
    assert llamacpp.plan(LLAMA, 8192, kv_format).bytes == mib * MIB


def test_keys_and_values_may_differ():
    cache = llamacpp.plan(LLAMA, 8192, "q8_0", value_format="q4_0").caches[0]
    assert (cache.k_bytes, cache.v_bytes) == (272 * MIB, 144 * MIB)


class TestSlots:
    def test_separate_slots_share_the_context(self):
        p = llamacpp.plan(LLAMA, 8192, slots=4)
        assert (p.context, p.context_per_slot) == (8192, 2048)
        assert (p.caches[0].cells, p.caches[0].streams) == (2048, 4)

    def test_a_unified_cache_lets_one_request_have_it_all(self):
        p = llamacpp.plan(LLAMA, 8192, slots=4, unified=True)
        assert (p.context, p.context_per_slot) == (8192, 8192)
        assert p.caches[0].streams == 1

    def test_each_slots_share_is_padded(self):
        p = llamacpp.plan(LLAMA, 1000, slots=3)
        assert (p.context_per_slot, p.context) == (512, 1536)


class TestWindows:
    @pytest.mark.parametrize(
        ("slots", "unified", "ubatch", "cells"),
        [(1, None, 512, 768), (4, True, 512, 1024), (2, False, 1024, 1280), (1, None, 64, 256)],
    )
    def test_cells_are_window_and_batch(self, slots, unified, ubatch, cells):
        p = llamacpp.plan(OSS, 131_072, slots=slots, unified=unified, ubatch=ubatch)
        assert p.caches[1].cells == cells

    def test_never_more_cells_than_the_context(self):
        assert llamacpp.plan(OSS, 256).caches[1].cells == 256

    def test_swa_full_keeps_the_whole_context(self):
        p = llamacpp.plan(OSS, 8192, swa_full=True)
        assert p.caches[1].cells == p.caches[0].cells == 8192

    def test_the_window_stays_f16_when_the_rest_is_quantised(self):
        """ggml-org/llama.cpp#21277; newer builds quantise it too."""
        p = llamacpp.plan(OSS, 8192, "q8_0")
        assert [cache.k_format for cache in p.caches] == ["q8_0", "fp16"]
        both = llamacpp.plan(OSS, 8192, "q8_0", quantised_window=True)
        assert [cache.k_format for cache in both.caches] == ["q8_0", "q8_0"]
        assert both.bytes < p.bytes

    def test_mistrals_window_is_ignored(self):
        p = llamacpp.plan(architecture("Mistral-7B-v0.1"), 32_768)
        assert [cache.sliding for cache in p.caches] == [False]
        assert p.bytes == 4096 * MIB
        assert "ignores" in p.notes[0]


def test_states_are_f32_for_every_slot():
    p = llamacpp.plan(architecture("Qwen3.5-27B"), 8192, slots=4, unified=True)
    assert (p.state.r_bytes, p.state.s_bytes) == (int(22.5 * MIB), 576 * MIB)
    assert p.state.slots == 4


def test_latent_attention_has_no_values():
    cache = llamacpp.plan(architecture("DeepSeek-V3"), 32_768, "q8_0").caches[0]
    assert cache.v_bytes == 0
    assert cache.k_bytes == 32_768 * 61 * 576 * 34 // 32


def test_lines_read_like_llama_cpps_own():
    lines = llamacpp.startup_lines(llamacpp.plan(OSS, 131_072, slots=4, unified=True))
    assert lines == [
        "llama_kv_cache_iswa: creating non-SWA KV cache, size = 131072 cells",
        "llama_kv_cache: size = 3072.00 MiB (131072 cells,  12 layers,  4/1 seqs), "
        "K (f16): 1536.00 MiB, V (f16): 1536.00 MiB",
        "llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells",
        "llama_kv_cache: size =   24.00 MiB (  1024 cells,  12 layers,  4/1 seqs), "
        "K (f16):   12.00 MiB, V (f16):   12.00 MiB",
    ]


@pytest.mark.parametrize(
    ("a", "settings", "error", "message"),
    [
        (LLAMA, {"kv_format": "fp8"}, PlanError, "no cache type “fp8”"),
        (LLAMA, {"kv_format": "q9"}, FormatError, "not a storage format"),
        (LLAMA, {"context": 0}, PlanError, "context must be"),
        (LLAMA, {"slots": 0}, PlanError, "slots must be"),
        (architecture("Whisper-large-v3"), {}, PlanError, "cross-attention"),
        (Architecture("x", (LayerGroup(LayerKind.NONE, 2),)), {}, PlanError, "keeps no cache"),
    ],
)
def test_refusals_say_what_is_wrong(a, settings, error, message):
    with pytest.raises(error, match=message):
        llamacpp.plan(a, **{"context": 4096, **settings})


@given(
    name=st.sampled_from(sorted(set(CONFIGS) - {"Whisper-large-v3"})),
    context=st.integers(1, 2_000_000),
    kv_format=st.sampled_from(["f16", "q8_0", "q4_0", "iq4_nl"]),
    slots=st.integers(1, 16),
    unified=st.booleans(),
    ubatch=st.integers(1, 4096),
)
def test_any_plan_is_sound(name, context, kv_format, slots, unified, ubatch):
    p = llamacpp.plan(
        architecture(name), context, kv_format, slots=slots, unified=unified, ubatch=ubatch
    )
    assert isinstance(p.bytes, int)
    assert p.bytes > 0
    assert all(cache.cells % 256 == 0 for cache in p.caches)
    assert all(cache.cells <= p.context_per_slot for cache in p.caches)
    full = llamacpp.plan(
        architecture(name),
        context,
        kv_format,
        slots=slots,
        unified=unified,
        ubatch=ubatch,
        swa_full=True,
    )
    assert full.bytes >= p.bytes
    assert llamacpp.startup_lines(p)
