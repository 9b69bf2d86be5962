"""How the answer moves with traffic and prompt, and where it flips."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from kvcore.costs import estimate
from kvcore.costs.curves import (
    NO_CACHING,
    bill_frame,
    break_even_frame,
    break_even_rates,
    options_frame,
    prefix_frame,
    rate_frame,
    saving_curve,
    savings_by_prefix,
    segments,
    turns_frame,
)
from kvcore.costs.estimate import evaluate
from kvcore.costs.expectation import prefix_hit_rate, prefix_hit_rates
from kvcore.costs.traffic import storage_break_even
from kvcore.costs.workload import COMPACTION, Event

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
ROUND_THE_CLOCK = {"hours_per_day": 24, "days_per_month": 30}


def one(model, provider="anthropic", **answers):
    return estimate([(model, provider)], at=NOW, **answers).models[0]


@pytest.mark.parametrize(
    ("model", "provider", "answers"),
    [
        ("claude-haiku-4-5", "anthropic", {}),
        ("claude-opus-5", "anthropic", {"turns": 8, "prefixes": 10}),
        ("gemini-3.8-flash", "google", {"prefixes": 3}),
        ("gpt-6.1-terra", "openai", {"parallel": 4, "calls_per_turn": 3}),
        ("gpt-4o", "openai", {"arrivals": "schedule"}),
    ],
)
def test_a_curve_is_what_estimating_anew_would_say(model, provider, answers):
    here = one(model, provider, **answers)
    for rate in (0.3, 7.0, 120.0, 4000.0):
        there = one(model, provider, **answers, requests_per_hour=rate)
        for outcome in there.outcomes:
            curve = saving_curve(here, outcome.option)
            assert curve(rate) == pytest.approx(float(outcome.saving), rel=1e-6, abs=1e-6)


def test_the_break_even_is_where_the_saving_is_nothing():
    """Round the clock, one prefix: the longest mean gap that pays is 20.4 min at five minutes."""
    model = one("claude-opus-4-8", visible_after_seconds=0.0, **ROUND_THE_CLOCK)
    (rate,) = break_even_rates(model, model.rules.option("5m"))
    assert 60 / rate == pytest.approx(20.4, abs=0.05)
    (rate,) = break_even_rates(model, model.rules.option("1h"))
    assert 60 / rate == pytest.approx(80.3, abs=0.05)
    frame = break_even_frame(model)
    assert sorted(frame["lifetime"]) == ["1 hour", "5 minutes"]


BRACKETED = 1e-5


@pytest.mark.parametrize(
    ("model", "provider", "answers"),
    [
        ("claude-haiku-4-5", "anthropic", {}),
        ("gemini-3.8-flash", "google", {"prefixes": 3}),
        ("claude-sonnet-5", "anthropic", {"prefixes": 100, "uneven": True}),
    ],
)
def test_the_sign_changes_within_a_hair_of_the_break_even(model, provider, answers):
    here = one(model, provider, **answers)
    found = 0
    for outcome in here.outcomes:
        curve = saving_curve(here, outcome.option)
        for rate in break_even_rates(here, outcome.option):
            assert curve(rate * (1 - BRACKETED)) * curve(rate * (1 + BRACKETED)) < 0
            found += 1
    assert found


TRAFFIC = [
    {},
    {"turns": 6, "prefixes": 9, "uneven": True},
    {"arrivals": "schedule", "prefixes": 2},
    {"arrivals": "recorded", "recorded": (0.0, 10.0, 400.0, 500.0, 1300.0)},
    {"parallel": 5, "send_one_first": True},
    {"batch": True},
    {"unstable_top": True},
]


@pytest.mark.parametrize("answers", TRAFFIC)
def test_hit_rates_at_many_paces_are_those_at_each(answers):
    rates = np.array([0.2, 3.0, 120.0, 5_000.0])
    for provider, name in (("anthropic", "claude-sonnet-5"), ("openai", "gpt-5.6-sol")):
        model = one(name, provider, **answers)
        for option in model.rules.options:
            each = [
                prefix_hit_rate(replace(model.workload, requests_per_hour=rate), option, 1.5)
                for rate in rates
            ]
            together = prefix_hit_rates(model.workload, option, 1.5, rates)
            assert together == pytest.approx(each, rel=1e-12)


@pytest.mark.parametrize(
    ("model", "provider", "answers"),
    [
        ("claude-haiku-4-5", "anthropic", {"turns": 4}),
        ("gpt-4o", "openai", {"turns": 2, "calls_per_turn": 3}),
        (
            "gpt-5.6-sol",
            "openai",
            {"turns": 4, "changing_tokens": 9_000, "events": (Event(3, COMPACTION),)},
        ),
        ("gemini-3.8-flash", "google", {"prefixes": 3}),
    ],
)
def test_a_drawn_saving_is_what_a_bill_of_that_length_says(model, provider, answers):
    """Below and at the minimum, off the increment, and over the long-context price."""
    here = one(model, provider, **answers)
    lengths = np.array([0, 1, 1_023, 1_024, 1_500, 4_096, 6_001, 265_000, 272_000, 300_000])
    there = [one(model, provider, **answers, prefix_tokens=int(length)) for length in lengths]
    for option in here.rules.options:
        exact = [float(each.outcome(option.id).saving) for each in there]
        drawn = savings_by_prefix(here, option, lengths)
        assert drawn == pytest.approx(exact, rel=1e-9, abs=1e-6)


def test_segments_name_the_cheapest_and_where_it_flips():
    """Below one request in 80 minutes nothing pays; the hour wins up to a gap of 109.5 min of
    difference, that is everywhere it pays, until busy traffic makes its dearer write a waste."""
    model = one("claude-opus-4-8", **ROUND_THE_CLOCK)
    found = segments(model)
    assert [s.option_id for s in found[:2]] == [NO_CACHING, "1h"]
    assert 60 / found[0].to_rate == pytest.approx(80.3, rel=0.01)
    for segment in found:
        rate = (segment.from_rate * segment.to_rate) ** 0.5
        there = one("claude-opus-4-8", requests_per_hour=rate, **ROUND_THE_CLOCK)
        best = there.best.option.id if there.saving > 0 else NO_CACHING
        assert best == segment.option_id
    assert all(a.to_rate == b.from_rate for a, b in zip(found, found[1:], strict=False))


def test_a_held_cache_pays_above_so_many_reads_an_hour():
    """s/(p(1 − r)): 0.74 an hour on Gemini 3.8 Flash; held round the clock, created once."""
    model = one("gemini-3.8-flash", "google", **ROUND_THE_CLOCK)
    (rate,) = break_even_rates(model, model.rules.option("explicit-day"))
    assert rate == pytest.approx(storage_break_even(0.5, 0.75, 0.1), rel=0.03)


def test_the_bill_frame_holds_both_bills():
    model = one("claude-haiku-4-5")
    frame = bill_frame(model)
    sums = frame.groupby("scenario")["dollars"].sum()
    assert sums["without caching"] == pytest.approx(float(model.without.total))
    assert sums["with 5 minutes"] == pytest.approx(float(model.best.bill.total))


def test_every_lifetime_has_its_line():
    model = one("gpt-6.1-terra", "openai")
    frame = rate_frame(model)
    assert set(frame["lifetime"]) == {"30 minutes", "12 hours"}
    here = frame[frame["requests_per_hour"] == 120].set_index("lifetime")["saving"]
    for outcome in model.outcomes:
        assert here[outcome.name] == pytest.approx(float(outcome.saving))


def test_the_minimum_is_a_cliff():
    model = one("claude-haiku-4-5")
    frame = prefix_frame(model)
    line = frame[frame["lifetime"] == "5 minutes"].set_index("prefix_tokens")["saving"]
    assert (line[line.index < 4096] == 0).all()
    assert line[4096] > 50
    assert line[6000] == pytest.approx(float(model.outcome("5m").saving))
    assert line.index.min() == 0


def test_a_conversation_turn_by_turn_adds_up_to_the_bill():
    model = one("claude-opus-5", turns=7, calls_per_turn=2)
    frame = turns_frame(model)
    assert list(frame["call"]) == list(range(1, 15))
    monthly = model.workload.conversations_per_month
    last = frame.iloc[-1]
    assert last["total_without"] * monthly == pytest.approx(float(model.without.total))
    assert last["total_with"] * monthly == pytest.approx(float(model.best.bill.total))
    tokens = frame["fresh"] + frame["cache_read"] + frame["cache_write"]
    assert tokens.to_numpy() == pytest.approx(frame["prompt"].to_numpy())
    assert len(turns_frame(model, turns=30)) == 60


def test_options_side_by_side():
    model = one("gpt-4o", "openai")
    frame = options_frame(model)
    assert frame.loc[0, "lifetime"] == NO_CACHING
    assert frame.loc[0, "dollars"] == pytest.approx(float(model.without.total))
    assert len(frame) == 3
    assert not frame.loc[1, "certain"]


def test_a_model_without_options_still_gives_frames():
    model = one("claude-haiku-4-5")
    bare = evaluate(model.rates, replace(model.rules, options=()), model.workload)
    assert bare.best is None
    assert bare.saving == 0
    assert len(bill_frame(bare)) == 5
    assert [s.option_id for s in segments(bare)] == [NO_CACHING]
    assert rate_frame(bare).empty
