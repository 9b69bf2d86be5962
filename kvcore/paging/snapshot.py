"""The pool at one step of a recorded run: who owns which slots, what is free, who waits and why."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from kvcore.paging.buddy import buddy_roots, buddy_size
from kvcore.paging.contiguous import ContiguousPool
from kvcore.paging.paged import PagedPool
from kvcore.paging.pool import Stay
from kvcore.paging.results import SimulationResult


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring slots given away together: a buddy chunk, or a block.

    `owners` are request indices, several where a block is shared. From `address`, `tokens` slots
    are filled, the next `future` will be, the next `never` will not, and the last `rounding` were
    added by the buddy allocator. `first_token` is the position of the first token in its sample.
    `label` names the block or chunk.
    """

    address: float
    size: float
    owners: tuple[int, ...]
    tokens: float
    future: float
    never: float
    rounding: float
    first_token: int
    label: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """The request at the head of the queue: what it asks for and why it does not get it."""

    index: int
    waited: float
    needs: float
    free: float
    largest_free: float
    reason: str


@dataclass(frozen=True)
class PoolState:
    """The pool while `step` runs. All sizes in slots."""

    step: int
    num_slots: int
    pieces: list[Piece]
    free_chunks: list[tuple[float, float]]
    running: dict[int, int]
    num_waiting: int
    head: Blocked | None

    @cached_property
    def usable(self) -> float:
        """Slots of all free chunks or blocks together."""
        return sum(size for _, size in self.free_chunks)

    @cached_property
    def free(self) -> float:
        """Slots nobody owns, those too few for a block included."""
        return self.num_slots - sum(piece.size for piece in self.pieces)

    @cached_property
    def largest_free(self) -> float:
        """Slots in the largest free chunk: for blocks, the longest row of free neighbours."""
        return max((size for _, size in self.free_chunks), default=0)


def pool_state(result: SimulationResult, step: int) -> PoolState:
    """The pool while `step` of a run that was simulated with `record=True` is computed.

    Raises ValueError when nothing was recorded or the step lies outside the run.
    """
    if result.stays is None:
        raise ValueError("Simulate with record=True to look into the pool.")
    if not 0 <= step <= result.steps:
        raise ValueError(f"The run has steps 0 to {result.steps:,}.")
    stays = [stay for stay in result.stays if stay.start <= step < stay.end]
    pieces = list(_pieces(result, stays, step))
    running = {stay.index: stay.length(step) for stay in stays}
    waiting = _waiting(result, step)
    state = PoolState(
        step,
        result.num_slots,
        pieces,
        _free_chunks(result, pieces),
        running,
        len(waiting),
        None,
    )
    if not waiting:
        return state
    head = _blocked(result, state, *waiting[0])
    return PoolState(step, result.num_slots, pieces, state.free_chunks, running, len(waiting), head)


def largest_for_one(result: SimulationResult, state: PoolState) -> float:
    """Slots one request could be given: one chunk of a contiguous pool, or all free blocks."""
    return state.usable if isinstance(result.pool, PagedPool) else state.largest_free


def _pieces(result: SimulationResult, stays: list[Stay], step: int) -> Iterator[Piece]:
    if isinstance(result.pool, PagedPool):
        return _blocks(result.pool, stays, step)
    return _chunks(result.pool, stays, step)


def _chunks(pool: ContiguousPool, stays: list[Stay], step: int) -> Iterator[Piece]:
    for stay in stays:
        reserved = pool.reserved(stay.request)
        size = buddy_size(reserved)
        length = stay.length(step)
        for sample, address in enumerate(stay.places):
            name = f"chunk at {address:,}"
            yield Piece(
                address,
                size,
                (stay.index,),
                length,
                stay.final - length,
                reserved - stay.final,
                size - reserved,
                0,
                name if len(stay.places) == 1 else f"{name}, sample {sample + 1}",
            )


def _blocks(pool: PagedPool, stays: list[Stay], step: int) -> Iterator[Piece]:
    """Each block once, however many own it; a table is read as long as it was at `step`."""
    owners: dict[int, list[int]] = {}
    uses: dict[int, tuple[Stay, int]] = {}
    for stay in stays:
        count = pool.blocks_for(stay.length(step))
        for table in stay.places:
            for index, block in enumerate(table[:count]):
                owners.setdefault(block, []).append(stay.index)
                uses[block] = (stay, index)
    for block, (stay, index) in sorted(uses.items()):
        yield _block(pool, block, tuple(owners[block]), stay, index, step)


def _block(
    pool: PagedPool, block: int, owners: tuple[int, ...], stay: Stay, index: int, step: int
) -> Piece:
    size, first = pool.block_slots, index * pool.block_slots
    tokens = min(size, stay.length(step) - first)
    future = min(size, stay.final - first) - tokens
    return Piece(
        block * size,
        size,
        owners,
        tokens,
        future,
        size - tokens - future,
        0,
        int(first),
        f"block {block}",
    )


def _free_chunks(result: SimulationResult, pieces: list[Piece]) -> list[tuple[float, float]]:
    if isinstance(result.pool, PagedPool):
        return _gaps(result.pool, pieces)
    taken = sorted((piece.address, piece.size) for piece in pieces)
    chunks: list[tuple[float, float]] = []
    for address, size in buddy_roots(result.num_slots):
        chunks += _free_buddies(address, size, taken)
    return chunks


def _gaps(pool: PagedPool, pieces: list[Piece]) -> list[tuple[float, float]]:
    """Rows of free neighbouring blocks."""
    size = pool.block_slots
    used = [round(piece.address / size) for piece in pieces]
    edges = zip([-1, *used], [*used, pool.blocks.num_blocks], strict=True)
    return [((a + 1) * size, (b - a - 1) * size) for a, b in edges if b - a > 1]


def _free_buddies(
    address: int, size: int, taken: list[tuple[float, float]]
) -> list[tuple[int, int]]:
    """Free chunks inside one buddy: itself, nothing, or those of its halves."""
    first = bisect_left(taken, (address, 0))
    if first < len(taken) and taken[first] == (address, size):
        return []
    if first == bisect_right(taken, (address + size - 1, float("inf"))):
        return [(address, size)]
    half = size // 2
    return _free_buddies(address, half, taken) + _free_buddies(address + half, half, taken)


def _waiting(result: SimulationResult, step: int) -> list[tuple[int, int, float]]:
    """(index, tokens so far, waiting since) of who waits at `step`, in the order of the queue."""
    last_stay: dict[int, Stay] = {}
    for stay in sorted(result.stays, key=attrgetter("start")):
        if stay.start <= step:
            last_stay[stay.index] = stay
    put_out, fresh = [], []
    for index, request in enumerate(result.requests):
        stay = last_stay.get(index)
        if stay is not None and stay.end <= step and stay.preempted:
            put_out.append((index, stay.length(stay.end) - 1, stay.end))
        elif stay is None and result.admitted_at[index] is not None and request.arrival <= step:
            fresh.append((index, request.prompt, request.arrival))
    put_out.sort(key=lambda entry: (-entry[2], result.admitted_at[entry[0]]))
    fresh.sort(key=lambda entry: entry[2])
    return put_out + fresh


def _blocked(
    result: SimulationResult, state: PoolState, index: int, tokens: int, since: float
) -> Blocked:
    request, pool = result.requests[index], result.pool
    waited = state.step - since
    if isinstance(pool, PagedPool):
        needs = pool.needed_blocks(request, tokens + 1)
        free = pool.blocks.num_blocks - len(state.pieces)
        reason = _why_not_blocks(pool, needs, free)
        needs_slots = needs * pool.block_slots
        return Blocked(index, waited, needs_slots, state.free, free * pool.block_slots, reason)
    needs = buddy_size(pool.reserved(request)) * request.samples
    reason = _why_not_chunk(needs, state.free, state.largest_free)
    return Blocked(index, waited, needs, state.free, state.largest_free, reason)


def _why_not_blocks(pool: PagedPool, needs: int, free: int) -> str:
    wanted, are = pool.counted(needs), "is" if free == 1 else "are"
    if needs > free:
        return f"It needs {wanted}, and {free:,} {are} free."
    if needs > free - pool.watermark_blocks:
        return (
            f"It needs {wanted}; {free:,} {are} free, but the watermark keeps "
            f"{pool.watermark_blocks:,} of them for those who run."
        )
    return "It fits and is let in at the next event."


def _why_not_chunk(needs: float, free: float, largest: float) -> str:
    if needs > free:
        return f"It needs a chunk of {needs:,.0f} slots and only {free:,.0f} are free in all."
    if needs > largest:
        return (
            f"It needs {needs:,.0f} slots in one piece. {free:,.0f} are free, "
            f"but the largest chunk has {largest:,.0f}."
        )
    return "It fits and is let in at the next event."
