"""A log beside its prediction: the figures, the rows that agree, and the term that explains."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.architecture import Architecture
from kvcore.engines import vllm
from kvcore.engines.logs import LogError, read_log
from kvcore.engines.reconcile import AGREES, UNEXPLAINED, Reconciliation, Settings, reconcile
from kvcore.engines.reference_models import CONFIGS, architecture
from kvcore.units import GB, GIB
from tests.engines import logs
from tests.engines.test_sglang import QWEN9

SMOL = Architecture.uniform(30, 3, 64)


def check(text: str, a: Architecture | str, **given) -> Reconciliation:
    model = architecture(a) if isinstance(a, str) else a
    return reconcile(read_log(text), model, Settings(**given))


def terms(r: Reconciliation) -> set[str]:
    return {row.term for row in r.rows if row.difference is not None and not row.agrees}


def row(r: Reconciliation, figure: str):
    return next(each for each in r.rows if each.figure.startswith(figure))


@pytest.mark.parametrize(
    ("text", "model", "given"),
    [
        (logs.VLLM_LLAMA_20K, "Llama-3.1-8B", {}),
        (logs.VLLM_LLAMA_29K, "Llama-3.1-8B", {}),
        (logs.VLLM_QWEN35_27B, "Qwen3.5-27B", {"version": "0.19"}),
        (logs.VLLM_QWEN36_35B, "Qwen3.5-35B-A3B", {}),
        (logs.VLLM_QWEN36_27B_DRAFTS, "Qwen3.5-27B", {}),
        (logs.VLLM_GPT_OSS_120B, "gpt-oss-120b", {"max_num_batched_tokens": 1024}),
        (logs.VLLM_CPU, SMOL, {}),
        (logs.SGLANG_QWEN3_235B, "Qwen3-235B-A22B", {"tensor_parallel": 4}),
        (logs.SGLANG_HYBRID, QWEN9, {"tensor_parallel": 2}),
        (logs.SGLANG_DEEPSEEK, "DeepSeek-V3.2", {}),
        (logs.LLAMACPP_GPT_OSS_20B, "gpt-oss-20b", {}),
        (logs.LLAMACPP_HYBRID, "Qwen3.5-27B", {}),
        (logs.LLAMACPP_OLD, "DeepSeek-V3", {}),
    ],
)
def test_real_logs_agree(text, model, given):
    r = check(text, model, **given)
    assert r.agrees, [(each.figure, each.predicted, each.logged, each.term) for each in r.rows]
    assert r.problem == ""
    assert "agree" in r.summary
    assert r.predicted_lines


class TestVllmTerms:
    def test_another_rank_has_less_memory(self):
        r = check(logs.VLLM_QWEN3_235B, "Qwen3-235B-A22B", tensor_parallel=4)
        assert terms(r) == {"rank minimum"}
        assert row(r, "KV cache size").predicted == 8.11 * GIB // (16 * 48_128) * 16
        assert "8.02 GiB" in row(r, "KV cache size").explanation

    def test_the_ranks_may_have_to_be_guessed_as_well(self):
        r = check(logs.VLLM_QWEN3_235B, "Qwen3-235B-A22B", tensor_parallel=1)
        assert terms(r) == {"tensor parallelism"}
        words = row(r, "KV cache size").explanation
        assert "over 4 ranks, not 1" in words
        assert "another rank has only about 8.02 GiB" in words

    def test_less_memory_than_printed_on_one_rank(self):
        text = made("Llama-3.1-8B", 9.6).replace("9.60 GiB", "10.00 GiB")
        r = check(text, "Llama-3.1-8B", tensor_parallel=1)
        assert terms(r) == {"less memory than printed"}
        assert "9.60 GiB were used" in row(r, "KV cache size").explanation

    def test_the_old_meaning_of_the_token_count(self):
        r = check(logs.VLLM_QWEN35_27B, "Qwen3.5-27B")
        assert terms(r) == {"version meaning"}
        assert row(r, "Concurrency").agrees

    def test_tokens_in_flight(self):
        r = check(logs.VLLM_GPT_OSS_120B, "gpt-oss-120b")
        assert terms(r) == {"window in flight"}
        assert "1,024" in row(r, "One request").explanation

    def test_state_copies(self):
        r = check(logs.VLLM_QWEN36_35B, "Qwen3.5-35B-A3B", prefix_caching=False)
        assert terms(r) == {"state copies"}

    def test_precision(self):
        r = check(made("Llama-3.1-8B", 10.0, kv_format="fp8"), "Llama-3.1-8B")
        assert terms(r) == {"KV precision"}
        assert "stored as fp8, not bf16" in row(r, "KV cache size").explanation

    def test_tensor_parallelism(self):
        r = check(made("DeepSeek-V2-Lite", 10.0), "DeepSeek-V2-Lite", tensor_parallel=8)
        assert r.agrees, "latent attention is the same on every rank"
        r = check(made("Qwen3-14B", 10.0, tensor_parallel=4), "Qwen3-14B")
        assert terms(r) == {"tensor parallelism"}

    def test_block_size(self):
        text = made("Gemma-3-27B", 10.0, block_size=128)
        assert terms(check(text, "Gemma-3-27B")) == {"block size"}

    def test_windows_kept_in_full(self):
        text = made(Architecture.uniform(24, 8, 64), 10.0)
        assert terms(check(text, "gpt-oss-20b")) == {"windows kept in full"}

    def test_speculative_decoding(self):
        text = made("Qwen3.5-27B", 20.0, speculative_tokens=2)
        r = check(text, "Qwen3.5-27B", prefix_caching=True)
        assert terms(r) == {"speculative decoding"}

    def test_gb_is_not_gib(self):
        """Someone types 40 GB where the engine had 40 × 10⁹ bytes."""
        text = made("Llama-3.1-8B", 40.0 * GB / GIB).split("\n", 1)[1]
        r = check(text, "Llama-3.1-8B", available_gib=40.0)
        assert terms(r) == {"GB is not GiB"}

    def test_another_model_is_not_explained(self):
        r = check(logs.VLLM_QWEN36_35B, "Llama-2-7B")
        assert UNEXPLAINED in terms(r)
        assert "Check the model" in r.summary

    def test_padding_is_named_where_it_counts(self):
        r = check(made("Gemma-3-27B", 40.0, length=131_072), "Gemma-3-27B")
        words = row(r, "KV cache size").explanation
        assert r.agrees
        assert "padding layers" in words
        assert "tokens in flight beside the window" in words
        assert "Memory ÷ bytes per token would say" in words

    def test_no_memory_left(self):
        r = check("Available KV cache memory: -2.14 GiB", "gpt-oss-120b")
        assert row(r, "Blocks").term == "no memory left"

    def test_too_few_state_blocks_are_the_pool(self):
        text = made("Qwen3.5-27B", 20.0, prefix_caching=False).splitlines()[-3]
        blocks = 20 * GIB // (784 * 4096 * 16)
        text += f"\nmax_num_seqs (1024) exceeds available Mamba cache blocks ({blocks})."
        assert row(check(text, "Qwen3.5-27B"), "Blocks").agrees


class TestBudget:
    def test_the_arithmetic_is_shown(self):
        r = check(logs.VLLM_LLAMA_20K, "Llama-3.1-8B")
        budget = row(r, "Memory for the cache")
        assert budget.term == AGREES
        assert budget.predicted == pytest.approx(3.812)
        assert "23.58 × 0.9 − 17.06" in budget.explanation

    def test_activation_peak_is_what_is_left_unnamed(self):
        text = (
            "total_gpu_memory (79.11GiB) x gpu_memory_utilization (0.95) = 75.15GiB\n"
            "Model loading took 65.965 GiB\nAvailable KV cache memory: 1.71 GiB"
        )
        budget = row(check(text, "gpt-oss-120b"), "Memory for the cache")
        assert budget.term == "activation peak, graphs and memory outside torch"
        assert "7.48 GiB more" in budget.explanation

    def test_graphs_are_counted_since_0_21(self):
        text = (
            "total_gpu_memory (80.00GiB) x gpu_memory_utilization (0.90) = 72GiB\n"
            "model weights take 20.00GiB; non_torch_memory takes 1.00GiB; PyTorch activation peak "
            "memory takes 1.00GiB;\nEstimated CUDA graph memory: 2.00 GiB total\n"
            "Available KV cache memory: {} GiB"
        )
        counted = check(text.format("48.00"), "Llama-3.1-8B", version="0.33")
        assert row(counted, "Memory for the cache").agrees
        other = check(text.format("50.00"), "Llama-3.1-8B", version="0.33")
        assert row(other, "Memory for the cache").term == "CUDA graphs"
        assert row(check(text.format("50.00"), "Llama-3.1-8B", version="0.19"), "Memory").agrees


class TestSglangTerms:
    LOG = (
        "Load weight begin. avail mem=78.00 GB\n"
        "Load weight end. type=X, dtype=torch.bfloat16, avail mem=60.00 GB, mem usage=18.00 GB.\n"
        "KV Cache is allocated. #tokens: {}, K size: {} GB, V size: {} GB"
    )

    def text(self, tokens: int, per_token: int = 131_072) -> str:
        size = f"{tokens * per_token / 2 / GIB:.2f}"
        return self.LOG.format(tokens, size, size)

    def test_headroom_and_cell(self):
        tokens = int(52.2 * GIB) // 131_072
        r = check(self.text(tokens), "Llama-3.1-8B", mem_fraction_static=0.9)
        assert r.agrees
        assert row(r, "KV cache size").predicted == pytest.approx(tokens, abs=100)

    def test_precision(self):
        text = self.text(int(52.2 * GIB) // 65_536, 65_536)
        r = check(text, "Llama-3.1-8B", mem_fraction_static=0.9)
        assert terms(r) == {"KV precision"}

    def test_a_limit_that_was_set(self):
        text = self.text(131_072) + "\nmax_total_num_tokens=131072, max_running_requests=8"
        r = check(text, "Llama-3.1-8B", mem_fraction_static=0.9)
        assert terms(r) == {"token limit"}

    def test_memory_taken_meanwhile(self):
        r = check(self.text(int(51.0 * GIB) // 131_072), "Llama-3.1-8B", mem_fraction_static=0.9)
        assert terms(r) == {"headroom"}

    def test_index_keys_left_out_of_the_size(self):
        text = logs.SGLANG_DEEPSEEK.replace("65.49", "54.52")
        assert terms(check(text, "DeepSeek-V3.2", tensor_parallel=1)) == {"index keys"}

    def test_window_ratio(self):
        text = "Use sliding window memory pool. full_layer_tokens=10000, swa_layer_tokens=2500"
        r = check(text, "gpt-oss-20b")
        assert terms(r) == {"window ratio"}
        assert "0.250" in row(r, "Window pool").explanation

    def test_data_parallel_attention_splits_no_heads(self):
        r = check(logs.SGLANG_DEEPSEEK, "DeepSeek-V3.2")
        assert r.used["tensor_parallel"] == 1
        whole = check(
            logs.SGLANG_DEEPSEEK.replace("attention=True", "attention=False"), "Qwen3-14B"
        )
        assert whole.used["tensor_parallel"] == 8

    def test_gb_means_gib(self):
        r = check(logs.SGLANG_QWEN3_235B, "Qwen3-235B-A22B", tensor_parallel=4)
        assert "8.84 GB" in row(r, "Keys").explanation


class TestLlamaCppTerms:
    def test_tokens_computed_at_once(self):
        text = (
            logs.LLAMACPP_GPT_OSS_20B.replace("n_ubatch      = 512", "")
            .replace("1024 cells", "2560 cells")
            .replace("  24.00 MiB (", "  60.00 MiB (")
        )
        assert terms(check(text, "gpt-oss-20b")) == {"window in flight"}

    def test_a_quantised_window(self):
        text = (
            "llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells\n"
            "llama_kv_cache: size = 102.00 MiB (8192 cells, 12 layers, 1/1 seqs), "
            "K (q8_0): 51.00 MiB, V (q8_0): 51.00 MiB\n"
            "llama_kv_cache_iswa: creating     SWA KV cache, size = 768 cells\n"
            "llama_kv_cache: size = 9.56 MiB (768 cells, 12 layers, 1/1 seqs), "
            "K (q8_0): 4.78 MiB, V (q8_0): 4.78 MiB\n"
        )
        r = check(text, "gpt-oss-20b")
        assert terms(r) == {"window precision"}
        assert check(text, "gpt-oss-20b", quantised_window=True).agrees

    def test_a_full_size_window(self):
        text = (
            "llama_kv_cache_iswa: using full-size SWA cache\n"
            "llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells\n"
            "llama_kv_cache: size = 192.00 MiB (8192 cells, 12 layers, 1/1 seqs), K (f16): 96.00 "
            "MiB, V (f16): 96.00 MiB\n"
            "llama_kv_cache_iswa: creating     SWA KV cache, size = 8192 cells\n"
            "llama_kv_cache: size = 192.00 MiB (8192 cells, 12 layers, 1/1 seqs), K (f16): 96.00 "
            "MiB, V (f16): 96.00 MiB\n"
        )
        assert check(text, "gpt-oss-20b").agrees
        assert terms(check(text, "gpt-oss-20b", swa_full=False)) == {"windows kept in full"}

    def test_states_of_another_precision(self):
        size = 4 * architecture("Qwen3.5-27B").state_bytes() / 2**20
        text = logs.LLAMACPP_HYBRID.replace("598.50", f"{size:.2f}")
        assert terms(check(text, "Qwen3.5-27B")) == {"state precision"}

    def test_another_model(self):
        r = check(logs.LLAMACPP_HYBRID, "Llama-3.1-8B")
        assert terms(r) == {UNEXPLAINED}


class TestSettings:
    def test_a_mapping_will_do(self):
        r = reconcile(read_log(logs.VLLM_CPU), SMOL, {"kv_format": "bf16", "tensor_parallel": 1})
        assert r.agrees
        assert r.used["kv_format"] == "bf16"

    def test_an_unknown_setting_is_named(self):
        with pytest.raises(ValueError, match="“gpus” is not a setting"):
            reconcile(read_log(logs.VLLM_CPU), SMOL, {"gpus": 4})

    def test_what_had_to_be_assumed_is_said(self):
        r = check(logs.VLLM_QWEN35_27B, "Qwen3.5-27B")
        assert any("prefix_caching is False" in each for each in r.assumed)
        assert any(each.startswith("version is 0.33") for each in r.assumed)
        plain = check(logs.VLLM_QWEN3_235B, "Qwen3-235B-A22B", tensor_parallel=4, version="0.10")
        assert not any("prefix_caching" in each for each in plain.assumed)

    def test_an_unplannable_model_is_a_sentence_not_an_error(self):
        r = check(logs.LLAMACPP_OLD, "Whisper-large-v3")
        assert r.problem == r.summary == "llama.cpp's cross-attention cache is not modelled."
        assert not r.agrees


@given(
    text=st.sampled_from(logs.ALL),
    model=st.sampled_from(sorted(CONFIGS)),
    edits=st.lists(
        st.tuples(st.integers(0, 900), st.integers(0, 30), st.text("0123456789,. -", max_size=16)),
        max_size=6,
    ),
)
@settings(max_examples=120)
def test_any_log_with_any_model_gives_rows(text, model, edits):
    for start, length, new in edits:
        text = text[:start] + new + text[start + length :]
    try:
        log = read_log(text)
    except LogError:
        return
    r = reconcile(log, architecture(model))
    assert r.summary.endswith(".")
    for each in r.rows:
        assert each.term
        assert each.explanation


@given(
    model=st.sampled_from(sorted(CONFIGS)),
    gib=st.floats(0.5, 100),
    length=st.integers(256, 200_000),
    batch=st.sampled_from([2048, 8192]),
    drafts=st.integers(0, 3),
    version=st.sampled_from(["0.19.0", "0.24.0", "0.33.0"]),
)
@settings(max_examples=80)
def test_a_predicted_log_reconciles_with_its_own_settings(
    model, gib, length, batch, drafts, version
):
    given = {
        "max_num_batched_tokens": batch,
        "speculative_tokens": drafts,
        "version": version,
        "prefix_caching": True,
    }
    text = made(model, gib, length=length, **given)
    r = check(text, model, max_model_len=length, kv_format="bf16", **given)
    assert r.agrees or "KV cache size" not in text


def made(a: Architecture | str, gib: float, length: int = 32_768, **given) -> str:
    """The lines vLLM would print for these settings."""
    model = architecture(a) if isinstance(a, str) else a
    p = vllm.plan(model, int(gib * GIB), length, **{"version": "0.24", **given})
    return "\n".join(vllm.startup_lines(p))
