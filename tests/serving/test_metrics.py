"""Readers of /metrics, usage and the engines' own extras, on text as the engines print it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.serving.answers import Answer, says_cached
from kvcore.serving.metrics import _NAMES, grown, read_metrics

VLLM = """# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="smol"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="smol"} 0.5
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="smol"} 8823.0
vllm:prefix_cache_queries_total{engine="1",model_name="smol"} 100.0
vllm:prefix_cache_queries_created{engine="0",model_name="smol"} 1.7e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="smol"} 4096.0
vllm:prefix_cache_hits_total{engine="1",model_name="smol"} 0.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="smol"} 3.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",cache_dtype="auto",enable_prefix_caching="True"} 1.0
"""
OLD_VLLM = """# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.1
# TYPE vllm:gpu_prefix_cache_hits_total counter
vllm:gpu_prefix_cache_hits_total{model_name="m"} 64.0
"""
SGLANG = """# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="q"} 0.28
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{model_name="q",cache_source="device"} 3000.0
sglang:cached_tokens_total{model_name="q",cache_source="host"} 168.0
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="q"} 4096.0
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{model_name="q"} 471258.0
# TYPE sglang:num_retracted_reqs gauge
sglang:num_retracted_reqs{model_name="q"} 7.0
# TYPE sglang:num_retracted_requests_total counter
sglang:num_retracted_requests_total{model_name="q"} 48.0
"""
LLAMACPP = """# TYPE llamacpp:kv_cache_usage_ratio gauge
llamacpp:kv_cache_usage_ratio 0.63
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
"""


def test_vllm_with_two_ranks():
    found = read_metrics(VLLM)
    assert found.engine == "vllm"
    assert (found.prefix_queries, found.prefix_hits) == (8923, 4096)
    assert found.kv_usage == 0.5, "the fullest rank"
    assert found.preemptions == 3
    assert found.waiting is None, "not there is not zero"
    assert found.cache_config["block_size"] == "128"


def test_older_names_of_vllm():
    found = read_metrics(OLD_VLLM)
    assert (found.kv_usage, found.prefix_hits, found.prefix_queries) == (0.1, 64, None)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e400", "-5"])
@pytest.mark.parametrize("name", sorted({n for f in _NAMES["vllm"].values() for n in f[0]}))
def test_a_figure_that_cannot_be_is_unknown(name, value):
    good = read_metrics(f"{name} 1\n")
    (figure,) = [key for key in _NAMES["vllm"] if getattr(good, key) is not None]
    assert getattr(read_metrics(f"{name} {value}\n"), figure) is None
    two_ranks = f'{name}{{engine="0"}} {value}\n{name}{{engine="1"}} 1\n'
    assert getattr(read_metrics(two_ranks), figure) == 1


def test_sglang():
    found = read_metrics(SGLANG)
    assert found.engine == "sglang"
    assert (found.prefix_hits, found.prefix_queries) == (3168, 4096)
    assert found.kv_tokens == 471_258
    assert found.preemptions == 48, "the total, not the gauge of the latest batch"


def test_llamacpp():
    found = read_metrics(LLAMACPP)
    assert (found.engine, found.kv_usage, found.running) == ("llama.cpp", 0.63, 2)
    assert not found.says_hits


def test_one_model_of_several():
    text = VLLM + 'vllm:num_requests_running{engine="0",model_name="smol"} 2\n'
    text += 'vllm:num_requests_running{engine="0",model_name="other"} 5\n'
    assert read_metrics(text, "smol").running == 2
    assert read_metrics(text, "other").running == 5
    assert read_metrics(text).running == 7


def test_other_programs_metrics():
    assert read_metrics("# TYPE up gauge\nup 1\n").engine is None
    assert read_metrics("<html>") is None
    assert read_metrics("") is None


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text):
    for found in (read_metrics(text), read_metrics(VLLM + text)):
        assert found is None or found.engine in {None, "vllm", "sglang", "llama.cpp"}


@pytest.mark.parametrize(
    ("before", "after", "rose"), [(1, 5, 4), (None, 5, None), (5, None, None), (9, 2, None)]
)
def test_counters_that_are_unknown_or_were_reset(before, after, rose):
    assert grown(before, after) == rose


# Usage, in the shapes servers send it


def answer(*chunks):
    found = Answer()
    for place, chunk in enumerate(chunks):
        found.take(chunk, 0.1 * (place + 1))
    return found


@pytest.mark.parametrize(
    ("usage", "prompt", "cached"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 2}, 100, None),
        ({"prompt_tokens": 100, "prompt_tokens_details": None}, 100, None),
        ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": None}}, 100, None),
        ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 0}}, 100, 0),
        ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 64}}, 100, 64),
        (
            {"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36},
            100,
            64,
        ),
        ({"prompt_tokens": 100, "cached_tokens": 64}, 100, 64),
    ],
)
def test_cached_tokens_of_a_usage_object(usage, prompt, cached):
    found = answer({"choices": [], "usage": usage})
    assert found.prompt_tokens == prompt
    assert found.cached_tokens == cached
    assert says_cached(usage) is (cached is not None)


def test_usage_that_cannot_be_true_is_said_and_not_used():
    wrong = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 64}}
    found = answer({"choices": [], "usage": wrong})
    assert found.usage is None
    assert found.cached_tokens is None
    assert "64" in found.usage_problem


def test_llamacpp_timings():
    timings = {"prompt_n": 12, "cache_n": 236, "prompt_ms": 30.9, "predicted_n": 35}
    found = answer({"choices": [{"delta": {}, "finish_reason": "stop"}], "timings": timings})
    assert found.cached_tokens == 236
    assert (found.timings.prompt_tokens, found.timings.prompt_ms) == (12, 30.9)


def test_pieces_of_every_kind_count():
    found = answer(
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"reasoning_content": "hm"}}]},
        {"choices": [{"delta": {"content": "yes"}}]},
        {"choices": [{"text": "!", "finish_reason": "stop"}]},
    )
    assert found.piece_seconds == pytest.approx([0.2, 0.3, 0.4])
    assert found.first_token_seconds == pytest.approx(0.2)
    assert found.done


def test_an_answer_without_text_begins_with_its_end():
    found = answer({"choices": [{"delta": {}, "finish_reason": "length"}]})
    assert found.first_token_seconds == pytest.approx(0.1)
    assert found.output_tokens == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "delta", "usage", "content", "timings", "prompt_tokens"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["choices", "usage", "timings"]), json_values))
def test_no_chunk_breaks_an_answer(chunk):
    assert answer(chunk) is not None
