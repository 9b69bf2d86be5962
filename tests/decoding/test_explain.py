"""What is said of a timing run, against runs and differences made up for it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kvcore.decoding import explain
from kvcore.decoding.compare import Agreement
from kvcore.decoding.run import Facts, Run, Settings, recorded

SAME = Agreement(
    compared=48,
    largest_difference=1e-5,
    narrowest_gap=0.25,
    first_difference=None,
    gap_there=None,
    largest_logit=1.0,
)


@pytest.mark.parametrize(
    ("agreement", "begins"),
    [
        (replace(SAME, largest_difference=None), "Nothing has been compared yet."),
        (SAME, "Token for token the same. 48 steps compared"),
        (
            replace(SAME, first_difference=9, gap_there=1.5e-5),
            "They part at token 10. There the two best tokens were 1.5e-05 apart",
        ),
        (
            replace(SAME, first_difference=9, gap_there=0.5),
            "Something is wrong. They part at token 10. ",
        ),
        (replace(SAME, largest_difference=0.5), "Something is wrong. "),
    ],
)
def test_each_verdict_has_its_words(agreement, begins):
    assert explain.verdict(agreement).startswith(begins)


@pytest.mark.parametrize(
    ("cpu_share", "threads", "told"),
    [(None, 1, False), (0.95, 1, False), (0.6, 2, False), (0.6, 1, True)],
)
def test_other_work_is_told_where_it_can_be_judged(cpu_share, threads, told):
    said = explain.disturbance(Run(Settings(threads=threads), cpu_share=cpu_share))
    assert (said is not None) == told
    assert not told or "took the processor for 40.0 % of the time" in said


@pytest.mark.parametrize(
    ("ratios", "says"),
    [
        ([1.0, 15.9, 16.0], "16× was reached after 3 tokens on this machine."),
        ([1.0, 2.0], "16× lies beyond these 2 tokens on this machine."),
    ],
)
def test_the_quoted_factor_is_reached_or_not(monkeypatch, ratios, says):
    run = recorded()
    monkeypatch.setattr(type(run.comparison), "speed_up", lambda self: ratios)
    assert explain.quoted_factor_reached(run) == says


def test_the_arithmetic_adds_up():
    """Three tokens after a prompt of ten: 10 + 11 + 12 = 33 without a cache, 12 with it."""
    last = SimpleNamespace(index=2, cache_bytes=12 * 100, seconds=0.002)
    cached = SimpleNamespace(steps=[last], measured=3)
    run = Run(
        Settings(prompt="x"),
        facts=Facts("gpt2", "random", None, 10, 1_024, 4_000, 100),
        comparison=SimpleNamespace(cached=cached),
    )
    lines = explain.arithmetic(run)
    assert lines[0].endswith("10 + … + 12 = 33")
    assert lines[1].endswith("10 + 2 × 1 = 12")
    assert "12 tokens × 100 B = 1,200 B" in lines[2]
    assert len(lines) == 3
    run.bytes_per_second = 5_200_000
    read, floor = explain.arithmetic(run)[3:]
    assert read.endswith("4,000 B of weights + 1,200 B of cache = 5,200 B")
    assert floor.endswith("5,200 B ÷ 5,200,000 B/s = 1.0 ms; taken: 2.0 ms")


def test_a_run_in_full_shows_what_the_uncached_way_wrote():
    run = recorded()
    assert explain.text_without_cache(run) == run.settings.prompt + run.uncached_text
    run = Run(run.settings, comparison=replace(run.comparison, samples=24))
    assert explain.text_without_cache(run).startswith("Computed at ")
    assert "each gave the token that stands there" in explain.text_without_cache(run)
