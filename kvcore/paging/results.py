"""What a run came to: how the memory was split, who waited, who was put out, at what price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from kvcore.paging.requests import Request

if TYPE_CHECKING:
    from kvcore.paging.pool import Pool, Stay

BUDDY_SLACK = ("external", "internal")
BLOCK_SLACK = ("strict", "reservation", "internal", "halved")
MAX_POINTS = 800


TOO_LONG, TOO_LARGE = "longer than the model takes", "larger than the pool"


class Refusal(NamedTuple):
    """A request that is not served: its index, what `kind` of refusal, and why, in a sentence.

    `kind` is `TOO_LONG` or `TOO_LARGE`.
    """

    index: int
    kind: str
    reason: str


class Preemption(NamedTuple):
    """At `step` request `index` lost its room to `wanted_by`.

    `tokens` of each sample must be computed again unless `swapped`; `freed` slots came free.
    """

    step: int
    index: int
    wanted_by: int
    tokens: int
    freed: float
    swapped: bool


class Moment(NamedTuple):
    """The pool while one step runs, in slots."""

    step: int
    tokens: float
    future: float
    never: float
    rounding: float
    free: float
    largest_free: float
    running: int
    waiting: int


@dataclass(slots=True)
class Timeline:
    """At most `MAX_POINTS` moments, evenly thinned as the run goes on."""

    moments: list[Moment] = field(default_factory=list)
    stride: int = 1
    next_step: int = 0

    def note(self, step: int, pool: Pool, running: int, waiting: int) -> None:
        allocated = pool.allocated
        slack = pool.future + pool.never + pool.rounding
        self.moments.append(
            Moment(
                step,
                allocated - slack,
                pool.future,
                pool.never,
                pool.rounding,
                pool.num_slots - allocated,
                pool.largest_free,
                running,
                waiting,
            )
        )
        self.next_step = step + self.stride
        if len(self.moments) >= MAX_POINTS:
            self.moments = self.moments[::2]
            self.stride *= 2


@dataclass(frozen=True, slots=True)
class Parts:
    """Slots by what is in them, averaged over steps; they sum to the pool.

    `tokens`: keys and values. `future`: given to a request that will fill them. `never`: given to
    one that will not (over-reserved, or the tail of its last block). `rounding`: added by the buddy
    allocator. `free`: nobody's.
    """

    tokens: float
    future: float
    never: float
    rounding: float
    free: float


@dataclass(frozen=True, slots=True)
class Split:
    """The four segments of the paper's Figure 2, in percent of the pool; they sum to 100."""

    token_states: float
    reservation: float
    internal: float
    external: float


def split_of(
    policy: str, parts: Parts, num_slots: int, buddy_slack: str, block_slack: str
) -> Split:
    """Name the parts of a policy's memory; see `SimulationResult.split`."""
    if buddy_slack not in BUDDY_SLACK:
        raise ValueError(f"buddy_slack is one of {', '.join(BUDDY_SLACK)}.")
    if block_slack not in BLOCK_SLACK:
        raise ValueError(f"block_slack is one of {', '.join(BLOCK_SLACK)}.")
    future, never = parts.future, parts.never
    if policy in ("paged", "demand-paged") and block_slack != "strict":
        share = {"reservation": 1.0, "internal": 0.0, "halved": 0.5}[block_slack]
        slack = future + never
        future, never = slack * share, slack * (1 - share)
    inside = buddy_slack == "internal"
    internal = never + (parts.rounding if inside else 0)
    external = parts.free + (0 if inside else parts.rounding)
    percent = 100 / num_slots
    return Split(parts.tokens * percent, future * percent, internal * percent, external * percent)


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """One policy on one list of requests.

    `token_states`, `reservation`, `internal` and `external` are percent of the pool under the
    paper's definitions; `split` gives them under others. `batch_size` is requests running and
    `requests_per_step` requests completed per step. Counts are over the whole run, averages over
    the middle 90 % of completions. `steps` is the length of the run; `admitted_at` and
    `finished_at` are None for refused requests. `hit_tokens` of `prompt_tokens` were found in the
    pool at first admission; `rehit_tokens` are what preempted requests found again of themselves,
    counted apart.
    """

    policy: str
    num_slots: int
    requests: Sequence[Request]
    steps: int
    parts: Parts
    batch_size: float
    requests_per_step: float
    refused: list[Refusal]
    preemption_log: list[Preemption]
    recomputed_tokens: int
    swapped_tokens: int
    prompt_tokens: int
    hit_tokens: int
    rehit_tokens: int
    copied_blocks: int
    admitted_at: list[int | None]
    finished_at: list[int | None]
    timeline: Timeline = field(repr=False)
    stays: list[Stay] | None = field(repr=False)
    pool: Pool = field(repr=False)

    def split(self, buddy_slack: str = "external", block_slack: str = "strict") -> Split:
        """The memory under other definitions; no slot moves, only its name changes.

        `buddy_slack`: "external" (the paper's) or "internal". `block_slack`, for slots of
        blocks that are begun: "strict" (reservation if the request will fill them, else internal),
        all "reservation", all "internal", or "halved" between the two, as the paper's bars have it.
        Raises ValueError for another word.
        """
        return split_of(self.policy, self.parts, self.num_slots, buddy_slack, block_slack)

    @property
    def token_states(self) -> float:
        return self.split().token_states

    @property
    def reservation(self) -> float:
        return self.split().reservation

    @property
    def internal(self) -> float:
        return self.split().internal

    @property
    def external(self) -> float:
        return self.split().external

    @property
    def preemptions(self) -> int:
        """How often a request was put out."""
        return len(self.preemption_log)

    @property
    def completed(self) -> int:
        return sum(step is not None for step in self.finished_at)

    @property
    def generated_tokens(self) -> int:
        """Output tokens of all samples of the requests that were served."""
        return sum(
            request.samples * request.output
            for request, step in zip(self.requests, self.finished_at, strict=True)
            if step is not None
        )

    @property
    def preemptions_per_request(self) -> float:
        return self.preemptions / max(1, self.completed)

    @property
    def recomputed_per_generated(self) -> float:
        """The price of preemption: tokens computed again for each token generated."""
        return self.recomputed_tokens / max(1, self.generated_tokens)

    @property
    def most_preempted(self) -> tuple[int, int]:
        """The request put out most often and how often; (-1, 0) when none was."""
        counts: dict[int, int] = {}
        for preemption in self.preemption_log:
            counts[preemption.index] = counts.get(preemption.index, 0) + 1
        return max(counts.items(), key=lambda pair: pair[1], default=(-1, 0))

    @property
    def waits(self) -> list[float]:
        """Steps from arrival to first admission, of the requests that were served."""
        return [
            admitted - request.arrival
            for request, admitted in zip(self.requests, self.admitted_at, strict=True)
            if admitted is not None
        ]

    @property
    def mean_wait(self) -> float:
        return mean(self.waits) if any(self.waits) else 0.0
