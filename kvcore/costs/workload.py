"""The plain questions an estimate starts from, and the prompts they add up to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kvcore.costs.traffic import Touches

MODEL_SWITCH = "model switch"
TOOLS_CHANGED = "tools changed"
COMPACTION = "compaction"
EVENT_KINDS = (COMPACTION, MODEL_SWITCH, TOOLS_CHANGED)

ARRIVALS = ("poisson", "schedule", "recorded")


class WorkloadError(ValueError):
    """An answer that cannot be; the message names it in one sentence."""


@dataclass(frozen=True)
class Event:
    """Something that breaks a conversation's cache before its call number `call` (from 2).

    A compaction replaces the history with a summary of `summary_tokens`; the stable prefix
    stays cached. Another model, or other tools, lose everything.
    """

    call: int
    kind: str
    summary_tokens: int = 1000


@dataclass(frozen=True)
class Workload:
    """Traffic in plain numbers; tokens, seconds, and API requests.

    `requests_per_hour` counts every API request, also the later turns of a conversation and the
    calls of an agent loop. `parallel` conversations start at the same moment with the same
    prefix. `recorded` holds arrival times in seconds (with `recorded_prefixes`, whose prefix
    each used): the hit rate is then replayed instead of derived. `visible_after_seconds`: how
    long after a write it can be read; None takes the provider's. `unstable_top`: something at
    the top of the prompt, a timestamp say, differs in every request. `batch`: sent through the
    batch interface, where the items of a batch never see each other's writes.
    """

    prefix_tokens: int = 6_000
    changing_tokens: int = 400
    answer_tokens: int = 500
    requests_per_hour: float = 120.0
    hours_per_day: float = 10.0
    days_per_month: float = 22.0
    prefixes: int = 1
    uneven: bool = False
    turns: int = 1
    seconds_between_turns: float = 60.0
    calls_per_turn: int = 1
    seconds_between_calls: float = 8.0
    parallel: int = 1
    arrivals: str = "poisson"
    recorded: tuple[float, ...] = ()
    recorded_prefixes: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    visible_after_seconds: float | None = None
    unstable_top: bool = False
    send_one_first: bool = False
    batch: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, (float, int)) and not math.isfinite(value):
                raise WorkloadError(f"{_words(name)} must be a finite number.")
        _at_least(self, 0, "prefix_tokens", "changing_tokens", "answer_tokens")
        _at_least(self, 1, "prefixes", "turns", "calls_per_turn", "parallel")
        _at_least(self, 0, "seconds_between_turns", "seconds_between_calls")
        if self.requests_per_hour <= 0:
            raise WorkloadError("Requests per hour must be more than 0.")
        if not 0 < self.hours_per_day <= 24:
            raise WorkloadError("Working hours per day must be more than 0 and at most 24.")
        if not 0 < self.days_per_month <= 31:
            raise WorkloadError("Working days per month must be more than 0 and at most 31.")
        if self.prefix_tokens + self.changing_tokens == 0:
            raise WorkloadError("The prompt is empty: give the prefix or the changing part tokens.")
        if self.calls > 2000:
            raise WorkloadError(
                f"{self.calls:,} calls in one conversation are more than the 2,000 this estimate "
                "follows one by one."
            )
        if self.arrivals not in ARRIVALS:
            raise WorkloadError(f"Arrivals must be one of {', '.join(ARRIVALS)}.")
        if self.arrivals == "recorded" and len(self.recorded) < 2:
            raise WorkloadError("Recorded arrivals need at least two times.")
        for event in self.events:
            if event.kind not in EVENT_KINDS:
                raise WorkloadError(f"An event is one of {', '.join(EVENT_KINDS)}.")
            if not 2 <= event.call <= self.calls:
                raise WorkloadError(
                    f"An event comes before call 2 to {self.calls}, not before call {event.call}."
                )

    @property
    def calls(self) -> int:
        """API requests in one conversation."""
        return self.turns * self.calls_per_turn

    @property
    def requests_per_month(self) -> float:
        return self.requests_per_hour * self.hours_per_day * self.days_per_month

    @property
    def conversations_per_month(self) -> float:
        return self.requests_per_month / self.calls

    @property
    def starts_per_second(self) -> float:
        """Moments per second of the working hours at which conversations start, all prefixes."""
        return self.requests_per_hour / 3600 / self.calls / self.parallel

    def touches(self) -> tuple[Touches, ...]:
        """When one conversation touches the shared prefix again after its first call."""
        return (
            Touches(self.seconds_between_turns, self.turns - 1, random=True),
            Touches(self.seconds_between_calls, self.turns * (self.calls_per_turn - 1)),
        )


def _at_least(workload: Workload, least: int, *names: str) -> None:
    for name in names:
        if getattr(workload, name) < least:
            raise WorkloadError(f"{_words(name)} must be at least {least}.")


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


@dataclass(frozen=True)
class Conversation:
    """The API requests of one conversation in order, as arrays with an entry for each.

    `prompt`: tokens sent, all that came before included. `previous`: the prompt of the call
    before, all of it a prefix of this one, or 0 when something (a compaction, another model) came
    between. `in_loop`: the call follows at a loop's pace rather than after a person's pause.
    `keeps_prefix` is False where even the stable prefix cannot be read.
    """

    prompt: np.ndarray
    previous: np.ndarray
    in_loop: np.ndarray
    keeps_prefix: np.ndarray


def conversation(workload: Workload) -> Conversation:
    """The calls of one conversation: each resends all that came before it."""
    return _conversation(
        workload.prefix_tokens,
        workload.calls,
        workload.calls_per_turn,
        workload.changing_tokens,
        workload.answer_tokens,
        workload.events,
    )


def conversations(workload: Workload, prefix_tokens: np.ndarray) -> Conversation:
    """The same at n other lengths of the stable prefix: `prompt`, `previous` are (n, calls)."""
    one = conversation(workload)
    longer = prefix_tokens[:, None] - workload.prefix_tokens
    previous = np.where(one.previous > 0, one.previous + longer, 0)
    return Conversation(one.prompt + longer, previous, one.in_loop, one.keeps_prefix)


@lru_cache(maxsize=64)
def _conversation(
    prefix: int,
    calls: int,
    calls_per_turn: int,
    changing: int,
    answer: int,
    events: tuple[Event, ...],
) -> Conversation:
    history, chained, in_loop, keeps_prefix = _course(
        calls, calls_per_turn, changing, answer, events
    )
    prompt = prefix + history + changing
    before = np.concatenate([[0], prompt[:-1]])
    return Conversation(prompt, np.where(chained, before, 0), in_loop, keeps_prefix)


@lru_cache(maxsize=256)
def _course(
    calls: int, calls_per_turn: int, changing: int, answer: int, events: tuple[Event, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(history before each call, whether it continues the one before, in a loop, prefix kept)."""
    by_call = {event.call: event for event in events}
    history = np.zeros(calls, dtype=np.int64)
    for index in range(1, calls):
        event = by_call.get(index + 1)
        compacted = event is not None and event.kind == COMPACTION
        grown = history[index - 1] + changing + answer
        history[index] = event.summary_tokens if compacted else grown
    numbers = np.arange(calls)
    broken = np.isin(numbers + 1, list(by_call))
    cold = [call for call, event in by_call.items() if event.kind != COMPACTION]
    return (
        history,
        ~broken & (numbers > 0),
        numbers % calls_per_turn != 0,
        ~np.isin(numbers + 1, cold),
    )
