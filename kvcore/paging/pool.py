"""A request's stay in the pool, and what every way of giving room must do."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvcore.paging.keys import BlockKeys
from kvcore.paging.requests import Request


@dataclass(slots=True, eq=False)
class Stay:
    """A request in the pool, from an admission to its end or its preemption.

    `stored` tokens of each sample are there while step `start` runs, and one more each step.
    `next_event` is the first step for which there is no room (beyond `capacity` tokens) or no
    token (beyond `final`). `places` is what it owns: for each sample the address of a chunk, or a
    block table. `num_hit_tokens` were found there, not computed.
    """

    index: int
    request: Request
    stored: int
    start: int = -1
    capacity: int = 0
    places: list = field(default_factory=list)
    keys: BlockKeys | None = None
    num_hit_tokens: int = 0
    readmitted: bool = False
    running: bool = False
    end: int | None = None
    preempted: bool = False
    final: int = field(init=False)
    next_event: int = -1

    def __post_init__(self) -> None:
        self.final = self.request.length

    def begin(self, step: int, capacity: int) -> None:
        """Enter the pool at `step` with room for `capacity` tokens of each sample."""
        self.start = step
        self.next_event = step + 1 - self.stored
        self.extend(capacity)

    def extend(self, tokens: int) -> int:
        """Room for so many tokens more; how many of them will come."""
        left = self.final - self.capacity
        usable = tokens if tokens < left else left
        self.capacity += tokens
        self.next_event += usable
        return usable

    @property
    def num_known(self) -> int:
        """Tokens of each sample that exist before the first step of the stay."""
        return self.stored - 1

    def length(self, step: int) -> int:
        """Tokens of each sample that are stored while `step` runs."""
        return self.stored + step - self.start


class Pool:
    """What a policy must do, and the account of the slots it has given away.

    Of the `allocated` slots, `future` wait for tokens that will come, `never` for tokens that will
    not, and `rounding` was added by the allocator; the rest holds tokens. `future` shrinks by
    `growth` tokens a step.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.future: float = 0
        self.never: float = 0
        self.rounding = 0
        self.growth = 0

    @property
    def allocated(self) -> float:
        """Slots given to requests."""
        raise NotImplementedError

    @property
    def free(self) -> float:
        """Slots given to nobody, those no request can ever get included."""
        return self.num_slots - self.allocated

    @property
    def largest_free(self) -> float:
        """Slots the next request could get at once."""
        raise NotImplementedError

    def why_never(self, request: Request) -> str | None:
        """Why even an empty pool cannot hold the request, in one sentence; None when it can."""
        raise NotImplementedError

    def admit(self, stay: Stay, step: int, alone: bool) -> bool:
        """Give the stay its first room at `step` if it fits; `alone` when nothing else runs."""
        raise NotImplementedError

    def grow(self, stay: Stay) -> bool:
        """Give each sample room for one more token, if there is any."""
        raise NotImplementedError

    def release(self, stay: Stay, step: int) -> None:
        """Take everything back as `step` begins."""
        raise NotImplementedError
