"""Expected tokens of each class, call by call, under one lifetime and one traffic.

For every call three things can happen: its own conversation's last entry is alive (read all of
it, write what is new), only the stable prefix is alive thanks to other traffic (read that, write
the rest), or neither (write everything). Their probabilities come from `kvcore.costs.traffic`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kvcore.costs.rules import CacheOption, Rules
from kvcore.costs.traffic import (
    Day,
    Touches,
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


@dataclass(frozen=True)
class Traffic:
    """What moves the hit rate of a workload besides the pace of its requests."""

    arrivals: str
    hours_per_day: float
    prefixes: int
    uneven: bool
    touches: tuple[Touches, ...]

    @classmethod
    def of(cls, workload: Workload) -> Traffic:
        return cls(
            workload.arrivals,
            workload.hours_per_day,
            workload.prefixes,
            workload.uneven,
            workload.touches(),
        )


def prefix_hit_rate(workload: Workload, option: CacheOption, visible_after: float) -> float:
    """How likely a conversation's first call finds its stable prefix in the cache.

    `parallel` starts at one moment hit or miss together, unless one is sent first. Renewal that
    the provider does not state is taken as absent.
    """
    if (fixed := _whatever_the_pace(workload, option, visible_after)) is not None:
        return fixed
    (rate,) = _hit_rates(
        Traffic.of(workload),
        (workload.starts_per_second,),
        option.seconds,
        bool(option.renewed),
        visible_after,
    )
    return float(_one_first(workload, rate))


def prefix_hit_rates(
    workload: Workload,
    option: CacheOption,
    visible_after: float,
    requests_per_hour: np.ndarray,
) -> np.ndarray:
    """`prefix_hit_rate` of the same workload at many other paces, an entry for each."""
    fixed = _whatever_the_pace(workload, option, visible_after)
    if fixed is not None:
        return np.full(len(requests_per_hour), fixed)
    starts = workload.starts_per_second / workload.requests_per_hour * requests_per_hour
    rates = _hit_rates(
        Traffic.of(workload),
        tuple(starts.tolist()),
        option.seconds,
        bool(option.renewed),
        visible_after,
    )
    return _one_first(workload, rates)


def _whatever_the_pace(
    workload: Workload, option: CacheOption, visible_after: float
) -> float | None:
    """The hit rate where requests an hour do not matter; None where they do."""
    if option.stored:
        return 1.0
    if workload.unstable_top or workload.batch:
        return 0.0
    if workload.arrivals != "recorded":
        return None
    rate = _replayed(
        workload.recorded,
        workload.recorded_prefixes,
        option.seconds,
        bool(option.renewed),
        visible_after,
    )
    return float(_one_first(workload, rate))


def _one_first(workload: Workload, rate: float | np.ndarray) -> float | np.ndarray:
    if workload.send_one_first and workload.parallel > 1:
        return 1 - (1 - rate) / workload.parallel
    return rate


@lru_cache(maxsize=32)
def _replayed(
    recorded: tuple[float, ...],
    prefixes: tuple[str, ...],
    lifetime: float,
    renewed: bool,
    visible_after: float,
) -> float:
    return replay_arrivals(
        recorded,
        lifetime,
        renewed=renewed,
        visible_after=visible_after,
        prefixes=prefixes or None,
    ).rate


@lru_cache(maxsize=1024)
def _hit_rates(
    traffic: Traffic,
    starts: tuple[float, ...],
    lifetime: float,
    renewed: bool,
    visible_after: float,
) -> np.ndarray:
    """The hit rate at each of so many starts a second, over all prefixes."""
    if traffic.arrivals == "schedule":
        return np.array([_schedule(traffic, s, lifetime, renewed, visible_after) for s in starts])
    shares, counts = _shares(traffic)
    hits = day_hit_rates(
        np.outer(starts, shares / counts).ravel(),
        lifetime,
        Day(traffic.hours_per_day * 3600),
        touches=traffic.touches,
        renewed=renewed,
        visible_after=visible_after,
    )
    return hits.reshape(len(starts), len(shares)) @ shares


def _shares(traffic: Traffic) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the traffic, and how many prefixes have each together."""
    if not traffic.uneven or traffic.prefixes == 1:
        return np.array([1.0]), np.array([traffic.prefixes])
    return _zipf_groups(traffic.prefixes)


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


def _schedule(
    traffic: Traffic, starts: float, lifetime: float, renewed: bool, visible_after: float
) -> float:
    gap = traffic.prefixes / starts
    lasting = sum(touch.mean * touch.count for touch in traffic.touches)
    idle = max(gap - lasting, 1e-9) if renewed else gap
    steady = schedule_hit_rate(idle, lifetime, renewed=renewed, visible_after=visible_after)
    per_day = traffic.hours_per_day * 3600 / gap
    night = (24 - traffic.hours_per_day) * 3600 + min(gap, traffic.hours_per_day * 3600)
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
        return np.zeros(len(calls.in_loop))
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
    read, write = read_and_written(workload, rules, option, placement, prefix_hit, calls, stable)
    prompt = calls.prompt.astype(float)
    return Expected(prompt, prompt - read - write, read, write, prefix_hit)


def read_and_written(
    workload: Workload,
    rules: Rules,
    option: CacheOption,
    placement: str,
    prefix_hit: float,
    calls: Conversation,
    stable: int | np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Expected tokens (read, written) of each call, `stable` of its prompt being cacheable.

    `stable` may be a column (n, 1) of lengths when `calls.prompt` and `calls.previous` have a row
    for each: (n, calls).
    """
    if option.stored:
        return stable * calls.keeps_prefix, np.zeros(calls.prompt.shape)
    if placement == PREFIX:
        keeps = _own_prefix_hit_rates(workload, option, calls)
        alive = (1 - (1 - keeps) * (1 - prefix_hit)) * calls.keeps_prefix
        return stable * alive, stable * (1 - alive)
    return _whole_conversation(workload, rules, option, prefix_hit, calls, stable)


def _whole_conversation(
    workload: Workload,
    rules: Rules,
    option: CacheOption,
    prefix_hit: float,
    calls: Conversation,
    stable: int | np.ndarray,
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
