"""How the answer moves: with requests per hour, with prefix length, from turn to turn.

Frames for the pictures, the break-evens, and the segments in which one option is cheapest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from kvcore.costs.estimate import (
    ModelEstimate,
    Outcome,
    bill_of,
    evaluate,
    write_price,
)
from kvcore.costs.expectation import expected_tokens, prefix_hit_rate, visibility
from kvcore.costs.rules import CacheOption

NO_CACHING = "no caching"
LOWEST_RATE, HIGHEST_RATE = 0.01, 100_000.0

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
        workload = replace(self.model.workload, requests_per_hour=requests_per_hour)
        hit = prefix_hit_rate(workload, self.option, visibility(workload, self.model.rules))
        best = max(a + (b - a) * hit for a, b in zip(self.never, self.always, strict=True))
        return best * workload.conversations_per_month - self.fixed


def saving_curve(model: ModelEstimate, option: CacheOption) -> SavingCurve:
    """The curve of one option, over all the placements it allows."""
    conversations = model.workload.conversations_per_month
    without = float(model.without.total)

    def per_conversation(placement: str, hit: float) -> tuple[float, float]:
        expected = expected_tokens(model.workload, model.rules, option, placement, prefix_hit=hit)
        bill = bill_of(model.rates, model.rules, model.workload, option, expected)
        held = float(bill.storage + (bill.cache_write if option.stored else 0))
        return (without - float(bill.total) + held) / conversations, held

    never = [per_conversation(placement, 0.0) for placement in option.placement]
    always = [per_conversation(placement, 1.0)[0] for placement in option.placement]
    fixed = never[0][1] if option.stored else 0.0
    return SavingCurve(model, option, tuple(n[0] for n in never), tuple(always), fixed)


def rate_grid(points: int = 71) -> np.ndarray:
    """Request rates from a handful a month to 100,000 an hour, evenly spaced in their log."""
    return np.geomspace(LOWEST_RATE, HIGHEST_RATE, points)


def break_even_rates(model: ModelEstimate, option: CacheOption) -> tuple[float, ...]:
    """Requests per hour at which this option's saving changes sign, in order."""
    curve = saving_curve(model, option)
    grid = rate_grid()
    values = [curve(rate) for rate in grid]
    return tuple(
        _bisect(curve, low, high)
        for low, high, a, b in zip(grid, grid[1:], values, values[1:], strict=False)
        if (a < 0) != (b < 0)
    )


def _bisect(curve: Callable[[float], float], low: float, high: float) -> float:
    below = curve(low) < 0
    for _ in range(32):
        middle = math.sqrt(low * high)
        if (curve(middle) < 0) == below:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


@dataclass(frozen=True)
class Segment:
    """Between these request rates this is the cheapest thing to do."""

    from_rate: float
    to_rate: float
    option_id: str
    name: str


def segments(model: ModelEstimate) -> tuple[Segment, ...]:
    """The cheapest option by requests per hour, and where the answer flips.

    Two options within a millionth of the bill count as the same answer: the first stays.
    """
    curves = [saving_curve(model, outcome.option) for outcome in model.outcomes]
    grid = rate_grid()
    winners = [_winner(model, curves, rate) for rate in grid]
    edges, found = [grid[0]], [winners[0]]
    for low, high, a, b in zip(grid, grid[1:], winners, winners[1:], strict=False):
        if b != a:
            edges.append(_flip(model, curves, low, high, a))
            found.append(b)
    edges.append(grid[-1])
    names = {c.option.id: c.option.name for c in curves}
    return tuple(
        Segment(float(start), float(end), winner, names.get(winner, NO_CACHING))
        for start, end, winner in zip(edges[:-1], edges[1:], found, strict=True)
    )


def _winner(model: ModelEstimate, curves: Sequence[SavingCurve], rate: float) -> str:
    scale = float(model.without.total) / model.workload.requests_per_hour * rate
    best, name = 1e-6 * scale, NO_CACHING
    for curve in curves:
        saving = curve(rate)
        if saving > best + 1e-6 * scale:
            best, name = saving, curve.option.id
    return name


def _flip(
    model: ModelEstimate, curves: Sequence[SavingCurve], low: float, high: float, before: str
) -> float:
    for _ in range(28):
        middle = math.sqrt(low * high)
        if _winner(model, curves, middle) == before:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def bill_frame(model: ModelEstimate, outcome: Outcome | None = None) -> pd.DataFrame:
    """Columns scenario, token_class, dollars, order: the bill without and with the cache."""
    outcome = outcome or model.best
    scenarios = [("without caching", model.without)]
    if outcome is not None:
        scenarios.append((f"with {outcome.name}", outcome.bill))
    return pd.DataFrame(
        [
            (scenario, words, float(getattr(bill, name)), order)
            for scenario, bill in scenarios
            for order, (name, words) in enumerate(CLASS_WORDS.items())
        ],
        columns=["scenario", "token_class", "dollars", "order"],
    )


def rate_frame(model: ModelEstimate, points: int = 49) -> pd.DataFrame:
    """Columns requests_per_hour, lifetime, saving (dollars a month), saving_share (of the bill)."""
    here = model.workload.requests_per_hour
    low, high = min(here / 50, 1.0), max(here * 20, 200.0)
    grid = np.unique(np.append(np.geomspace(low, high, points), here))
    per_request = float(model.without.total) / here
    rows = []
    for outcome in sorted(model.outcomes, key=lambda o: o.option.seconds):
        curve = saving_curve(model, outcome.option)
        for rate in grid:
            saving = curve(float(rate))
            share = saving / (per_request * rate) if per_request else 0.0
            rows.append((float(rate), outcome.name, saving, share))
    return pd.DataFrame(rows, columns=["requests_per_hour", "lifetime", "saving", "saving_share"])


def break_even_frame(model: ModelEstimate) -> pd.DataFrame:
    """Columns lifetime, requests_per_hour: where each option's saving changes sign."""
    rows = [
        (outcome.name, rate)
        for outcome in model.outcomes
        for rate in break_even_rates(model, outcome.option)
    ]
    return pd.DataFrame(rows, columns=["lifetime", "requests_per_hour"])


def prefix_frame(model: ModelEstimate, points: int = 40) -> pd.DataFrame:
    """Columns prefix_tokens, lifetime, saving: the provider's minimum shows as a cliff."""
    here = model.workload.prefix_tokens
    minimum = model.rules.minimum.tokens if model.rules.minimum else 0
    top = max(2 * here, 3 * minimum, 2000)
    lengths = {int(n) for n in np.linspace(0, top, points)} | {here}
    lengths |= {n for n in (minimum - 1, minimum) if n >= 0}
    least = 1 if model.workload.changing_tokens == 0 else 0
    rows = []
    for length in sorted(n for n in lengths if n >= least):
        workload = replace(model.workload, prefix_tokens=length)
        outcomes = evaluate(model.rates, model.rules, workload).outcomes
        rows += [(length, outcome.name, float(outcome.saving)) for outcome in outcomes]
    return pd.DataFrame(rows, columns=["prefix_tokens", "lifetime", "saving"])


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
