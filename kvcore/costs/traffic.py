"""From traffic to hit rates: closed forms, a working day with cold mornings, and replay.

Notation: τ (`lifetime`) seconds an entry lives, λ arrivals per second *for one prefix*, t0
(`visible_after`) seconds until a write can be read. Formulas: an entry renewed on every hit is
alive iff the gap since the last touch is at most τ; the rest follows from the Poisson process.
Each is checked against a seeded simulation in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

HOUR = 3600.0
DAY = 24 * HOUR


def poisson_hit_rate(
    rate: float, lifetime: float, *, renewed: bool = True, visible_after: float = 0.0
) -> float:
    """Share of Poisson arrivals that hit.

    Renewed: 1 − e^(−λτ)(1 + λt0): a miss opens a run of gaps ≤ τ, and those who come within t0
    of it miss too. Not renewed: λ(τ − t0)/(1 + λτ): one miss, then τ seconds of arrivals.
    """
    delay = min(visible_after, lifetime)
    if rate <= 0:
        return 0.0
    if renewed:
        return max(0.0, 1 - math.exp(-rate * lifetime) * (1 + rate * delay))
    return rate * (lifetime - delay) / (1 + rate * lifetime)


def schedule_hit_rate(
    gap: float, lifetime: float, *, renewed: bool = True, visible_after: float = 0.0
) -> float:
    """Share of arrivals every `gap` seconds that hit: all or none where a hit renews.

    Not renewed: one write serves the floor(τ/gap) arrivals after it, less those within t0.
    """
    served = math.floor(lifetime / gap + 1e-12)
    if renewed:
        return 1.0 if served >= 1 else 0.0
    too_early = max(0, math.ceil(visible_after / gap) - 1)
    return max(0, served - too_early) / (served + 1)


def break_even_hit_rate(write: float, read: float) -> float:
    """The hit rate below which caching loses: (w − 1)/(w − r); prices over fresh input."""
    return (write - 1) / (write - read) if write > read else 0.0


def reads_to_repay(write: float, read: float) -> int:
    """How many reads repay one write: the least k with k(1 − r) ≥ w − 1, at least 0."""
    if read >= 1:
        raise ValueError("A read that costs as much as fresh input never repays a write.")
    return max(0, math.ceil((write - 1) / (1 - read) - 1e-9))


def prefix_multiplier(hit_rate: float, write: float, read: float) -> float:
    """What a prefix token costs over fresh input: (1 − h)w + h·r."""
    return (1 - hit_rate) * write + hit_rate * read


def longest_gap_that_pays(lifetime: float, write: float, read: float) -> float:
    """The longest mean gap (Poisson, renewed) at which caching still pays: −τ/ln(1 − h*)."""
    needed = break_even_hit_rate(write, read)
    return math.inf if needed <= 0 else -lifetime / math.log1p(-needed)


def keep_alive_horizon(interval: float, write: float, read: float) -> float:
    """How long an idle spell may last for pings every `interval` seconds to be worth it.

    Each ping reads the prefix (r); a cold start pays w − r more than a hit: (w − r)/r intervals.
    """
    return (write - read) / read * interval


def storage_break_even(storage: float, price: float, read: float) -> float:
    """Reads an hour above which a cache paid by the hour pays: s/(p(1 − r)), s and p in $/M."""
    return storage / (price * (1 - read))


def uneven_hit_rate(
    rate: float,
    shares: Sequence[float],
    lifetime: float,
    *,
    renewed: bool = True,
    visible_after: float = 0.0,
) -> float:
    """Hit rate over prefixes with unequal shares of a Poisson stream: Σ pᵢ·h(λpᵢ)."""
    total = sum(shares)
    return sum(
        share
        / total
        * poisson_hit_rate(
            rate * share / total, lifetime, renewed=renewed, visible_after=visible_after
        )
        for share in shares
    )


def zipf_shares(count: int, exponent: float = 1.0) -> tuple[float, ...]:
    """Shares of `count` prefixes where the k-th most used has weight k^−exponent."""
    weights = np.arange(1, count + 1, dtype=float) ** -exponent
    return tuple(weights / weights.sum())


@dataclass(frozen=True)
class Hits:
    """What happened to every arrival: `hit[i]` is whether arrival i read the prefix."""

    hit: np.ndarray

    @property
    def rate(self) -> float:
        return float(self.hit.mean()) if len(self.hit) else 0.0


def replay_arrivals(
    seconds: Sequence[float] | np.ndarray,
    lifetime: float,
    *,
    renewed: bool = True,
    visible_after: float = 0.0,
    prefixes: Sequence[Hashable] | None = None,
) -> Hits:
    """Replay recorded arrivals, in order of time, against one lifetime.

    `prefixes` names the prefix of each arrival (all one prefix if None). An arrival hits when
    some earlier write is visible and alive; every miss writes. Raises ValueError on unordered or
    non-finite times.
    """
    times = np.asarray(seconds, dtype=float)
    if times.ndim != 1 or not np.isfinite(times).all():
        raise ValueError("Arrival times must be a list of finite numbers of seconds.")
    if (np.diff(times) < 0).any():
        raise ValueError("Arrival times must be in order.")
    keys = prefixes if prefixes is not None else [0] * len(times)
    if len(keys) != len(times):
        raise ValueError("There must be one prefix for each arrival.")
    hit = np.zeros(len(times), dtype=bool)
    ready: dict[Hashable, float] = {}
    expires: dict[Hashable, float] = {}
    for index, (now, key) in enumerate(zip(times.tolist(), keys, strict=True)):
        alive = expires.get(key, -math.inf) >= now
        hit[index] = alive and ready[key] <= now
        if not alive:
            ready[key] = now + visible_after
        if renewed or not alive:
            expires[key] = now + lifetime
    return Hits(hit)


@dataclass(frozen=True)
class Touches:
    """How one conversation touches a shared prefix after its first call: gaps in seconds.

    `count` gaps of which each is exponential with mean `mean` if `random`, else exactly that.
    """

    mean: float
    count: float
    random: bool = False

    def covered(self, window: np.ndarray | float) -> np.ndarray | float:
        """E[Σ min(gap, window)]: how much longer than one window the touches keep an entry."""
        if self.count <= 0 or self.mean <= 0:
            return np.zeros_like(np.asarray(window, dtype=float))
        if not self.random:
            return self.count * np.minimum(self.mean, window)
        return self.count * self.mean * -np.expm1(-np.asarray(window, dtype=float) / self.mean)

    def beyond(self, window: np.ndarray | float) -> np.ndarray | float:
        """How many of the gaps are longer than the window: those touches may write anew."""
        if self.count <= 0 or self.mean <= 0:
            return np.zeros_like(np.asarray(window, dtype=float))
        if not self.random:
            return self.count * (self.mean > np.asarray(window, dtype=float))
        return self.count * np.exp(-np.asarray(window, dtype=float) / self.mean)


@dataclass(frozen=True)
class Day:
    """Working hours: arrivals come during `open_seconds` of each day and not otherwise."""

    open_seconds: float = 8 * HOUR

    def open_in_window(self, since_opening: np.ndarray, lifetime: float) -> np.ndarray:
        """Open seconds within the `lifetime` before a moment `since_opening` into the day."""
        end = since_opening
        start = end - lifetime
        whole_days = np.floor(start / DAY)
        opened_before = whole_days * self.open_seconds + np.minimum(
            start - whole_days * DAY, self.open_seconds
        )
        return end - opened_before


def day_hit_rate(
    rate: float,
    lifetime: float,
    day: Day,
    *,
    touches: Sequence[Touches] = (),
    renewed: bool = True,
    visible_after: float = 0.0,
) -> float:
    """Hit rate of Poisson arrivals over a working day, the cold morning included.

    Renewed: an arrival misses iff nothing touched the prefix within τ before it. Conversations
    that start at rate λ and touch again later leave no touch in a window w with probability
    exp(−λ(w + Σ E min(gap, w))), w being the open part of the window: exact for single requests,
    and for conversations away from the day's edges. Who comes within t0 of a write misses too:
    (1 + λt0·writers), writers being the first call and the touches after longer gaps. Not
    renewed: the expected writes of a day that starts cold, where the night outlives τ.
    """
    rates = np.array([rate])
    return float(
        day_hit_rates(
            rates, lifetime, day, touches=touches, renewed=renewed, visible_after=visible_after
        )[0]
    )


def day_hit_rates(
    rates: np.ndarray,
    lifetime: float,
    day: Day,
    *,
    touches: Sequence[Touches] = (),
    renewed: bool = True,
    visible_after: float = 0.0,
) -> np.ndarray:
    """`day_hit_rate` for many rates at once."""
    if day.open_seconds <= 0:
        return np.zeros_like(rates)
    if not renewed:
        touched = 1 + sum(t.count for t in touches)
        return np.array(
            [_not_renewed(float(rate), touched, lifetime, day, visible_after) for rate in rates]
        )
    window = day.open_in_window(_open_moments(day, lifetime), lifetime)
    covered = window + sum(t.covered(window) for t in touches)
    writers = 1 + sum(t.beyond(window) for t in touches)
    delay = min(visible_after, lifetime)
    miss = np.exp(-rates[:, None] * covered) * (1 + rates[:, None] * writers * delay)
    weights = _weights(day, lifetime)
    hit = 1 - miss @ (weights / weights.sum())
    return np.where(rates > 0, np.maximum(hit, 0.0), 0.0)


def _not_renewed(
    rate: float, touched: float, lifetime: float, day: Day, visible_after: float
) -> float:
    """One write, then τ of hits, then the next arrival writes: from a cold start every morning
    where the night outlives the entry, in the steady state where it does not."""
    if rate <= 0:
        return 0.0
    pace = rate * touched
    if DAY - day.open_seconds < lifetime or day.open_seconds / lifetime > MANY_CYCLES:
        return poisson_hit_rate(pace, lifetime, renewed=False, visible_after=visible_after)
    delay = min(visible_after, lifetime)
    misses = _writes_a_day(pace, lifetime, day.open_seconds) * (1 + pace * delay)
    return max(0.0, 1 - misses / (pace * day.open_seconds))


MANY_CYCLES = 1_000
"""Lifetimes in a working day above which its cold start no longer shows."""


@lru_cache(maxsize=4096)
def _writes_a_day(rate: float, lifetime: float, open_seconds: float) -> float:
    """Expected writes without renewal: Σ P(n-th write before closing).

    The n-th write comes after (n−1)τ and n exponential waits: a gamma time, whose distribution
    is the tail of a Poisson count.
    """
    waits = rate * (open_seconds - lifetime * np.arange(math.ceil(open_seconds / lifetime)))
    earlier = np.arange(len(waits))
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(earlier[1:], 1)))])
    logs = earlier * np.log(waits)[:, None] - waits[:, None] - log_factorial
    fewer = np.where(earlier <= earlier[:, None], np.exp(logs), 0.0).sum(axis=1)
    return float((1 - fewer).sum())


_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)


def _pieces(day: Day, lifetime: float) -> list[tuple[float, float]]:
    """The open hours cut where the window's open part changes its slope, and finely after the
    opening, where a cold cache warms within moments under heavy traffic."""
    night = DAY - day.open_seconds
    reach = lifetime % DAY
    cuts = {0.0, day.open_seconds}
    warming = [min(lifetime, day.open_seconds) * 10.0**-k for k in range(1, 8)]
    cuts |= {c for c in (reach, reach - night, *warming) if 0 < c < day.open_seconds}
    edges = sorted(cuts)
    return list(zip(edges, edges[1:], strict=False))


@lru_cache(maxsize=256)
def _open_moments(day: Day, lifetime: float) -> np.ndarray:
    return np.concatenate([(a + b) / 2 + (b - a) / 2 * _NODES for a, b in _pieces(day, lifetime)])


@lru_cache(maxsize=256)
def _weights(day: Day, lifetime: float) -> np.ndarray:
    return np.concatenate([(b - a) / 2 * _NODE_WEIGHTS for a, b in _pieces(day, lifetime)])
