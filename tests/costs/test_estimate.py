"""The estimate against closed forms, hand sums and a simulated month."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.costs import estimate
from kvcore.costs.estimate import (
    ModelChoice,
    bill_without,
    estimate_model,
    next_quarter,
    outcome_of,
    repriced,
)
from kvcore.costs.expectation import expected_tokens
from kvcore.costs.prices import Contract, rates
from kvcore.costs.rules import rules_for
from kvcore.costs.traffic import poisson_hit_rate, replay_arrivals
from kvcore.costs.workload import COMPACTION, Event, Workload, WorkloadError, conversation

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
ROUND_THE_CLOCK = {"hours_per_day": 24, "days_per_month": 30}


def one(model, provider="anthropic", **answers):
    found = estimate([(model, provider)], at=NOW, **answers)
    assert found.unpriced == ()
    return found.models[0]


# Turns; uncached, written and read tokens; relative cost at 5 min, at 1 h, at a read of 0.05, and
# with only the system text cached. System 10,000, user 200, answer 500, no misses.
TABLE = [
    (1, 10_200, 10_200, 0, 1.25, 2.00, 1.25, 1.245),
    (2, 21_100, 10_900, 10_200, 0.694, 1.082, 0.670, 0.692),
    (5, 58_000, 13_000, 45_000, 0.358, 0.526, 0.319, 0.422),
    (20, 337_000, 23_500, 313_500, 0.180, 0.232, 0.134, 0.500),
    (50, 1_367_500, 44_500, 1_323_000, 0.137, 0.162, 0.089, 0.679),
]


@pytest.mark.parametrize("row", TABLE, ids=[f"{row[0]} turns" for row in TABLE])
def test_the_multi_turn_table(row):
    turns, uncached, written, read, at_5m, at_1h, cheap_read, system_only = row
    workload = Workload(
        prefix_tokens=10_000,
        changing_tokens=200,
        answer_tokens=500,
        turns=turns,
        seconds_between_turns=0,
    )
    rules = rules_for(rates("claude-opus-5", "anthropic", NOW))
    option = rules.option("5m")
    whole = expected_tokens(workload, rules, option, "conversation", prefix_hit=0)
    system = expected_tokens(workload, rules, option, "prefix", prefix_hit=0)

    def relative(expected, write, read_price):
        cost = expected.fresh + write * expected.cache_write + read_price * expected.cache_read
        return round(float(cost.sum() / expected.prompt.sum()), 3)

    assert whole.prompt.sum() == uncached
    assert whole.cache_write.sum() == written
    assert whole.cache_read.sum() == read
    assert relative(whole, 1.25, 0.1) == at_5m
    assert relative(whole, 2, 0.1) == at_1h
    assert relative(whole, 1.25, 0.05) == cheap_read
    assert relative(system, 1.25, 0.1) == system_only


def test_the_table_in_dollars():
    """Twenty turns on Opus 5 ($5 input): 337,000 uncached tokens, 0.180 of them with 5 minutes."""
    rules = rules_for(rates("claude-opus-5", "anthropic", NOW))
    workload = Workload(
        prefix_tokens=10_000,
        changing_tokens=200,
        answer_tokens=0,
        turns=20,
        seconds_between_turns=0,
        requests_per_hour=20,
        hours_per_day=1,
        days_per_month=1,
        prefixes=10**9,
    )
    tokens = 20 * 10_000 + 20 * 200 + 200 * 190
    found = rates("claude-opus-5", "anthropic", NOW)
    assert bill_without(found, workload).total == tokens * Decimal(5) / 1_000_000
    outcome = outcome_of(found, rules, workload, rules.option("5m"), "conversation")
    written = 10_000 + 20 * 200
    expected = (written * Decimal("6.25") + (tokens - written) * Decimal("0.5")) / 1_000_000
    assert outcome.bill.total == pytest.approx(expected, rel=Decimal("1e-6"))


def test_a_month_by_hand():
    """26,400 requests of 6,400 + 500 tokens on Haiku 4.5 at $1 and $5."""
    model = one("claude-haiku-4-5")
    assert model.without.fresh == Decimal("168.96")
    assert model.without.output == Decimal("66")
    assert model.without.total == Decimal("234.96")
    assert model.untouchable == Decimal("66") + Decimal("10.56")
    hit = model.best.prefix_hit_rate
    prefix = 26_400 * 6_000 / 1e6
    saving = prefix * (1 - ((1 - hit) * 1.25 + hit * 0.1))
    assert float(model.saving) == pytest.approx(saving)


def test_a_simulated_month_costs_what_the_estimate_says():
    """Poisson arrivals round the clock, each priced by what its replay says happened to it."""
    lifetime, rate = 300.0, 6 / 3600
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.exponential(1 / rate, 100_000))
    hit = replay_arrivals(times, lifetime, visible_after=2.0).hit
    per_request = np.where(hit, 6_000 * 0.1, 6_000 * 1.25) + 400 + 500 * 5
    model = one("claude-haiku-4-5", requests_per_hour=6, **ROUND_THE_CLOCK)
    estimated = float(model.outcome("5m").bill.total) / model.workload.requests_per_month * 1e6
    batches = per_request.reshape(200, -1).mean(axis=1)
    error = batches.std(ddof=1) / np.sqrt(200)
    assert abs(per_request.mean() - estimated) <= 3 * error


def test_a_simulated_growing_chat_costs_what_the_estimate_says():
    """Conversations with exponential pauses; whatever survived the pause is read."""
    workload = Workload(
        prefix_tokens=5_000,
        changing_tokens=300,
        answer_tokens=400,
        turns=6,
        seconds_between_turns=240,
        prefixes=10**9,
    )
    model = estimate_model(ModelChoice("claude-opus-5", "anthropic"), workload, at=NOW)
    rng = np.random.default_rng(2)
    count = 20_000
    pauses = rng.exponential(240, (count, 6))
    prompts = conversation(workload).prompt.astype(float)
    before = np.concatenate([[0], prompts[:-1]])
    alive = pauses <= 300
    alive[:, 0] = False
    read = np.where(alive, before, 0)
    cost = read * 0.5 + (prompts - read) * 6.25 + 400 * 25
    totals = cost.sum(axis=1)
    outcome = outcome_of(
        model.rates, model.rules, workload, model.rules.option("5m"), "conversation"
    )
    estimated = float(outcome.bill.total) / workload.conversations_per_month * 1e6
    assert abs(totals.mean() - estimated) <= 3 * totals.std(ddof=1) / np.sqrt(count)


@pytest.mark.parametrize(("pause", "long_wins"), [(60, False), (66, False), (72, True), (90, True)])
def test_when_an_hour_beats_five_minutes_in_a_growing_chat(pause, long_wins):
    """1 h wins if P(gap > 5 min) > (0.75·Δ/L + 1.9·P(gap > 1 h))/1.15: above 1.3 % here."""
    added = 1_000
    workload = Workload(
        prefix_tokens=50_000,
        changing_tokens=500,
        answer_tokens=500,
        turns=2,
        seconds_between_turns=pause,
    )
    rules = rules_for(rates("claude-opus-4-5", "anthropic", NOW))

    def second_turn(option_id, write):
        option = rules.option(option_id)
        expected = expected_tokens(workload, rules, option, "conversation", prefix_hit=0)
        assert expected.prompt[1] == 50_500 + added
        return expected.cache_read[1] * 0.1 + expected.cache_write[1] * write

    assert bool(second_turn("1h", 2) < second_turn("5m", 1.25)) is long_wins


def test_the_sentence_carries_a_sign():
    busy = one("claude-haiku-4-5")
    assert busy.sentence.startswith("You would save $142.")
    assert "% of the whole bill" in busy.sentence
    quiet = one("claude-haiku-4-5", requests_per_hour=0.2)
    assert quiet.saving < 0
    assert quiet.sentence.startswith("Caching would cost you $")
    short = one("claude-haiku-4-5", prefix_tokens=3_000)
    assert short.sentence.startswith("Caching would change nothing")
    assert "4,096" in short.sentence


def test_every_lifetime_is_compared_and_the_cheapest_comes_first():
    model = one("claude-opus-5", requests_per_hour=2)
    totals = [outcome.bill.total for outcome in model.outcomes]
    assert totals == sorted(totals)
    assert {o.option.id for o in model.outcomes} == {"5m", "1h"}
    assert model.best.option.id == "1h"
    assert one("claude-opus-5", requests_per_hour=500).best.option.id == "5m"


def test_different_prefixes_share_the_traffic():
    """K users with their own text each see λ/K."""
    hit = one("claude-opus-5", prefixes=40, **ROUND_THE_CLOCK).outcome("5m").prefix_hit_rate
    assert hit == pytest.approx(poisson_hit_rate(3 / 3600, 300, visible_after=2.0))


def test_parallel_calls_miss_together():
    together = one("claude-opus-5", parallel=30, **ROUND_THE_CLOCK).outcome("5m")
    assert together.prefix_hit_rate == pytest.approx(
        poisson_hit_rate(4 / 3600, 300, visible_after=2.0)
    )
    one_first = one("claude-opus-5", parallel=30, send_one_first=True, **ROUND_THE_CLOCK)
    missed = 1 - one_first.outcome("5m").prefix_hit_rate
    assert missed == pytest.approx((1 - together.prefix_hit_rate) / 30)


def test_the_items_of_a_batch_never_hit():
    model = one("claude-sonnet-4-5", batch=True)
    assert model.outcome("5m").prefix_hit_rate == 0
    assert model.saving < 0
    assert model.without.total == one("claude-sonnet-4-5").without.total / 2


def test_a_timestamp_at_the_top_costs_a_quarter_more_where_writes_cost():
    kept = {"changing_tokens": 0, "answer_tokens": 0, "unstable_top": True}
    model = one("claude-opus-5", **kept)
    assert model.outcome("5m").bill.total == model.without.total * Decimal("1.25")
    free = one("gpt-4o", "openai", **kept)
    assert free.best.bill.total == free.without.total
    assert "differs every time" in free.sentence


def test_a_fixed_schedule_hits_always_or_never():
    every_seven_minutes = 60 / 7
    kept = {"arrivals": "schedule", **ROUND_THE_CLOCK}
    assert (
        one("claude-opus-5", requests_per_hour=every_seven_minutes, **kept)
        .outcome("5m")
        .prefix_hit_rate
        == 0
    )
    assert one("claude-opus-5", requests_per_hour=15, **kept).outcome("5m").prefix_hit_rate == 1
    day = one("claude-opus-5", requests_per_hour=15, arrivals="schedule", hours_per_day=10)
    assert day.outcome("5m").prefix_hit_rate == pytest.approx(149 / 150)


def test_recorded_arrivals_are_replayed():
    times = (0.0, 100.0, 350.0, 700.0, 710.0, 5000.0)
    model = one("claude-opus-5", arrivals="recorded", recorded=times)
    assert model.outcome("5m").prefix_hit_rate == pytest.approx(3 / 6)
    assert model.outcome("1h").prefix_hit_rate == pytest.approx(4 / 6)


def test_old_openai_models_cache_in_steps_of_128():
    model = one("gpt-4o", "openai", prefix_tokens=1_200, requests_per_hour=3600, **ROUND_THE_CLOCK)
    assert model.outcome("24h").read_share == pytest.approx(1152 / 1600, rel=1e-3)
    below = one("gpt-4o", "openai", prefix_tokens=1_023, requests_per_hour=3600)
    assert below.saving == 0


def test_holding_a_gemini_cache_costs_by_the_hour():
    """6,000 tokens held 220 hours at $0.50 per million, and created on 22 mornings at $0.75."""
    bill = one("gemini-3.8-flash", "google").outcome("explicit").bill
    assert bill.storage == Decimal("0.66")
    assert bill.cache_write == Decimal("0.099")
    assert bill.cache_read == Decimal("11.88")


def test_the_long_context_price_goes_by_each_calls_whole_prompt():
    model = one("claude-haiku-5-5", prefix_tokens=99_000, changing_tokens=1_001, answer_tokens=0)
    assert model.without.total == Decimal(26_400 * 100_001) * Decimal("0.5") / 1_000_000
    shorter = one("claude-haiku-5-5", prefix_tokens=99_000, changing_tokens=1_000, answer_tokens=0)
    assert shorter.without.total == Decimal(26_400 * 100_000) * Decimal("0.1") / 1_000_000


def test_events_break_what_they_break():
    rules = rules_for(rates("claude-opus-5", "anthropic", NOW))
    base = {
        "prefix_tokens": 10_000,
        "changing_tokens": 200,
        "answer_tokens": 500,
        "turns": 6,
        "seconds_between_turns": 0,
    }

    def tokens(*events):
        workload = Workload(**base, events=events)
        return expected_tokens(workload, rules, rules.option("5m"), "conversation", prefix_hit=0)

    plain = tokens()
    compacted = tokens(Event(4, COMPACTION, summary_tokens=300))
    assert compacted.prompt[3] == 10_000 + 300 + 200
    assert (compacted.cache_read[3], compacted.cache_write[3]) == (10_000, 500)
    switched = tokens(Event(4, "model switch"))
    assert (switched.cache_read[3], switched.cache_write[3]) == (0, switched.prompt[3])
    assert (switched.prompt == plain.prompt).all()
    assert switched.cache_read[4] == plain.cache_read[4]


def test_models_are_compared_and_what_cannot_be_priced_is_listed():
    found = estimate(["claude-haiku-4-5", ("gpt-6.1-terra", "openai"), "no-such-model"], at=NOW)
    assert [m.model for m in found.models] == sorted(
        (m.model for m in found.models),
        key=lambda name: next(m.cheapest_total for m in found.models if m.model == name),
    )
    assert found.unpriced[0][0] == "no-such-model"
    assert "not in the price list" in found.unpriced[0][1]
    assert estimate(["no-such-model"], at=NOW).cheapest is None


def test_a_contract_price_is_used():
    contract = Contract.parse(fresh="2", output="10", cache_read="0.1", cache_write_short="2.5")
    choice = ModelChoice("claude-opus-5", "anthropic", contract=contract)
    model = estimate([choice], at=NOW).models[0]
    assert model.without.total == 26_400 * (6_400 * Decimal(2) + 500 * Decimal(10)) / 1_000_000
    assert [o.option.id for o in model.outcomes] == ["5m"]
    assert [option.id for option, _ in model.rules.unpriced] == ["1h"]


def test_the_same_traffic_next_quarter():
    choice = ModelChoice("gemini-3.8-flash", "google")
    model = estimate_model(choice, Workload(), at=NOW)
    later = repriced(model, choice, next_quarter(NOW.date()))
    assert later.day == date(2027, 1, 1)
    assert later.without.total == model.without.total * 2
    assert later.reason == "The list price changes on 2027-01-01."
    steady = ModelChoice("claude-opus-5", "anthropic")
    same = repriced(estimate_model(steady, Workload(), at=NOW), steady, date(2027, 1, 1))
    assert (same.total_change, same.reason) == (0, "")


@pytest.mark.parametrize(
    ("day", "first"),
    [
        (date(2026, 11, 29), date(2027, 1, 1)),
        (date(2026, 1, 1), date(2026, 4, 1)),
        (date(2026, 6, 30), date(2026, 7, 1)),
        (date(2026, 7, 1), date(2026, 10, 1)),
    ],
)
def test_next_quarter(day, first):
    assert next_quarter(day) == first


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"requests_per_hour": 0}, "more than 0"),
        ({"requests_per_hour": float("nan")}, "finite"),
        ({"hours_per_day": 25}, "at most 24"),
        ({"days_per_month": 0}, "at most 31"),
        ({"prefixes": 0}, "Prefixes must be at least 1"),
        ({"turns": 3000}, "2,000"),
        ({"prefix_tokens": -1}, "Prefix tokens must be at least 0"),
        ({"prefix_tokens": 0, "changing_tokens": 0}, "empty"),
        ({"arrivals": "sometimes"}, "one of"),
        ({"arrivals": "recorded"}, "two times"),
        ({"events": (Event(2, COMPACTION),)}, "not before call 2"),
        ({"turns": 3, "events": (Event(2, "coffee"),)}, "An event is one of"),
    ],
)
def test_answers_that_cannot_be_are_refused_in_a_sentence(answers, message):
    with pytest.raises(WorkloadError, match=message) as caught:
        Workload(**answers)
    assert str(caught.value).endswith(".")


workloads = st.builds(
    Workload,
    prefix_tokens=st.integers(1, 300_000),
    changing_tokens=st.integers(0, 20_000),
    answer_tokens=st.integers(0, 20_000),
    requests_per_hour=st.floats(0.01, 1e5),
    hours_per_day=st.floats(0.1, 24),
    days_per_month=st.floats(0.1, 31),
    prefixes=st.integers(1, 10**6),
    uneven=st.booleans(),
    turns=st.integers(1, 8),
    seconds_between_turns=st.floats(0, 1e5),
    calls_per_turn=st.integers(1, 4),
    seconds_between_calls=st.floats(0, 1e5),
    parallel=st.integers(1, 1000),
    arrivals=st.sampled_from(["poisson", "schedule"]),
    unstable_top=st.booleans(),
    send_one_first=st.booleans(),
    batch=st.booleans(),
)


@given(
    workload=workloads,
    model=st.sampled_from(
        [
            ("claude-haiku-5-5", "anthropic"),
            ("gpt-4o", "openai"),
            ("gpt-6.1-terra", "openai"),
            ("gemini-3.8-flash", "google"),
            ("kimi-k3", "moonshotai"),
        ]
    ),
)
@settings(max_examples=40)
def test_any_workload_gives_bills_that_add_up(workload, model):
    found = estimate([model], workload, at=NOW).models[0]
    assert found.sentence.endswith(".")
    assert 0 <= found.untouchable <= found.without.total
    for outcome in found.outcomes:
        assert outcome.saving == found.without.total - outcome.bill.total
        assert min(vars(outcome.bill).values()) >= 0
        assert outcome.bill.output == found.without.output
        assert 0 <= outcome.prefix_hit_rate <= 1
        assert 0 <= outcome.read_share <= 1
    assert found.cheapest_total <= found.without.total


@pytest.mark.parametrize("contract", [{"fresh": "0", "output": "0"}, {"fresh": "0", "output": "5"}])
def test_a_contract_that_charges_nothing_for_input_saves_nothing(contract):
    choice = ModelChoice("claude-opus-5", "anthropic", contract=Contract.parse(**contract))
    model = estimate([choice], at=NOW).models[0]
    assert model.saving == 0
    assert model.sentence.startswith(("Caching would change nothing", "claude-opus-5 charges"))


def test_notes_say_what_the_numbers_leave_open():
    busy = one("gpt-4o", "openai", requests_per_hour=3600)
    assert any("60 requests a minute" in note for note in busy.notes)
    hourly = one("deepseek-v4-pro", "deepseek")
    assert any("depends on the hour" in note and "12:00 UTC" in note for note in hourly.notes)
    assert one("claude-opus-5").notes == ()
