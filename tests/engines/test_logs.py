"""Reading start-up text: what is understood, what is refused, and that nothing breaks it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.engines import llamacpp, sglang, vllm
from kvcore.engines.logs import (
    MAX_CHARACTERS,
    LlamaCppLog,
    LogError,
    SglangLog,
    VllmLog,
    figure_lines,
    known_figures,
    lines_with_figures,
    read_log,
)
from kvcore.engines.reference_models import CONFIGS, architecture
from kvcore.units import GIB
from tests.engines import logs


def values(readings: list) -> list[float]:
    return [reading.value for reading in readings]


class TestVllm:
    def test_an_early_version(self):
        log = read_log(logs.VLLM_LLAMA_20K)
        assert isinstance(log, VllmLog)
        assert values(log.blocks) == [1952]
        assert values(log.available) == [3.81]
        assert (log.total_gib, log.utilisation) == (23.58, 0.90)
        assert (log.peak_torch_gib, log.non_torch_gib) == (17.06, 0.35)
        assert (log.weights_gib, log.concurrency_tokens) == (14.9888, 20_000)
        assert values(log.concurrency) == [1.56]

    def test_a_hybrid_with_drafts_on_two_ranks(self):
        log = read_log(logs.VLLM_QWEN36_27B_DRAFTS)
        assert [(r.value, r.rank) for r in log.available] == [
            (11.09, "Worker_TP1"),
            (11.05, "Worker_TP0"),
        ]
        assert (log.version, log.tensor_parallel, log.speculative_tokens) == ("0.24.0", 2, 3)
        assert (log.kv_cache_dtype, log.max_model_len) == ("fp8_e5m2", 262_144)
        assert log.prefix_caching is True
        assert log.padding_layers == 3
        assert values(log.tokens) == [623_873]

    def test_a_refusal(self):
        log = read_log(logs.VLLM_GPT_OSS_120B)
        assert (log.needed_for_tokens, log.needed_gib) == (131_072, 4.54)
        assert values(log.available) == [1.71]
        assert log.weights_gib == 65.9651

    def test_the_cpu_backend(self):
        log = read_log(logs.VLLM_CPU)
        assert (log.device, values(log.tokens), values(log.available)) == ("CPU", [93_184], [2.0])

    def test_the_new_breakdown(self):
        log = read_log(logs.VLLM_NEW_BREAKDOWN)
        assert (log.total_gib, log.utilisation) == (83.05, 0.95)
        assert (log.consumed_gib, log.activation_gib, log.graphs_gib) == (43.21, 0.92, 0.12)

    def test_raised_block_size(self):
        assert read_log(logs.VLLM_QWEN35_27B).aligned_block_size == 784

    def test_what_was_not_printed_is_unknown(self):
        log = read_log(logs.VLLM_QWEN3_235B)
        assert log.version is None
        assert log.tensor_parallel is None
        assert set(known_figures(log)) == {"device", "available", "tokens"}
        assert sorted(lines_with_figures(log)) == [1, 2]

    def test_too_few_state_blocks(self):
        log = read_log(
            "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (939)."
        )
        assert (log.requested_seqs, log.state_blocks) == (1024, 939)


class TestCommands:
    """The command that started the engine is often pasted above its log."""

    def test_vllm(self):
        log = read_log(
            "vllm serve m --max-model-len 120000 --tensor-parallel-size 2 --block-size=32 "
            "--no-enable-prefix-caching --kv-cache-dtype fp8 --max-num-batched-tokens 64000 "
            "--speculative-config '{\"num_speculative_tokens\": 3}'"
        )
        assert (log.max_model_len, log.tensor_parallel, log.block_size) == (120_000, 2, 32)
        assert (log.prefix_caching, log.kv_cache_dtype) == (False, "fp8")
        assert (log.max_num_batched_tokens, log.speculative_tokens) == (64_000, 3)

    def test_printed_arguments(self):
        log = read_log(
            "non-default args: {'max_model_len': 4096, 'kv_cache_dtype': 'fp8_e4m3', "
            "'enable_prefix_caching': True, 'gpu_memory_utilization': 0.85}"
        )
        assert (log.max_model_len, log.kv_cache_dtype) == (4096, "fp8_e4m3")
        assert (log.prefix_caching, log.utilisation) == (True, 0.85)

    def test_sglang(self):
        log = read_log("python -m sglang.launch_server --tp 4 --mem-fraction-static 0.93")
        assert (log.tensor_parallel, log.mem_fraction_static) == (4, 0.93)

    def test_llama_cpp(self):
        log = read_log("llama-server -m x.gguf -c 32768 -np 4 -ub 1024 --swa-full")
        assert (log.context, log.slots, log.ubatch, log.swa_full) == (32_768, 4, 1024, True)


class TestSglang:
    def test_a_hybrid(self):
        log = read_log(logs.SGLANG_HYBRID)
        assert isinstance(log, SglangLog)
        assert (log.state_slots, log.conv_state_gib, log.ssm_state_gib) == (186, 0.10, 4.38)
        assert [(r.value, r.rank) for r in log.tokens] == [(327_310, "TP0"), (327_310, "TP1")]
        assert values(log.free_after_load) == [14.08]
        assert log.kv_cache_dtype == "bfloat16"

    def test_latent_attention(self):
        log = read_log(logs.SGLANG_DEEPSEEK)
        assert (log.page_size, log.tensor_parallel, log.data_parallel) == (64, 8, 8)
        assert (log.mem_fraction_static, log.kv_cache_dtype) == (0.9, "fp8_e4m3")
        assert values(log.kv_gib) == [65.49]
        assert log.k_gib == []
        assert (log.max_running_requests, log.context_len) == (2048, 163_840)


class TestLlamaCpp:
    def test_two_caches(self):
        log = read_log(logs.LLAMACPP_GPT_OSS_20B)
        assert isinstance(log, LlamaCppLog)
        full, window = log.caches
        assert (full.mib, full.cells, full.layers, full.slots, full.streams) == (
            3072.0,
            131_072,
            12,
            4,
            1,
        )
        assert (window.sliding, window.cells, window.k_mib) == (True, 1024, 12.0)
        assert not full.sliding
        assert (log.context, log.slots, log.ubatch, log.unified) == (131_072, 4, 512, True)

    def test_states(self):
        log = read_log(logs.LLAMACPP_HYBRID)
        (state,) = log.states
        assert (state.mib, state.slots, state.r_mib, state.s_mib) == (598.5, 4, 22.5, 576.0)
        assert log.caches[0].k_type == "q8_0"

    def test_an_old_line(self):
        (cache,) = read_log(logs.LLAMACPP_OLD).caches
        assert (cache.mib, cache.k_type, cache.v_type) == (1166.62, "q8_0", None)


@pytest.mark.parametrize("text", logs.ALL)
def test_a_log_cut_to_its_figure_lines_says_the_same(text):
    noise = "\n".join(f"INFO step {i} of the loader" for i in range(20))
    cut = "\n".join(figure_lines(f"{noise}\n{text}\n{noise}"))
    assert "of the loader" not in cut
    whole, short = read_log(text), read_log(cut)
    assert type(whole) is type(short)
    assert {
        name: value for name, value in known_figures(whole).items() if not isinstance(value, list)
    } == {
        name: value for name, value in known_figures(short).items() if not isinstance(value, list)
    }
    sliding = [cache.sliding for cache in getattr(whole, "caches", [])]
    assert sliding == [cache.sliding for cache in getattr(short, "caches", [])]


class TestRefusals:
    @pytest.mark.parametrize("text", ["", "  \n\t"])
    def test_nothing(self, text):
        with pytest.raises(LogError, match="no text to read"):
            read_log(text)

    @pytest.mark.parametrize(
        "text",
        [
            "hello",
            '{"model_type": "llama"}',
            "WARNING: something failed\n" * 50,
            "\x00\x01",
            "…" * 99,
        ],
    )
    def test_another_text(self, text):
        with pytest.raises(LogError, match="vLLM, SGLang or llama.cpp"):
            read_log(text)

    def test_too_much(self):
        with pytest.raises(LogError, match="start-up part only"):
            read_log("x" * (MAX_CHARACTERS + 1))

    def test_not_text(self):
        with pytest.raises(LogError, match="must be text"):
            read_log(b"Available KV cache memory: 1 GiB")

    @pytest.mark.parametrize("text", ["", "hello", "x" * (MAX_CHARACTERS + 1)])
    def test_take_one_sentence(self, text):
        with pytest.raises(LogError) as caught:
            read_log(text)
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith(".")


@pytest.mark.parametrize("text", logs.ALL)
def test_prefixes_and_noise_change_nothing(text):
    noisy = "\n".join(
        f"\x1b[32m2026-11-29T14:00:00Z stdout F {line}\nINFO something else"
        for line in text.splitlines()
    )
    clean, dirty = read_log(text), read_log(noisy)
    assert type(clean) is type(dirty)
    for name, value in known_figures(clean).items():
        other = getattr(dirty, name)
        if isinstance(value, list):
            assert len(value) == len(other), name
        elif name != "model":
            assert value == other, name


@given(
    st.sampled_from(logs.ALL),
    st.lists(
        st.tuples(
            st.integers(0, 2000),
            st.integers(0, 60),
            st.text(alphabet="0123456789,.- GiBxMKV():=\n/é\x00", max_size=40),
        ),
        max_size=12,
    ),
)
@settings(max_examples=150)
def test_a_mangled_log_gives_a_log_or_a_sentence(text, edits):
    for start, length, new in edits:
        text = text[:start] + new + text[start + length :]
    try:
        log = read_log(text)
    except LogError as error:
        assert str(error).endswith(".")
        return
    for value in known_figures(log).values():
        if isinstance(value, (int, float)):
            assert value == value


@given(st.text(max_size=400))
def test_any_text_gives_a_log_or_a_sentence(text):
    try:
        read_log(text)
    except LogError as error:
        assert str(error)


@given(
    name=st.sampled_from(sorted(CONFIGS)),
    blocks=st.integers(1, 10**7),
    length=st.integers(1, 10**6),
    version=st.sampled_from(["0.19", "0.24", "0.33"]),
)
def test_vllms_lines_are_read_back(name, blocks, length, version):
    p = vllm.plan(architecture(name), None, length, num_blocks=blocks, version=version)
    log = read_log("\n".join(vllm.startup_lines(p)))
    assert values(log.tokens) == [p.kv_cache_tokens]
    assert log.concurrency_tokens == length
    assert log.concurrency[0].value == pytest.approx(p.max_concurrency, abs=0.0051)


def test_the_other_engines_lines_are_read_back():
    hybrid = architecture("Qwen3.5-27B")
    pools = sglang.plan(hybrid, 20 * GIB)
    log = read_log("\n".join(sglang.startup_lines(pools)))
    assert values(log.tokens) == [pools.tokens]
    assert log.state_slots == pools.state_slots
    cells = llamacpp.plan(architecture("Gemma-3-4B"), 131_072)
    log = read_log("\n".join(llamacpp.startup_lines(cells)))
    assert [(c.cells, c.sliding) for c in log.caches] == [(131_072, False), (1536, True)]
