"""Dollars lost per cause, what a fix is worth, and how sure the saving is."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.costs import estimate
from kvcore.costs.curves import segments
from kvcore.costs.doubts import uncertainty_band
from kvcore.costs.losses import cliffs, losses
from kvcore.costs.workload import Event

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def one(model, provider="anthropic", **answers):
    return estimate([(model, provider)], at=NOW, **answers).models[0]


def by_cause(model, words, using=None):
    found = [loss for loss in losses(model, using) if words in loss.cause]
    assert len(found) == 1, [loss.cause for loss in losses(model, using)]
    return found[0]


def test_a_timestamp_at_the_top_costs_the_whole_saving_and_the_premium():
    model = one("claude-opus-5", unstable_top=True)
    loss = by_cause(model, "differs every time")
    stable = one("claude-opus-5")
    assert loss.dollars == loss.worth == model.best.bill.total - stable.outcome("5m").bill.total
    assert not loss.avoided
    what_if = by_cause(stable, "timestamp")
    assert what_if.avoided
    assert what_if.dollars == pytest.approx(loss.dollars)


def test_below_the_minimum_the_fix_costs_tokens_too():
    model = one("claude-haiku-4-5", prefix_tokens=3_000)
    loss = by_cause(model, "below the minimum of 4,096")
    longer = one("claude-haiku-4-5", prefix_tokens=4_096)
    assert loss.worth == model.without.total - longer.cheapest_total
    assert 0 < loss.worth < loss.dollars
    tiny = by_cause(one("claude-haiku-4-5", prefix_tokens=20), "below the minimum")
    assert tiny.worth == 0
    assert tiny.fix.startswith("Nothing")


def test_parallel_calls_are_mended_by_sending_one_first():
    model = one("claude-opus-5", parallel=10, requests_per_hour=30)
    loss = by_cause(model, "10 calls at once", "5m")
    mended = one("claude-opus-5", parallel=10, requests_per_hour=30, send_one_first=True)
    assert loss.worth == model.outcome("5m").bill.total - mended.outcome("5m").bill.total
    assert loss.worth > 0


def test_expiry_is_mended_by_another_lifetime_where_one_is_cheaper():
    model = one("claude-opus-5", requests_per_hour=1.5)
    loss = by_cause(model, "expire", "5m")
    assert loss.fix == "Change to 1 hour."
    assert loss.worth == model.outcome("5m").bill.total - model.outcome("1h").bill.total


def test_many_prefixes_and_a_model_switch_are_priced():
    model = one("claude-opus-5", turns=8, prefixes=50, events=(Event(4, "model switch"),))
    shared = one("claude-opus-5", turns=8, prefixes=1, events=(Event(4, "model switch"),))
    option = model.best.option.id
    loss = by_cause(model, "50 different prefixes")
    assert loss.dollars == model.best.bill.total - shared.outcome(option).bill.total
    assert by_cause(model, "Model switch").dollars > 0


def test_a_long_lifetime_read_within_minutes_is_a_loss():
    model = one("claude-opus-5", turns=20, seconds_between_turns=20, prefixes=10_000)
    loss = by_cause(model, "Long writes", "1h")
    assert loss.dollars == model.outcome("1h").bill.total - model.outcome("5m").bill.total
    assert loss.fix == "Change to 5 minutes."


def test_holding_an_idle_cache_is_a_loss():
    loss = by_cause(one("gemini-3.8-flash", "google"), "nobody reads it", "explicit-day")
    assert loss.fix == "Delete it overnight."
    assert loss.dollars > 0


def test_where_caching_loses_the_fix_is_to_leave_it_off():
    model = one("gpt-5.6-sol", "openai", requests_per_hour=0.05)
    loss = by_cause(model, "more than reading brings")
    assert loss.dollars == loss.worth == -model.saving
    assert loss.fix == "Leave caching off: set the cache mode to explicit and mark nothing."


def test_losses_come_dearest_first_and_are_real():
    found = losses(one("claude-opus-5", turns=5, prefixes=9, parallel=3))
    amounts = [loss.dollars for loss in found]
    assert amounts == sorted(amounts, reverse=True)
    assert min(amounts) > Decimal("0.005")
    assert all(loss.fix.endswith(".") for loss in found)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"prefix_tokens": 4_200}, "just over the minimum of 4,096"),
        ({"prefix_tokens": 4_000}, "below the minimum of 4,096"),
    ],
)
def test_cliffs_near_the_minimum(answers, words):
    assert any(words in sentence for sentence in cliffs(one("claude-haiku-4-5", **answers)))


def test_cliffs_near_a_tier_and_near_a_lifetime():
    model = one("claude-haiku-5-5", prefix_tokens=95_000)
    assert any("within a tenth of 100,000" in s for s in cliffs(model))
    over = one("claude-haiku-5-5", prefix_tokens=101_000)
    assert any("over 100,000" in s for s in cliffs(over))
    cron = one("claude-opus-5", requests_per_hour=12.2, arrivals="schedule")
    assert any("close to the lifetime" in s for s in cliffs(cron, "5m"))
    assert cliffs(one("claude-opus-5")) == ()


def test_the_band_holds_the_saving_and_names_its_drivers():
    model = one("gpt-6.1-terra", "openai", prefixes=60, turns=4)
    band = uncertainty_band(model)
    assert band.saving == model.saving
    assert band.low < band.saving < band.high
    spreads = [driver.spread for driver in band.drivers]
    assert spreads == sorted(spreads, reverse=True)
    names = {driver.name for driver in band.drivers}
    assert "whether a hit renews the lifetime" in names
    assert "pause between turns" in names
    assert all(driver.low <= band.saving <= driver.high for driver in band.drivers)
    assert band.drivers[0].name in band.sentence


def test_a_disputed_minimum_widens_the_band():
    band = uncertainty_band(one("claude-sonnet-4-6", prefix_tokens=1_500))
    driver = next(d for d in band.drivers if "minimum" in d.name)
    assert driver.low == 0
    assert driver.is_fact
    sure = uncertainty_band(one("claude-sonnet-4-5", prefix_tokens=1_500))
    assert not any("minimum" in d.name for d in sure.drivers)


@given(
    tokens=st.integers(1, 200_000),
    rate=st.floats(0.01, 50_000),
    turns=st.integers(1, 5),
    prefixes=st.integers(1, 5000),
    parallel=st.integers(1, 50),
    arrivals=st.sampled_from(["poisson", "schedule"]),
    model=st.sampled_from(
        [
            ("claude-haiku-5-5", "anthropic"),
            ("gpt-5.6-sol", "openai"),
            ("gpt-4o", "openai"),
            ("gemini-2.5-pro", "google"),
        ]
    ),
)
@settings(max_examples=12)
def test_any_workload_can_be_asked_every_question(
    tokens, rate, turns, prefixes, parallel, arrivals, model
):
    found = one(
        *model,
        prefix_tokens=tokens,
        changing_tokens=0,
        requests_per_hour=rate,
        turns=turns,
        prefixes=prefixes,
        parallel=parallel,
        arrivals=arrivals,
    )
    for outcome in found.outcomes:
        for loss in losses(found, outcome.option.id):
            assert loss.worth <= loss.dollars * Decimal("1.000001") or "Change to" in loss.fix
        cliffs(found, outcome.option.id)
        band = uncertainty_band(found, outcome.option.id)
        assert band.low <= outcome.saving <= band.high
    assert segments(found)
