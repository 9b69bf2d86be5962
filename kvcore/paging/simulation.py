"""Requests through a pool: first come first served, one token per running request and step.

Event-driven: between two events (an arrival, an end, a request that needs more room) nothing
changes but lengths, so the account is advanced in closed form. What is modelled: prefill takes no
time, a step gives each running request one token, the slot of a new token is taken in the step
that computes it. Kwon et al. (SOSP 2023), section 4.5, and vLLM's scheduler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from math import ceil

from kvcore.checks import whole
from kvcore.paging.policies import LARGEST_PAGE_BYTES, OPT_13B_TENSOR_BYTES, make_pool
from kvcore.paging.pool import Pool, Stay
from kvcore.paging.requests import PAPER_MAX_MODEL_LEN, Request
from kvcore.paging.results import (
    TOO_LARGE,
    TOO_LONG,
    Parts,
    Preemption,
    Refusal,
    SimulationResult,
    Timeline,
)

PAPER_NUM_SLOTS = 15_728
EDGE = 0.05


@dataclass(frozen=True, slots=True)
class Rules:
    """How requests are let in and put out.

    `look_ahead`: how many requests behind a blocked one may be tried; 0 is strict first come
    first served. Nothing overtakes a preempted request. `preemption` is "recompute" or "swap";
    swapping into full `swap_slots` falls back to recomputing. `max_batch` caps what runs at once.
    Raises ValueError for a setting that cannot be.
    """

    look_ahead: int = 0
    preemption: str = "recompute"
    swap_slots: int | None = None
    max_batch: int | None = None
    max_model_len: int = PAPER_MAX_MODEL_LEN

    def __post_init__(self) -> None:
        if self.preemption not in ("recompute", "swap"):
            raise ValueError('preemption is "recompute" or "swap".')
        whole("look_ahead", self.look_ahead, 0)
        if self.max_batch is not None:
            whole("max_batch", self.max_batch, 1)
        if self.swap_slots is not None:
            whole("swap_slots", self.swap_slots, 0)


def simulate(
    requests: Sequence[Request],
    policy: str = "paged",
    num_slots: int = PAPER_NUM_SLOTS,
    block_size: int = 16,
    watermark: float = 0.01,
    *,
    max_model_len: int = PAPER_MAX_MODEL_LEN,
    look_ahead: int = 0,
    preemption: str = "recompute",
    swap_slots: int | None = None,
    max_batch: int | None = None,
    prefix_caching: bool = True,
    page_bytes: int = LARGEST_PAGE_BYTES,
    tensor_bytes: int = OPT_13B_TENSOR_BYTES,
    record: bool = False,
) -> SimulationResult:
    """Run all requests through a pool of `num_slots` KV slots (room for one token each).

    `policy` is one of `POLICIES`. `block_size` and `prefix_caching` concern "paged", `page_bytes`
    and `tensor_bytes` "demand-paged", `watermark` both. Requests longer than `max_model_len`, or
    that could never fit, are refused. `record` keeps who owned which slots, for `pool_state`.
    For the other settings see `Rules`. The averages of the result are over the middle 90 % of
    completions. Raises ValueError for settings that cannot be.
    """
    _check_requests(requests)
    rules = Rules(look_ahead, preemption, swap_slots, max_batch, max_model_len)
    pool = make_pool(
        policy,
        num_slots,
        block_size,
        watermark,
        max_model_len,
        page_bytes,
        tensor_bytes,
        prefix_caching,
    )
    return Simulation(requests, pool, rules, record).run().result(policy)


def _check_requests(requests: Sequence[Request]) -> None:
    if not isinstance(requests, Sequence) or not all(isinstance(r, Request) for r in requests):
        raise ValueError("requests must be a list of Request; make them with paper_requests, say.")


class Simulation:
    """One run. `step` is the step about to be computed; `advance` goes on to the next event."""

    def __init__(
        self, requests: Sequence[Request], pool: Pool, rules: Rules, record: bool = False
    ) -> None:
        self.requests = requests
        self.pool = pool
        self.rules = rules
        self.step = 0
        self.running: dict[int, Stay] = {}
        self.waiting: deque[Stay] = deque()
        self.refused: list[Refusal] = []
        self.preemptions: list[Preemption] = []
        self.admitted_at: list[int | None] = [None] * len(requests)
        self.finished_at: list[int | None] = [None] * len(requests)
        self.stays: list[Stay] | None = [] if record else None
        self.timeline = Timeline()
        self.recomputed_tokens = 0
        self.swapped_tokens = 0
        self.prompt_tokens = 0
        self.hit_tokens = 0
        self.rehit_tokens = 0
        self.num_completed = 0
        self._swapped: dict[int, float] = {}
        self._arrivals = deque(self._accept())
        self._calendar: dict[int, list[Stay]] = {}
        self._event_steps: list[int] = []
        self._room_may_have_come = True
        self._window = _Window(len(self._arrivals))

    def run(self) -> Simulation:
        """Until every request has ended."""
        while self.advance():
            pass
        return self

    def advance(self) -> bool:
        """Take the events of this step, let requests in, go on to the next event.

        False when nothing is left to do.
        """
        if self._arrivals:
            self._receive()
        step, pool, num_preempted = self.step, self.pool, len(self.preemptions)
        self._end_and_grow(self._calendar.pop(step, ()))
        if len(self.preemptions) > num_preempted:
            self._schedule(step + 1)
        elif self._room_may_have_come:
            self._admit()
        if step >= self.timeline.next_step:
            self.timeline.note(step, pool, len(self.running), len(self.waiting))
        next_step = self._next_step()
        if next_step is None:
            return False
        if self._window.is_open:
            self._window.add(next_step - step, len(self.running), pool)
        pool.future -= pool.growth * (next_step - step)
        self.step = next_step
        return True

    def result(self, policy: str) -> SimulationResult:
        """What the run came to; see `SimulationResult`."""
        return SimulationResult(
            policy=policy,
            num_slots=self.pool.num_slots,
            requests=self.requests,
            steps=self.step,
            parts=self._window.parts(self.pool.num_slots),
            batch_size=self._window.batch_size,
            requests_per_step=self._window.requests_per_step,
            refused=self.refused,
            preemption_log=self.preemptions,
            recomputed_tokens=self.recomputed_tokens,
            swapped_tokens=self.swapped_tokens,
            prompt_tokens=self.prompt_tokens,
            hit_tokens=self.hit_tokens,
            rehit_tokens=self.rehit_tokens,
            copied_blocks=getattr(getattr(self.pool, "blocks", None), "num_copies", 0),
            admitted_at=self.admitted_at,
            finished_at=self.finished_at,
            timeline=self.timeline,
            stays=self.stays,
            pool=self.pool,
        )

    def _accept(self) -> list[Stay]:
        """Stays of the requests that can be served, by arrival; the others are refused at once."""
        stays = []
        for index, request in enumerate(self.requests):
            refusal = self._refusal(index, request)
            if refusal is None:
                stays.append(Stay(index, request, request.prompt + 1))
            else:
                self.refused.append(refusal)
        return sorted(stays, key=lambda stay: stay.request.arrival)

    def _refusal(self, index: int, request: Request) -> Refusal | None:
        longest = self.rules.max_model_len
        if request.length > longest:
            reason = (
                f"It has {request.length:,} tokens with its output, and the model takes at most "
                f"{longest:,}."
            )
            return Refusal(index, TOO_LONG, reason)
        reason = self.pool.why_never(request)
        return None if reason is None else Refusal(index, TOO_LARGE, reason)

    def _receive(self) -> None:
        while self._arrivals and self._arrivals[0].request.arrival <= self.step:
            self.waiting.append(self._arrivals.popleft())
            self._room_may_have_come = True

    def _end_and_grow(self, due: Sequence[Stay]) -> None:
        for stay in due:
            if stay.running and stay.capacity >= stay.final:
                self._finish(stay)
        grow, schedule = self.pool.grow, self._schedule
        for stay in due:
            while stay.running and not grow(stay):
                self._preempt(wanted_by=stay)
            if stay.running:
                schedule(stay.next_event, stay)

    def _finish(self, stay: Stay) -> None:
        self._leave(stay)
        self.finished_at[stay.index] = self.step
        self.num_completed += 1
        self._window.completed(self.num_completed)

    def _preempt(self, wanted_by: Stay) -> None:
        """Put out the latest request; its tokens so far are kept in words, not in the pool."""
        victim = next(reversed(self.running.values()))
        allocated = self.pool.allocated
        self._leave(victim)
        victim.preempted = True
        known = victim.length(self.step) - 1
        freed = allocated - self.pool.allocated
        swapped = self._swap_out(victim, known, freed)
        self.preemptions.append(
            Preemption(self.step, victim.index, wanted_by.index, known, freed, swapped)
        )
        again = Stay(victim.index, victim.request, known + 1, keys=victim.keys, readmitted=True)
        self.waiting.appendleft(again)

    def _swap_out(self, victim: Stay, known: int, freed: float) -> bool:
        if self.rules.preemption != "swap":
            return False
        limit = self.rules.swap_slots
        if limit is not None and sum(self._swapped.values()) + freed > limit:
            return False
        self._swapped[victim.index] = freed
        self.swapped_tokens += self._computed_again(victim, known)
        return True

    def _leave(self, stay: Stay) -> None:
        self.pool.release(stay, self.step)
        stay.running = False
        stay.end = self.step
        del self.running[stay.index]
        self._room_may_have_come = True

    def _admit(self) -> None:
        """Let in from the front until one does not fit; then look ahead as far as allowed."""
        while self.waiting and self._try(self.waiting[0]):
            self.waiting.popleft()
        self._room_may_have_come = False
        if not self.waiting or self.waiting[0].readmitted or not self.rules.look_ahead:
            return
        behind = list(islice(self.waiting, 1, 1 + self.rules.look_ahead))
        for stay in behind:
            if self._try(stay):
                self.waiting.remove(stay)
                self._room_may_have_come = True

    def _try(self, stay: Stay) -> bool:
        if self.rules.max_batch is not None and len(self.running) >= self.rules.max_batch:
            return False
        if not self.pool.admit(stay, self.step, alone=not self.running):
            return False
        stay.running = True
        self.running[stay.index] = stay
        self._schedule(stay.next_event, stay)
        if self.stays is not None:
            self.stays.append(stay)
        self._count_admission(stay)
        return True

    def _count_admission(self, stay: Stay) -> None:
        if not stay.readmitted:
            self.admitted_at[stay.index] = self.step
            self.prompt_tokens += stay.request.prompt
            self.hit_tokens += stay.num_hit_tokens
            return
        self.rehit_tokens += stay.num_hit_tokens
        if self._swapped.pop(stay.index, None) is None:
            again = self._computed_again(stay, stay.num_known)
            self.recomputed_tokens += again - stay.num_hit_tokens

    def _computed_again(self, stay: Stay, known: int) -> int:
        """Tokens a stay holds once: the prompt is common to all samples."""
        request = stay.request
        return request.prompt + request.samples * (known - request.prompt)

    def _schedule(self, step: int, stay: Stay | None = None) -> None:
        due = self._calendar.get(step)
        if due is None:
            due = self._calendar[step] = []
            heappush(self._event_steps, step)
        if stay is not None:
            due.append(stay)

    def _next_step(self) -> int | None:
        steps = self._event_steps
        while steps and steps[0] <= self.step:
            heappop(steps)
        event = steps[0] if steps else None
        if not self._arrivals:
            return event
        arrival = ceil(self._arrivals[0].request.arrival)
        return arrival if event is None else min(arrival, event)


class _Window:
    """Sums over the steps between the first and the last 5 % of completions."""

    def __init__(self, num_requests: int) -> None:
        self._first = int(EDGE * num_requests)
        self._last = num_requests - self._first
        self.is_open = self._first == 0
        self._steps = 0
        self._batch = 0
        self._allocated: float = 0
        self._future: float = 0
        self._never: float = 0
        self._rounding: float = 0

    def completed(self, count: int) -> None:
        self.is_open = self._first <= count < self._last

    def add(self, steps: int, batch: int, pool: Pool) -> None:
        self._steps += steps
        self._batch += steps * batch
        self._allocated += steps * pool.allocated
        self._future += steps * pool.future - pool.growth * steps * (steps - 1) / 2
        self._never += steps * pool.never
        self._rounding += steps * pool.rounding

    @property
    def batch_size(self) -> float:
        """Requests running, averaged over steps; 0 when no step was measured."""
        return self._batch / max(1, self._steps)

    @property
    def requests_per_step(self) -> float:
        return (self._last - self._first) / max(1, self._steps)

    def parts(self, num_slots: int) -> Parts:
        steps = max(1, self._steps)
        waiting = self._future + self._never + self._rounding
        return Parts(
            tokens=(self._allocated - waiting) / steps,
            future=self._future / steps,
            never=self._never / steps,
            rounding=self._rounding / steps,
            free=num_slots - self._allocated / steps,
        )
