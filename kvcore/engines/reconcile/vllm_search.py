"""Which number of blocks a vLLM log was printed with, and whether the printed memory allows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvcore.engines import vllm
from kvcore.engines.common import PlanError
from kvcore.engines.logs import Reading, VllmLog
from kvcore.engines.reconcile.rows import within
from kvcore.engines.reconcile.vllm_guesses import Guess, guesses, rank_guesses
from kvcore.engines.reconcile.vllm_inputs import Inputs, old_meaning, rank_bytes
from kvcore.formats import FormatError
from kvcore.units import GIB

PRINTED_GIB = 0.005
PRINTED_CONCURRENCY = 0.005
SEARCH_LIMIT = 4096
RANK_GAP = 0.10
"""A pool at most this share below the printed memory may be another rank's minimum."""
CLOSE_RANK_GAP = 0.02
"""The same, when the number of ranks had to be guessed as well."""


@dataclass(frozen=True)
class Printed:
    """The pool as printed; any of the three may be missing."""

    blocks: int | None
    tokens: int | None
    concurrency: float | None

    @classmethod
    def of(cls, log: VllmLog) -> Printed:
        blocks, tokens = _least(log.blocks), _least(log.tokens)
        if blocks is None:
            blocks = log.state_blocks
        return cls(
            None if blocks is None else int(blocks),
            None if tokens is None else int(tokens),
            _least(log.concurrency),
        )

    @property
    def empty(self) -> bool:
        return self.blocks is None and self.tokens is None and self.concurrency is None

    def fits(self, blocks: int, p: vllm.Plan) -> bool:
        """Whether a pool of `blocks`, otherwise as planned, would print these figures."""
        tokens, concurrency = p.capacity(blocks)
        if self.blocks is not None and self.blocks != blocks:
            return False
        if self.tokens is not None and self.tokens != tokens:
            return False
        return self.concurrency is None or within(
            concurrency, self.concurrency, PRINTED_CONCURRENCY
        )


def _least(readings: list[Reading]) -> float | None:
    return min((reading.value for reading in readings), default=None)


def candidates(inputs: Inputs, printed: Printed) -> Iterator[int]:
    """Block counts that give the printed figures, whatever the memory."""
    p = inputs.plan(None, num_blocks=1)
    return (count for count in _near(p, inputs, printed) if printed.fits(count, p))


def first_candidate(inputs: Inputs, printed: Printed) -> int | None:
    """The first of the candidates; None where there is none, or no plan."""
    try:
        return next(candidates(inputs, printed), None)
    except (PlanError, FormatError):
        return None


def matching_blocks(
    inputs: Inputs, memory: list[float], printed: Printed, scale: float = 1.0
) -> int | None:
    """A block count that the printed memory allows and that gives exactly the printed figures."""
    p = inputs.plan(None, num_blocks=1)
    low, about, high = (
        _fitting(p, rank_bytes(memory, inputs, shift, scale))
        for shift in (-PRINTED_GIB, 0.0, PRINTED_GIB)
    )
    if printed.empty:
        return about
    counts = (count for count in _near(p, inputs, printed) if low <= count <= high)
    return next((count for count in counts if printed.fits(count, p)), None)


def explain(
    inputs: Inputs, memory: list[float], printed: Printed
) -> tuple[Guess | None, int | None]:
    """The first change that reproduces the log, and the blocks it then has."""
    for guess in guesses(inputs):
        try:
            found = matching_blocks(guess.inputs, memory, printed, guess.scale)
        except (PlanError, FormatError):
            continue
        if found is not None:
            return guess, found
    poorer, found = _rank_minimum(inputs, memory, printed, RANK_GAP)
    if poorer is not None:
        return poorer, found
    for guess in rank_guesses(inputs):
        poorer, found = _rank_minimum(guess.inputs, memory, printed, CLOSE_RANK_GAP)
        if poorer is not None:
            return replace(guess, sentence=f"{guess.sentence} {poorer.sentence}"), found
    return None, None


def about(inputs: Inputs, printed: Printed) -> int:
    """A block count near the printed figures, when none fits them exactly."""
    if printed.blocks is not None:
        return printed.blocks
    per_request = inputs.plan(None, num_blocks=1).blocks_per_request
    if printed.tokens is not None:
        return printed.tokens * per_request // inputs.max_model_len
    return int((printed.concurrency or 0.0) * per_request)


def _fitting(p: vllm.Plan, available: list[int]) -> int:
    """Blocks that fit on every rank."""
    return min(
        max(0, available[rank.stage * p.tensor_parallel + rank.tensor_rank]) // rank.bytes_per_block
        for rank in p.ranks
    )


def _near(p: vllm.Plan, inputs: Inputs, printed: Printed) -> range:
    """Block counts worth trying for the printed figures."""
    if printed.blocks is not None:
        return range(printed.blocks, printed.blocks + 1)
    if printed.tokens is not None and old_meaning(inputs):
        first = printed.tokens // p.block_size * len(p.groups)
        return range(first, first + min(len(p.groups), SEARCH_LIMIT))
    if printed.tokens is not None:
        middle = printed.tokens * p.blocks_per_request // inputs.max_model_len
        return range(max(0, middle - 1), middle + 3)
    if printed.concurrency is not None:
        low = int((printed.concurrency - PRINTED_CONCURRENCY) * p.blocks_per_request)
        high = int((printed.concurrency + PRINTED_CONCURRENCY) * p.blocks_per_request) + 2
        return range(max(0, low), min(high, low + SEARCH_LIMIT))
    return range(0)


def _rank_minimum(
    inputs: Inputs, memory: list[float], printed: Printed, gap: float
) -> tuple[Guess | None, int | None]:
    """The figures hold together, but for less memory than printed: another rank decides."""
    found = first_candidate(inputs, printed)
    if found is None:
        return None, None
    p = inputs.plan(rank_bytes(memory, inputs))
    if not p.num_blocks * (1 - gap) <= found < p.num_blocks:
        return None, None
    implied = found * p.bytes_per_block / GIB
    several = inputs.tensor_parallel * inputs.pipeline_parallel > 1
    reason = (
        f"another rank has only about {implied:.2f} GiB, and the pool is the minimum over ranks."
        if several
        else f"{implied:.2f} GiB were used."
    )
    sentence = (
        f"The printed {min(memory):.2f} GiB would give {p.num_blocks:,} blocks, the log has "
        f"{found:,}: {reason}"
    )
    return Guess("rank minimum" if several else "less memory than printed", inputs, sentence), found
