"""What the samples of an experiment say: slopes, spread, where caching pays, where load bends.

Medians throughout, and slopes by Theil and Sen (the median of all slopes between two points), so
that one slow answer does not decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log2
from statistics import median

from kvcore.serving.experiments import AGAIN, BACK, CHANGED, COLD, CONTEXT, FIRST, LEVEL, WARM
from kvcore.serving.run import Sample

CLEARLY_FASTER = 0.75
"""Warm counts as a hit in time when it took less than this share of its cold twin."""
WORTH_DOUBLING = 1.25
"""Load bends where twice the requests bring less than this times the tokens a second."""


@dataclass(frozen=True)
class Line:
    """seconds = intercept + slope × tokens."""

    slope: float
    intercept: float


@dataclass(frozen=True)
class Spread:
    """Several measurements of the same thing."""

    middle: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class FirstTokenFindings:
    """What experiment 1 says.

    pays_from: the shortest length from which on every warm answer was faster than every cold one;
    None where there is none. told, told_hit: warm answers about which the server said how much it
    reused, and those where it said more than 0. in_time: warm answers clearly faster than their
    cold twin; agreeing: those where time and word agree. reused: median tokens it says it reused.
    """

    cold: dict[int, Spread]
    warm: dict[int, Spread]
    cold_line: Line | None
    warm_line: Line | None
    pays_from: int | None
    pairs: int
    told: int
    told_hit: int
    in_time: int
    agreeing: int
    reused: float | None

    @property
    def longest_ratio(self) -> float | None:
        """Cold over warm at the longest length measured both ways."""
        both = [length for length in self.cold if length in self.warm]
        if not both:
            return None
        longest = max(both)
        return self.cold[longest].middle / self.warm[longest].middle

    @property
    def verdict(self) -> str:
        """Did the server say that it hit, and does the time agree: a sentence."""
        if not self.pairs:
            return "Nothing has been compared yet."
        timed = f"{self.in_time} of {self.pairs} repeated prefixes came clearly faster"
        if not self.told:
            return f"{timed}; the server does not say how much it reused."
        said = f"of {self.told} the server says it reused a part in {self.told_hit}"
        if self.agreeing == self.told:
            return f"{timed}, and {said}: word and time agree."
        return f"{timed}, and {said}: word and time disagree in {self.told - self.agreeing}."


@dataclass(frozen=True)
class EarlyChangeFindings:
    """What experiment 2 says: time and tokens reused for each step, in order."""

    seconds: dict[str, Spread]
    reused: dict[str, float | None]

    @property
    def costs_times(self) -> float | None:
        """First token after the change over first token of the repeated prefix."""
        if CHANGED not in self.seconds or AGAIN not in self.seconds:
            return None
        return self.seconds[CHANGED].middle / self.seconds[AGAIN].middle

    @property
    def lost_tokens(self) -> float | None:
        """Tokens no longer reused because of the change; None where the server does not say."""
        before, after = self.reused.get(AGAIN), self.reused.get(CHANGED)
        return None if before is None or after is None else before - after


@dataclass(frozen=True)
class Load:
    """One number of concurrent requests. tokens_per_second: of all of them together."""

    concurrent: int
    seconds_per_token: Spread
    tokens_per_second: float
    kv_usage: float | None
    preemptions: float | None


@dataclass(frozen=True)
class TokenTimeFindings:
    """What experiment 3 says. bends_at: the level from which more requests bring little more."""

    by_context: dict[int, Spread]
    context_line: Line | None
    loads: tuple[Load, ...]
    bends_at: int | None


def first_token_findings(samples: Sequence[Sample]) -> FirstTokenFindings:
    """Findings of experiment 1 from whatever has come so far."""
    good = [s for s in samples if not s.problem and s.first_token_seconds is not None]
    cold = [s for s in good if s.series == COLD]
    warm = [s for s in good if s.series == WARM]
    twins = {(s.target_tokens, s.repeat): s for s in cold}
    pairs = [(twins[key], s) for s in warm if (key := (s.target_tokens, s.repeat)) in twins]
    told = [(c, w) for c, w in pairs if w.said_cached is not None]
    reused = [w.said_cached for _, w in told if w.said_cached]
    return FirstTokenFindings(
        cold=_spreads((s.target_tokens, s.first_token_seconds) for s in cold),
        warm=_spreads((s.target_tokens, s.first_token_seconds) for s in warm),
        cold_line=line((s.tokens, s.first_token_seconds) for s in cold),
        warm_line=line((s.tokens, s.first_token_seconds) for s in warm),
        pays_from=_pays_from(pairs),
        pairs=len(pairs),
        told=len(told),
        told_hit=len(reused),
        in_time=sum(_faster(c, w) for c, w in pairs),
        agreeing=sum(_faster(c, w) == bool(w.said_cached) for c, w in told),
        reused=median(reused) if reused else None,
    )


def early_change_findings(samples: Sequence[Sample]) -> EarlyChangeFindings:
    """Findings of experiment 2 from whatever has come so far."""
    seconds, reused = {}, {}
    for series in (FIRST, AGAIN, CHANGED, BACK):
        mine = [s for s in samples if s.series == series and not s.problem]
        times = [s.first_token_seconds for s in mine if s.first_token_seconds is not None]
        said = [s.said_cached for s in mine if s.said_cached is not None]
        if times:
            seconds[series] = spread(times)
            reused[series] = median(said) if said else None
    return EarlyChangeFindings(seconds, reused)


def token_time_findings(samples: Sequence[Sample]) -> TokenTimeFindings:
    """Findings of experiment 3 from whatever has come so far."""
    good = [s for s in samples if not s.problem and s.seconds_per_token is not None]
    alone = [s for s in good if s.series == CONTEXT]
    loads = tuple(_loads([s for s in good if s.series == LEVEL]))
    return TokenTimeFindings(
        by_context=_spreads((s.target_tokens, s.seconds_per_token) for s in alone),
        context_line=line((s.tokens, s.seconds_per_token) for s in alone),
        loads=loads,
        bends_at=bends_at(loads),
    )


def bends_at(loads: Sequence[Load]) -> int | None:
    """The number of concurrent requests from which more bring little more; None where none does.

    Between two levels, a step that doubles the requests must bring WORTH_DOUBLING times the tokens
    a second, and other steps in proportion (as a power).
    """
    for lower, upper in zip(loads, loads[1:], strict=False):
        step = upper.concurrent / lower.concurrent
        wanted = WORTH_DOUBLING ** log2(step)
        if upper.tokens_per_second < lower.tokens_per_second * wanted:
            return lower.concurrent
    return None


def line(points: Iterable[tuple[float, float]]) -> Line | None:
    """Theil and Sen's line through (tokens, seconds); None without two different lengths."""
    known = list(points)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(known, 2) if a[0] != b[0]]
    if not slopes:
        return None
    slope = median(slopes)
    return Line(slope, median(y - slope * x for x, y in known))


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values), len(values))


def _faster(cold: Sample, warm: Sample) -> bool:
    return warm.first_token_seconds < CLEARLY_FASTER * cold.first_token_seconds


def _spreads(points: Iterable[tuple[int, float]]) -> dict[int, Spread]:
    groups: dict[int, list[float]] = {}
    for length, seconds in points:
        groups.setdefault(length, []).append(seconds)
    return {length: spread(groups[length]) for length in sorted(groups)}


def _pays_from(pairs: Sequence[tuple[Sample, Sample]]) -> int | None:
    """Walks down from the longest length while no warm answer is slower than any cold one."""
    found = None
    for length in sorted({cold.target_tokens for cold, _ in pairs}, reverse=True):
        mine = [pair for pair in pairs if pair[0].target_tokens == length]
        slowest_warm = max(warm.first_token_seconds for _, warm in mine)
        if slowest_warm >= min(cold.first_token_seconds for cold, _ in mine):
            return found
        found = round(median(cold.tokens for cold, _ in mine))
    return found


def _loads(samples: Sequence[Sample]) -> Iterable[Load]:
    for level in sorted({s.concurrency for s in samples}):
        mine = [s for s in samples if s.concurrency == level]
        waves = {s.repeat: [each for each in mine if each.repeat == s.repeat] for s in mine}
        rates = [
            sum(s.output_tokens or 0 for s in wave) / max(s.wave_seconds or 0 for s in wave)
            for wave in waves.values()
            if any(s.wave_seconds for s in wave)
        ]
        usage = [s.kv_usage for s in mine if s.kv_usage is not None]
        lost = [wave[0].preemptions for wave in waves.values() if wave[0].preemptions is not None]
        yield Load(
            concurrent=level,
            seconds_per_token=spread([s.seconds_per_token for s in mine]),
            tokens_per_second=median(rates) if rates else 0.0,
            kv_usage=max(usage) if usage else None,
            preemptions=sum(lost) if lost else None,
        )
