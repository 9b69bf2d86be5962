"""Expected tokens of each class, call by call, under one lifetime and one traffic.

For every call three things can happen: its own conversation's last entry is alive (read all of
it, write what is new), only the stable prefix is alive thanks to other traffic (read that, write
the rest), or neither (write everything). Their probabilities come from `kvcore.costs.traffic`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from kvcore.costs.rules import CacheOption, Rules
from kvcore.costs.traffic import (
    Day,
    day_hit_rate,
    replay_arrivals,
    schedule_hit_rate,
    zipf_shares,
)
from kvcore.costs.workload import Call, Workload, conversation

PREFIX = "prefix"
CONVERSATION = "conversation"


@dataclass(frozen=True)
class Expected:
    """Expected input tokens of each call of one conversation, by class; arrays over calls."""

    prompt: np.ndarray
    fresh: np.ndarray
    cache_read: np.ndarray
    cache_write: np.ndarray
    prefix_hit_rate: float

    @property
    def read_share(self) -> float:
        """The token hit rate: share of all input that is read."""
        total = float(self.prompt.sum())
        return float(self.cache_read.sum()) / total if total else 0.0


def visibility(workload: Workload, rules: Rules) -> float:
    if workload.visible_after_seconds is not None:
        return workload.visible_after_seconds
    return rules.visible_after_seconds


def prefix_hit_rate(workload: Workload, option: CacheOption, visible_after: float) -> float:
    """How likely a conversation's first call finds its stable prefix in the cache.

    `parallel` starts at one moment hit or miss together, unless one is sent first. Renewal that
    the provider does not state is taken as absent.
    """
    if option.stored:
        return 1.0
    if workload.unstable_top or workload.batch:
        return 0.0
    rate = _arrivals_hit_rate(
        _traffic_only(workload), option.seconds, bool(option.renewed), visible_after
    )
    if workload.send_one_first and workload.parallel > 1:
        return 1 - (1 - rate) / workload.parallel
    return rate


def _traffic_only(workload: Workload) -> Workload:
    """The same traffic with everything that does not move the hit rate made equal."""
    return replace(
        workload, prefix_tokens=1, changing_tokens=0, answer_tokens=0, days_per_month=1, events=()
    )


@lru_cache(maxsize=4096)
def _arrivals_hit_rate(
    workload: Workload, lifetime: float, renewed: bool, visible_after: float
) -> float:
    if workload.arrivals == "recorded":
        prefixes = workload.recorded_prefixes or None
        return replay_arrivals(
            workload.recorded,
            lifetime,
            renewed=renewed,
            visible_after=visible_after,
            prefixes=prefixes,
        ).rate
    if workload.arrivals == "schedule":
        return _schedule(workload, lifetime, renewed, visible_after)
    day = Day(workload.hours_per_day * 3600)
    shares = _shares(workload)
    return sum(
        share
        * day_hit_rate(
            workload.starts_per_second * share / count,
            lifetime,
            day,
            touches=workload.touches(),
            renewed=renewed,
            visible_after=visible_after,
        )
        for share, count in shares
    )


def _shares(workload: Workload) -> list[tuple[float, int]]:
    """(share of the traffic, number of prefixes that have it together)."""
    if not workload.uneven or workload.prefixes == 1:
        return [(1.0, workload.prefixes)]
    shares = zipf_shares(workload.prefixes)
    groups = np.array_split(np.array(shares), min(200, workload.prefixes))
    return [(float(group.sum()), len(group)) for group in groups]


def _schedule(workload: Workload, lifetime: float, renewed: bool, visible_after: float) -> float:
    gap = workload.prefixes / workload.starts_per_second
    lasting = sum(touch.mean * touch.count for touch in workload.touches())
    idle = max(gap - lasting, 1e-9) if renewed else gap
    steady = schedule_hit_rate(idle, lifetime, renewed=renewed, visible_after=visible_after)
    per_day = workload.hours_per_day * 3600 / gap
    night = (24 - workload.hours_per_day) * 3600 + min(gap, workload.hours_per_day * 3600)
    if night <= lifetime or per_day <= 0:
        return steady
    return steady * max(0.0, 1 - 1 / max(per_day, 1.0))


def conversation_hit_rate(workload: Workload, option: CacheOption, call: Call) -> float:
    """How likely the call before is still in the cache: the pause was no longer than τ.

    People's pauses are exponential around their mean; the calls of a loop follow at a fixed gap.
    """
    if call.gap == "" or workload.unstable_top or workload.batch:
        return 0.0
    if call.gap == "loop":
        return 1.0 if workload.seconds_between_calls <= option.seconds else 0.0
    if workload.seconds_between_turns == 0:
        return 1.0
    return -math.expm1(-option.seconds / workload.seconds_between_turns)


def _own_prefix_hit_rate(workload: Workload, option: CacheOption, call: Call) -> float:
    """How likely this conversation itself keeps its stable prefix alive from call to call.

    Without renewal an entry dies τ after its write however often it is read: λτ/(1 + λτ) at
    the conversation's own pace.
    """
    own = conversation_hit_rate(workload, option, call)
    if option.renewed or own == 0:
        return own
    if call.gap == "loop":
        gap = max(workload.seconds_between_calls, 1e-9)
        return schedule_hit_rate(gap, option.seconds, renewed=False)
    return option.seconds / (option.seconds + workload.seconds_between_turns)


def expected_tokens(
    workload: Workload,
    rules: Rules,
    option: CacheOption,
    placement: str,
    *,
    prefix_hit: float | None = None,
) -> Expected:
    """Expected tokens of each class for every call of one conversation.

    `placement` "prefix" caches the stable prefix alone, "conversation" everything up to the
    latest message. `prefix_hit` overrides the derived hit rate. Multi-turn tokens without misses
    are those of the closed form: written S + T·u + (T−1)·o, read Σ P(t−1).
    """
    if prefix_hit is None:
        prefix_hit = prefix_hit_rate(workload, option, visibility(workload, rules))
    calls = conversation(workload)
    rows = [_call(workload, rules, option, placement, prefix_hit, call) for call in calls]
    prompt = np.array([call.prompt for call in calls], dtype=float)
    read, write = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    return Expected(prompt, prompt - read - write, read, write, prefix_hit)


def _call(
    workload: Workload,
    rules: Rules,
    option: CacheOption,
    placement: str,
    prefix_hit: float,
    call: Call,
) -> tuple[float, float]:
    """(read, written) tokens expected of one call."""
    stable = rules.cacheable(workload.prefix_tokens)
    own = conversation_hit_rate(workload, option, call)
    keeps = own if placement == CONVERSATION else _own_prefix_hit_rate(workload, option, call)
    prefix_alive = 1 - (1 - keeps) * (1 - prefix_hit) if call.keeps_prefix else 0.0
    if option.stored:
        return (stable if call.keeps_prefix else 0.0), 0.0
    if placement == PREFIX:
        return stable * prefix_alive, stable * (1 - prefix_alive)
    whole = rules.cacheable(call.prompt)
    before = rules.cacheable(call.previous)
    chain = own if before else 0.0
    only_prefix = max(0.0, prefix_alive - chain)
    read = chain * before + only_prefix * min(stable, whole)
    return read, whole - read
