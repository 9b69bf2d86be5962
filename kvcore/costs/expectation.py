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
    day_hit_rates,
    replay_arrivals,
    schedule_hit_rate,
    zipf_shares,
)
from kvcore.costs.workload import Conversation, Workload, conversation

PREFIX = "prefix"
CONVERSATION = "conversation"

LARGEST_ZIPF = 1_000_000
"""Prefixes followed rank by rank; beyond them the last ranks stand for more."""


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
    shares, counts = _shares(workload)
    hits = day_hit_rates(
        workload.starts_per_second * shares / counts,
        lifetime,
        day,
        touches=workload.touches(),
        renewed=renewed,
        visible_after=visible_after,
    )
    return float(shares @ hits)


def _shares(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the traffic, and how many prefixes have each together."""
    if not workload.uneven or workload.prefixes == 1:
        return np.array([1.0]), np.array([workload.prefixes])
    return _zipf_groups(workload.prefixes)


@lru_cache(maxsize=16)
def _zipf_groups(
    prefixes: int, exact: int = 50, groups: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """The busiest prefixes one by one, the rest in groups of about equal rank ratio."""
    top = min(prefixes, LARGEST_ZIPF)
    shares = np.array(zipf_shares(top))
    edges = np.unique(np.geomspace(min(exact, top), top, groups).astype(int))
    starts = np.concatenate([np.arange(min(exact, top)), edges[:-1]])
    ends = np.append(starts[1:], top)
    sums = np.add.reduceat(shares, starts)
    return sums, (ends - starts) * (prefixes / top)


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


def conversation_hit_rates(
    workload: Workload, option: CacheOption, calls: Conversation
) -> np.ndarray:
    """How likely the call before each is still in the cache: the pause was no longer than τ.

    People's pauses are exponential around their mean; the calls of a loop follow at a fixed gap.
    """
    if workload.unstable_top or workload.batch:
        return np.zeros(len(calls.prompt))
    in_loop = 1.0 if workload.seconds_between_calls <= option.seconds else 0.0
    pause = workload.seconds_between_turns
    after_pause = -math.expm1(-option.seconds / pause) if pause else 1.0
    hits = np.where(calls.in_loop, in_loop, after_pause)
    hits[0] = 0.0
    return hits


def _own_prefix_hit_rates(
    workload: Workload, option: CacheOption, calls: Conversation
) -> np.ndarray:
    """How likely this conversation itself keeps its stable prefix alive from call to call.

    Without renewal an entry dies τ after its write however often it is read: λτ/(1 + λτ) at
    the conversation's own pace.
    """
    own = conversation_hit_rates(workload, option, calls)
    if option.renewed:
        return own
    gap = max(workload.seconds_between_calls, 1e-9)
    in_loop = schedule_hit_rate(gap, option.seconds, renewed=False)
    after_pause = option.seconds / (option.seconds + workload.seconds_between_turns)
    return np.where(own > 0, np.where(calls.in_loop, in_loop, after_pause), 0.0)


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
    stable = rules.cacheable(workload.prefix_tokens)
    if option.stored:
        read, write = stable * calls.keeps_prefix, np.zeros(len(calls.prompt))
    elif placement == PREFIX:
        keeps = _own_prefix_hit_rates(workload, option, calls)
        alive = (1 - (1 - keeps) * (1 - prefix_hit)) * calls.keeps_prefix
        read, write = stable * alive, stable * (1 - alive)
    else:
        read, write = _whole_conversation(workload, rules, option, prefix_hit, calls, stable)
    prompt = calls.prompt.astype(float)
    return Expected(prompt, prompt - read - write, read, write, prefix_hit)


def _whole_conversation(
    workload: Workload,
    rules: Rules,
    option: CacheOption,
    prefix_hit: float,
    calls: Conversation,
    stable: int,
) -> tuple[np.ndarray, np.ndarray]:
    """(read, written) tokens expected of each call when all up to the latest message is cached."""
    own = conversation_hit_rates(workload, option, calls)
    prefix_alive = (1 - (1 - own) * (1 - prefix_hit)) * calls.keeps_prefix
    whole = rules.cacheable(calls.prompt)
    before = np.where(calls.previous > 0, rules.cacheable(calls.previous), 0)
    chain = np.where(before > 0, own, 0.0)
    only_prefix = np.maximum(0.0, prefix_alive - chain)
    read = chain * before + only_prefix * np.minimum(stable, whole)
    return read, whole - read
