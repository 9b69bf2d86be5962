"""Findings from samples whose answer is known beforehand."""

import pytest

from kvcore.serving.experiments import COLD, LEVEL, WARM
from kvcore.serving.findings import (
    Load,
    bends_at,
    first_token_findings,
    line,
    spread,
    token_time_findings,
)
from kvcore.serving.recorded import (
    SMOLLM2_NAME,
    architecture,
    architecture_names,
    likely_architecture,
)
from kvcore.serving.run import Sample


def pair(length, repeat, cold, warm, cached=None):
    common = {"target_tokens": length, "repeat": repeat, "prompt_tokens": length}
    return [
        Sample(COLD, first_token_seconds=cold, cached_tokens=0, **common),
        Sample(WARM, first_token_seconds=warm, cached_tokens=cached, **common),
    ]


def test_the_measurements_of_the_reference():
    """vLLM 0.32 on a CPU, one run each: 202, 603, 1,202 and 2,403 tokens."""
    figures = [(202, 3.2, 1.7), (603, 9.0, 2.0), (1_202, 18.1, 1.1), (2_403, 39.4, 2.1)]
    found = first_token_findings([s for n, c, w in figures for s in pair(n, 0, c, w, 128)])
    assert found.cold_line.slope == pytest.approx(0.0157, abs=0.0006), "about 15 ms a token"
    assert found.longest_ratio == pytest.approx(39.4 / 2.1)
    assert found.pays_from == 202
    assert (found.in_time, found.agreeing) == (4, 4)
    assert "agree" in found.verdict


def test_caching_pays_from_where_no_warm_answer_is_slower():
    runs = [
        *pair(100, 0, 1.0, 0.9, 64),
        *pair(100, 1, 0.8, 1.0, 64),
        *pair(500, 0, 5.0, 1.0, 448),
        *pair(500, 1, 5.2, 1.1, 448),
        *pair(900, 0, 9.0, 1.0, 896),
    ]
    assert first_token_findings(runs).pays_from == 500
    runs += pair(900, 1, 9.0, 9.5, 896)
    assert first_token_findings(runs).pays_from is None


def test_word_and_time_may_disagree():
    says_hit_but_slow = pair(500, 0, 5.0, 5.0, 448)
    silent_but_fast = pair(500, 1, 5.0, 1.0, 0)
    found = first_token_findings(says_hit_but_slow + silent_but_fast)
    assert (found.told, found.told_hit, found.in_time, found.agreeing) == (2, 1, 1, 0)
    assert "disagree in 2" in found.verdict


def test_faulty_samples_decide_nothing():
    broken = Sample(WARM, 500, problem="It broke.", first_token_seconds=0.001)
    found = first_token_findings([*pair(500, 0, 5.0, 5.0), broken])
    assert found.longest_ratio == 1
    assert first_token_findings([]).verdict == "Nothing has been compared yet."


def test_one_outlier_does_not_move_the_line():
    points = [(n, 0.5 + 0.002 * n) for n in range(100, 1_100, 100)]
    assert line(points).slope == pytest.approx(0.002)
    points[4] = (500, 60.0)
    assert line(points).slope == pytest.approx(0.002, rel=0.05)
    assert line([(5, 1.0), (5, 2.0)]) is None
    assert line([]) is None


def test_where_load_bends():
    def load(concurrent, rate):
        return Load(concurrent, spread([0.1]), rate, None, None)

    assert bends_at([load(1, 10), load(2, 20), load(4, 39), load(8, 41)]) == 4
    assert bends_at([load(1, 10), load(2, 20), load(4, 40)]) is None
    assert bends_at([load(1, 10), load(8, 19)]) == 1, "three doublings need 1.25³"
    assert bends_at([load(1, 10), load(8, 20)]) is None
    assert bends_at([]) is None


def test_throughput_of_a_wave():
    common = {"target_tokens": 100, "output_tokens": 10, "wave_seconds": 2.0}
    wave = [Sample(LEVEL, concurrency=4, seconds_per_token=0.1, **common) for _ in range(4)]
    (only,) = token_time_findings(wave).loads
    assert only.tokens_per_second == 20
    assert only.kv_usage is None


@pytest.mark.parametrize(
    ("served", "name"),
    [
        ("HuggingFaceTB/SmolLM2-135M-Instruct", SMOLLM2_NAME),
        ("/models/smollm2-135m", SMOLLM2_NAME),
        ("Qwen/Qwen3-0.6B", "Qwen3-0.6B"),
        ("meta-llama/Llama-3.1-70B-Instruct", "Llama-3.1-70B"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("my-model", None),
    ],
)
def test_the_architecture_behind_a_served_name(served, name):
    assert likely_architecture(served) == name


def test_smollm2_keeps_what_the_reference_says():
    # 2 × 30 layers × 3 heads × 64 × 2 bytes, and 46,080 in fp32.
    assert architecture(SMOLLM2_NAME).growth_bytes("bf16") == 23_040
    assert architecture(SMOLLM2_NAME).growth_bytes("fp32") == 46_080
    assert all(architecture(name) for name in architecture_names()[:3])
