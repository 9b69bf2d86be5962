"""How the answer moves: with requests per hour, with prefix length, from turn to turn.

Frames for the pictures, the break-evens, and the segments in which one option is cheapest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from kvcore.costs.estimate import (
    ModelEstimate,
    Outcome,
    Price,
    bill_of,
    stored,
    write_price,
)
from kvcore.costs.expectation import (
    expected_tokens,
    prefix_hit_rate,
    prefix_hit_rates,
    read_and_written,
    visibility,
)
from kvcore.costs.prices import Rates
from kvcore.costs.rules import CacheOption
from kvcore.costs.workload import conversations

NO_CACHING = "no caching"
LOWEST_RATE, HIGHEST_RATE = 0.01, 100_000.0
STEPS = np.linspace(0, 1, 34)

CLASS_WORDS = {
    "fresh": "fresh input",
    "cache_read": "read from the cache",
    "cache_write": "written to the cache",
    "storage": "holding the cache",
    "output": "answers",
}


@dataclass(frozen=True)
class SavingCurve:
    """Dollars saved a month by one option at any request rate.

    The bill of a conversation is linear in the chance that its stable prefix is alive, so two
    points (never, always) and the hit rate give every rate.
    """

    model: ModelEstimate
    option: CacheOption
    never: tuple[float, ...]
    always: tuple[float, ...]
    fixed: float

    def __call__(self, requests_per_hour: float) -> float:
        return float(self.at(np.array([requests_per_hour]))[0])

    def at(self, requests_per_hour: np.ndarray) -> np.ndarray:
        """The saving at each of these rates."""
        workload = self.model.workload
        visible_after = visibility(workload, self.model.rules)
        hits = prefix_hit_rates(workload, self.option, visible_after, requests_per_hour)
        lines = [a + (b - a) * hits for a, b in zip(self.never, self.always, strict=True)]
        per_rate = workload.conversations_per_month / workload.requests_per_hour
        return np.max(lines, axis=0) * per_rate * requests_per_hour - self.fixed


def saving_curves(model: ModelEstimate) -> tuple[SavingCurve, ...]:
    """The curve of every option, the cheapest option first."""
    return tuple(saving_curve(model, outcome.option) for outcome in model.outcomes)


def saving_curve(model: ModelEstimate, option: CacheOption) -> SavingCurve:
    """The curve of one option, over all the placements it allows."""
    conversations = model.workload.conversations_per_month
    without = float(model.without.total)

    def per_conversation(placement: str, hit: float) -> tuple[float, float]:
        expected = expected_tokens(model.workload, model.rules, option, placement, prefix_hit=hit)
        output = model.without.output
        bill = bill_of(model.rates, model.rules, model.workload, option, expected, output)
        held = float(bill.storage + (bill.cache_write if option.stored else 0))
        return (without - float(bill.total) + held) / conversations, held

    never = [per_conversation(placement, 0.0) for placement in option.placement]
    always = [per_conversation(placement, 1.0)[0] for placement in option.placement]
    fixed = never[0][1] if option.stored else 0.0
    return SavingCurve(model, option, tuple(n[0] for n in never), tuple(always), fixed)


@cache
def rate_grid(points: int = 71) -> np.ndarray:
    """Request rates from a handful a month to 100,000 an hour, evenly spaced in their log."""
    return np.geomspace(LOWEST_RATE, HIGHEST_RATE, points)


def break_even_rates(model: ModelEstimate, option: CacheOption) -> tuple[float, ...]:
    """Requests per hour at which this option's saving changes sign, in order."""
    return _break_evens(saving_curve(model, option))


def _break_evens(
    curve: SavingCurve, low: float = LOWEST_RATE, high: float = HIGHEST_RATE
) -> tuple[float, ...]:
    """The break-evens of a curve from `low` to `high`."""
    grid = rate_grid()
    loses = curve.at(grid) < 0
    changes = (loses[1:] != loses[:-1]) & (grid[1:] >= low) & (grid[:-1] <= high)
    found = (
        _change(lambda rates: curve.at(rates) < 0, grid[index], grid[index + 1])
        for index in np.flatnonzero(changes)
    )
    return tuple(rate for rate in found if low <= rate <= high)


def _change(answer: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> float:
    """The rate from `low` to `high` at which the answer is another than at `low`.

    Three times a 33rd of the way that is left: to some millionths of the rate.
    """
    for _ in range(3):
        rates = low * (high / low) ** STEPS
        answers = answer(rates)
        differs = answers[1:-1] != answers[0]
        after = int(np.argmax(differs)) + 1 if differs.any() else len(rates) - 1
        low, high = rates[after - 1], rates[after]
    return math.sqrt(low * high)


@dataclass(frozen=True)
class Segment:
    """Between these request rates this is the cheapest thing to do."""

    from_rate: float
    to_rate: float
    option_id: str
    name: str


def segments(
    model: ModelEstimate, curves: Sequence[SavingCurve] | None = None
) -> tuple[Segment, ...]:
    """The cheapest option by requests per hour, and where the answer flips.

    Two options within a millionth of the bill count as the same answer: the first stays.
    `curves` are those of `saving_curves`, where they are at hand.
    """
    curves = saving_curves(model) if curves is None else curves
    options = [(NO_CACHING, NO_CACHING), *((c.option.id, c.option.name) for c in curves)]
    grid = rate_grid()
    winners = _winners(model, curves, grid)
    flips = np.flatnonzero(winners[1:] != winners[:-1])
    edges = [
        float(grid[0]),
        *(
            _change(lambda rates: _winners(model, curves, rates), grid[index], grid[index + 1])
            for index in flips
        ),
        float(grid[-1]),
    ]
    found = [options[winner] for winner in (winners[0], *winners[flips + 1])]
    return tuple(
        Segment(start, end, option_id, name)
        for start, end, (option_id, name) in zip(edges, edges[1:], found, strict=False)
    )


def _winners(model: ModelEstimate, curves: Sequence[SavingCurve], rates: np.ndarray) -> np.ndarray:
    """For each rate 0 where no caching is cheapest, else 1 + the place of the cheapest curve."""
    least = 1e-6 * float(model.without.total) / model.workload.requests_per_hour * rates
    best, winners = least, np.zeros(len(rates), dtype=int)
    for number, curve in enumerate(curves, 1):
        saving = curve.at(rates)
        better = saving > best + least
        best, winners = np.where(better, saving, best), np.where(better, number, winners)
    return winners


def bill_rows(
    model: ModelEstimate, outcome: Outcome | None = None
) -> list[tuple[str, str, float, int]]:
    """(scenario, token class, dollars, order) of the bill without and with the cache."""
    outcome = outcome or model.best
    scenarios = [("without caching", model.without)]
    if outcome is not None:
        scenarios.append((f"with {outcome.name}", outcome.bill))
    return [
        (scenario, words, float(getattr(bill, name)), order)
        for scenario, bill in scenarios
        for order, (name, words) in enumerate(CLASS_WORDS.items())
    ]


def bill_frame(model: ModelEstimate, outcome: Outcome | None = None) -> pd.DataFrame:
    """Columns scenario, token_class, dollars, order: the bill without and with the cache."""
    columns = ["scenario", "token_class", "dollars", "order"]
    return pd.DataFrame(bill_rows(model, outcome), columns=columns)


def rate_rows(
    model: ModelEstimate, points: int = 49, curves: Sequence[SavingCurve] | None = None
) -> list[tuple[float, str, float, float]]:
    """(requests an hour, lifetime, saving in dollars a month, its share of the bill)."""
    here = model.workload.requests_per_hour
    low, high = min(here / 50, 1.0), max(here * 20, 200.0)
    grid = np.unique(np.append(np.geomspace(low, high, points), here))
    without = float(model.without.total) / here * grid
    curves = saving_curves(model) if curves is None else curves
    rows = []
    for curve in sorted(curves, key=lambda curve: curve.option.seconds):
        saving = curve.at(grid)
        share = np.divide(saving, without, out=np.zeros(len(grid)), where=without > 0)
        names = [curve.option.name] * len(grid)
        rows += zip(grid.tolist(), names, saving.tolist(), share.tolist(), strict=True)
    return rows


def rate_frame(model: ModelEstimate, points: int = 49) -> pd.DataFrame:
    """Columns requests_per_hour, lifetime, saving (dollars a month), saving_share (of the bill)."""
    columns = ["requests_per_hour", "lifetime", "saving", "saving_share"]
    return pd.DataFrame(rate_rows(model, points), columns=columns)


def break_even_rows(
    curves: Sequence[SavingCurve], low: float = LOWEST_RATE, high: float = HIGHEST_RATE
) -> list[tuple[str, float]]:
    """(lifetime, requests an hour) wherever a saving changes sign, from `low` to `high`."""
    return [
        (curve.option.name, rate) for curve in curves for rate in _break_evens(curve, low, high)
    ]


def break_even_frame(model: ModelEstimate) -> pd.DataFrame:
    """Columns lifetime, requests_per_hour: where each option's saving changes sign."""
    return pd.DataFrame(
        break_even_rows(saving_curves(model)), columns=["lifetime", "requests_per_hour"]
    )


def prefix_rows(model: ModelEstimate, points: int = 40) -> list[tuple[int, str, float]]:
    """(tokens of the stable prefix, lifetime, saving in dollars a month), a step at the minimum."""
    here = model.workload.prefix_tokens
    minimum = model.rules.minimum.tokens if model.rules.minimum else 0
    top = max(2 * here, 3 * minimum, 2000)
    lengths = {int(n) for n in np.linspace(0, top, points)} | {here}
    lengths |= {n for n in (minimum - 1, minimum) if n >= 0}
    least = 1 if model.workload.changing_tokens == 0 else 0
    asked = sorted(n for n in lengths if n >= least)
    rows = []
    for outcome in model.outcomes:
        savings = savings_by_prefix(model, outcome.option, np.array(asked)).tolist()
        rows += zip(asked, [outcome.name] * len(asked), savings, strict=True)
    return rows


def prefix_frame(model: ModelEstimate, points: int = 40) -> pd.DataFrame:
    """Columns prefix_tokens, lifetime, saving: the provider's minimum shows as a cliff."""
    return pd.DataFrame(prefix_rows(model, points), columns=["prefix_tokens", "lifetime", "saving"])


def savings_by_prefix(
    model: ModelEstimate, option: CacheOption, prefix_tokens: np.ndarray
) -> np.ndarray:
    """Dollars saved a month by one option at each of these lengths of the stable prefix.

    What `evaluate` would say of each, in floats and all at once: for pictures, not for bills.
    """
    workload, rules, rates = model.workload, model.rules, model.rates
    calls = conversations(workload, prefix_tokens)
    stable = rules.cacheable(prefix_tokens)[:, None]
    hit = prefix_hit_rate(workload, option, visibility(workload, rules))
    fresh = _prices(rates, Rates.fresh, calls.prompt)
    read_saves = fresh - _prices(rates, Rates.cache_read, calls.prompt)
    write_saves = fresh - _prices(rates, write_price(option), calls.prompt)
    best = np.full(len(prefix_tokens), -np.inf)
    for placement in option.placement:
        read, written = read_and_written(workload, rules, option, placement, hit, calls, stable)
        best = np.maximum(best, (read * read_saves + written * write_saves).sum(axis=1))
    held = [float(sum(stored(rates, rules, workload, option, n))) for n in prefix_tokens.tolist()]
    return best * workload.conversations_per_month / 1e6 - np.array(held)


def _prices(rates: Rates, price: Price, prompts: np.ndarray) -> np.ndarray | float:
    """Dollars per million tokens of a class in requests whose prompts are this long."""
    starts = rates.tier_starts()
    if not starts or prompts.max() <= starts[0]:
        return float(price(rates, 0))
    steps = np.array([float(price(rates, start)) for start in (0, *(s + 1 for s in starts))])
    return steps[np.searchsorted(np.array(starts), prompts, side="left")]


def turns_frame(
    model: ModelEstimate, outcome: Outcome | None = None, turns: int | None = None
) -> pd.DataFrame:
    """One conversation, call by call, its stable prefix as warm as the traffic keeps it.

    Columns call, prompt, fresh, cache_read, cache_write (expected tokens), without, with_cache
    (dollars of the call, answer included), total_without, total_with (running sums). `turns`
    follows another number of turns than the workload's.
    """
    outcome = outcome or model.best
    workload = model.workload
    if turns is not None:
        calls = turns * workload.calls_per_turn
        kept = tuple(event for event in workload.events if event.call <= calls)
        workload = replace(workload, turns=turns, events=kept)
    expected = expected_tokens(
        workload,
        model.rules,
        outcome.option,
        outcome.placement,
        prefix_hit=outcome.prefix_hit_rate,
    )
    write = write_price(outcome.option)
    rates = model.rates
    rows = []
    for index, prompt in enumerate(expected.prompt):
        length = int(prompt)
        answer = workload.answer_tokens * float(rates.output(length))
        fresh, read, written = (
            float(column[index])
            for column in (expected.fresh, expected.cache_read, expected.cache_write)
        )
        cached = (
            fresh * float(rates.fresh(length))
            + read * float(rates.cache_read(length))
            + written * float(write(rates, length))
        )
        uncached = prompt * float(rates.fresh(length))
        dollars = ((uncached + answer) / 1e6, (cached + answer) / 1e6)
        rows.append((index + 1, length, fresh, read, written, *dollars))
    columns = ["call", "prompt", "fresh", "cache_read", "cache_write", "without", "with_cache"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["total_without"] = frame["without"].cumsum()
    frame["total_with"] = frame["with_cache"].cumsum()
    return frame


def options_frame(model: ModelEstimate) -> pd.DataFrame:
    """Every lifetime side by side: columns lifetime, cached, dollars, saving, saving_share,
    prefix_hit_rate, read_share, certain; no caching as the first row."""
    total = float(model.without.total)
    rows = [(NO_CACHING, "", total, 0.0, 0.0, 0.0, 0.0, True)]
    rows += [
        (
            outcome.name,
            "stable prefix" if outcome.placement == "prefix" else "whole conversation",
            float(outcome.bill.total),
            float(outcome.saving),
            float(outcome.saving) / total if total else 0.0,
            outcome.prefix_hit_rate,
            outcome.read_share,
            outcome.option.certain,
        )
        for outcome in model.outcomes
    ]
    columns = ["lifetime", "cached", "dollars", "saving", "saving_share"]
    return pd.DataFrame(rows, columns=[*columns, "prefix_hit_rate", "read_share", "certain"])
