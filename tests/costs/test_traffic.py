"""Hit rates: closed forms against seeded simulations, and the figures of the literature."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.costs.traffic import (
    DAY,
    HOUR,
    Day,
    Touches,
    break_even_hit_rate,
    day_hit_rate,
    keep_alive_horizon,
    longest_gap_that_pays,
    poisson_hit_rate,
    prefix_multiplier,
    reads_to_repay,
    replay_arrivals,
    schedule_hit_rate,
    storage_break_even,
    uneven_hit_rate,
    zipf_shares,
)

ARRIVALS = 200_000


def poisson_arrivals(rate, count=ARRIVALS, seed=7):
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


def within_three_errors(hits, expected, batches=200):
    """Three standard errors of the mean over batches: hits in a row depend on each other."""
    usable = len(hits) // batches * batches
    means = np.asarray(hits[:usable], dtype=float).reshape(batches, -1).mean(axis=1)
    error = means.std(ddof=1) / math.sqrt(batches)
    return abs(means.mean() - expected) <= 3 * error + 1e-12


@pytest.mark.parametrize("load", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("renewed", [True, False])
@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_poisson_formulas_against_simulation(load, renewed, delay):
    lifetime = 300.0
    rate, visible_after = load / lifetime, delay * lifetime
    simulated = replay_arrivals(
        poisson_arrivals(rate), lifetime, renewed=renewed, visible_after=visible_after
    )
    expected = poisson_hit_rate(rate, lifetime, renewed=renewed, visible_after=visible_after)
    assert within_three_errors(simulated.hit, expected)


def test_the_printed_figures_at_one_arrival_a_lifetime():
    assert poisson_hit_rate(1 / 300, 300) == pytest.approx(0.632, abs=5e-4)
    assert poisson_hit_rate(1 / 300, 300, renewed=False) == 0.5
    delayed = poisson_hit_rate(1 / 300, 300, visible_after=6)
    assert delayed == pytest.approx(1 - math.exp(-1) * 1.02)


def test_a_cron_every_seven_minutes_never_hits_five():
    assert schedule_hit_rate(420, 300) == 0.0
    assert schedule_hit_rate(300, 300) == 1.0
    assert schedule_hit_rate(240, 300) == 1.0


@given(
    gap=st.integers(1, 500),
    lifetime=st.integers(1, 2000),
    renewed=st.booleans(),
    delay=st.integers(0, 3),
)
def test_schedules_against_replay(gap, lifetime, renewed, delay):
    delay = min(delay, gap)
    served = lifetime // gap
    cycles = 20 if renewed else 20 * (served + 1)
    times = np.arange(cycles + 1, dtype=float) * gap
    replayed = replay_arrivals(times, lifetime, renewed=renewed, visible_after=delay)
    expected = schedule_hit_rate(gap, lifetime, renewed=renewed, visible_after=delay)
    steady = replayed.hit[1:] if renewed else replayed.hit[:-1]
    assert steady.mean() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("write", "read", "reads"),
    [(1.25, 0.1, 1), (2, 0.1, 2), (2, 0.025, 2), (2.5, 0.1, 2), (2.5, 0.05, 2), (1, 0.1, 0)],
)
def test_reads_that_repay_one_write(write, read, reads):
    assert reads_to_repay(write, read) == reads


@pytest.mark.parametrize(
    ("write", "read", "needed"),
    [
        (1.25, 0.1, 21.7),
        (2, 0.1, 52.6),
        (2.5, 0.1, 62.5),
        (1.25, 0.05, 20.8),
        (2, 0.05, 51.3),
        (2.5, 0.05, 61.2),
    ],
)
def test_hit_rates_below_which_caching_loses(write, read, needed):
    h = break_even_hit_rate(write, read)
    assert round(h * 100, 1) == needed
    assert prefix_multiplier(h, write, read) == pytest.approx(1.0)


def test_longest_gaps_that_still_pay():
    assert longest_gap_that_pays(300, 1.25, 0.1) / 60 == pytest.approx(20.4, abs=0.05)
    assert longest_gap_that_pays(3600, 2, 0.1) / 60 == pytest.approx(80.3, abs=0.05)
    assert longest_gap_that_pays(300, 1, 0.1) == math.inf


def test_the_long_lifetime_wins_below_a_gap_of_109_minutes():
    def multiplier(gap, lifetime, write):
        return prefix_multiplier(poisson_hit_rate(1 / gap, lifetime), write, 0.1)

    gap = 109.5 * 60
    assert multiplier(gap, 3600, 2) == pytest.approx(multiplier(gap, 300, 1.25), abs=5e-4)
    assert multiplier(gap * 0.9, 3600, 2) < multiplier(gap * 0.9, 300, 1.25)
    assert multiplier(gap * 1.1, 3600, 2) > multiplier(gap * 1.1, 300, 1.25)


def test_how_long_pings_are_worth_it():
    assert 55 < keep_alive_horizon(5, 1.25, 0.1) < 62
    assert keep_alive_horizon(5, 1.25, 0.05) / 60 == pytest.approx(2, abs=0.05)
    assert keep_alive_horizon(5, 1.25, 0.025) / 60 == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize(
    ("storage", "price", "reads"),
    [(0.5, 0.75, 0.74), (1.0, 0.3, 3.7), (4.5, 1.25, 4.0), (4.5, 2, 2.5)],
)
def test_reads_an_hour_that_pay_for_holding_a_cache(storage, price, reads):
    assert storage_break_even(storage, price, 0.1) == pytest.approx(reads, abs=0.006)


def test_uneven_prefixes_against_simulation():
    shares = zipf_shares(8)
    rng = np.random.default_rng(3)
    times = poisson_arrivals(8 / 300)
    prefixes = rng.choice(8, size=len(times), p=shares)
    simulated = replay_arrivals(times, 300, prefixes=prefixes.tolist())
    assert within_three_errors(simulated.hit, uneven_hit_rate(8 / 300, shares, 300))


def test_equal_shares_are_the_rate_over_their_number():
    assert uneven_hit_rate(4 / 300, [1, 1, 1, 1], 300) == pytest.approx(
        poisson_hit_rate(1 / 300, 300)
    )


def days_of_arrivals(rate, day, days, seed):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rate * day.open_seconds, days)
    times = [
        np.sort(rng.uniform(0, day.open_seconds, n)) + index * DAY for index, n in enumerate(counts)
    ]
    return np.concatenate(times)


@pytest.mark.parametrize("hours", [8, 16, 24])
@pytest.mark.parametrize(
    ("per_hour", "lifetime"), [(2, 300), (2, 3600), (0.3, 12 * HOUR), (0.05, DAY)]
)
def test_cold_mornings_against_simulated_days(hours, per_hour, lifetime):
    day, rate = Day(hours * HOUR), per_hour / HOUR
    days = int(40_000 / (rate * day.open_seconds)) + 400
    times = days_of_arrivals(rate, day, days, seed=11)
    simulated = replay_arrivals(times, lifetime).hit[50:]
    assert within_three_errors(simulated, day_hit_rate(rate, lifetime, day))


@pytest.mark.parametrize(("per_hour", "lifetime"), [(2, 300), (12, 1800), (1, HOUR), (6, 2 * HOUR)])
def test_cold_mornings_without_renewal_against_simulated_days(per_hour, lifetime):
    day, rate = Day(10 * HOUR), per_hour / HOUR
    times = days_of_arrivals(rate, day, int(120_000 / (rate * day.open_seconds)), seed=13)
    simulated = replay_arrivals(times, lifetime, renewed=False).hit
    expected = day_hit_rate(rate, lifetime, day, renewed=False)
    assert within_three_errors(simulated, expected)


@pytest.mark.parametrize("per_hour", [30, 600, 20_000, 90_000])
def test_heavy_traffic_writes_once_each_morning_and_until_it_can_be_read(per_hour):
    """A renewed entry outlives no night: 1 + λ·t0 misses a day, whatever the lifetime."""
    rate, delay, day = per_hour / HOUR, 2.0, Day(8 * HOUR)
    for lifetime in (1800, HOUR, 12 * HOUR):
        misses = (1 - day_hit_rate(rate, lifetime, day, visible_after=delay)) * rate * 8 * HOUR
        gone = rate * 8 * HOUR * math.exp(-rate * lifetime) * (1 + rate * delay)
        assert misses == pytest.approx(1 + rate * delay, rel=1e-5, abs=gone + 1e-3)


@pytest.mark.parametrize("delay", [0.0, 20.0])
@pytest.mark.parametrize(("gap", "random"), [(60, True), (900, True), (30, False)])
def test_conversations_keep_a_prefix_warm_as_simulated(gap, random, delay):
    """Poisson starts, each touching the prefix five more times: the first calls' hit rate."""
    lifetime, starts, touches = 300.0, 40_000, 5
    rate = 1 / 1500
    rng = np.random.default_rng(2)
    begins = np.cumsum(rng.exponential(1 / rate, starts))
    gaps = rng.exponential(gap, (starts, touches)) if random else np.full((starts, touches), gap)
    times = np.concatenate([begins[:, None], begins[:, None] + np.cumsum(gaps, axis=1)], axis=1)
    order = np.argsort(times, axis=None)
    is_first = np.zeros(times.shape, dtype=bool)
    is_first[:, 0] = True
    hit = replay_arrivals(times.ravel()[order], lifetime, visible_after=delay).hit
    firsts = hit[is_first.ravel()[order]]
    expected = day_hit_rate(
        rate, lifetime, Day(DAY), touches=[Touches(gap, touches, random)], visible_after=delay
    )
    assert within_three_errors(firsts, expected)


def test_unordered_or_broken_times_are_refused():
    with pytest.raises(ValueError, match="in order"):
        replay_arrivals([2, 1], 300)
    with pytest.raises(ValueError, match="finite"):
        replay_arrivals([1, math.nan], 300)
    with pytest.raises(ValueError, match="one prefix"):
        replay_arrivals([1, 2], 300, prefixes=["a"])


@given(
    rate=st.floats(1e-9, 10),
    lifetime=st.floats(1, 1e5),
    renewed=st.booleans(),
    delay=st.floats(0, 100),
)
def test_hit_rates_are_shares(rate, lifetime, renewed, delay):
    h = poisson_hit_rate(rate, lifetime, renewed=renewed, visible_after=delay)
    assert 0 <= h <= 1
    assert h <= poisson_hit_rate(rate, lifetime * 2, renewed=renewed, visible_after=delay) + 1e-9
    cold = day_hit_rate(rate, lifetime, Day(8 * HOUR), renewed=renewed, visible_after=delay)
    assert 0 <= cold <= 1
