"""A recorded run as it is looked at, step by step: what has been drawn lately is kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from kvcore.paging import frames
from kvcore.paging.outcome import outcome_of
from kvcore.paging.results import SimulationResult
from kvcore.paging.snapshot import PoolState, pool_state

STILLS_KEPT = 4


@dataclass(frozen=True)
class Still:
    """One step: the pool, its map (`frames.map_table`), how many slots the map shows, and the free
    space of the run with the step marked (`frames.at_step`)."""

    state: PoolState
    map: pa.Table
    shown: float
    free: pa.Table


class Recording:
    """A run simulated with `record=True`, and the free space of its steps up to `last_step`.

    `still(step, followed)` gives a step; asked again, one of the last few is at hand.
    """

    def __init__(self, run: SimulationResult, last_step: int) -> None:
        self.run = run
        self.free = frames.free_table(outcome_of(run), last_step)
        self.still = lru_cache(maxsize=STILLS_KEPT)(self._still)

    def _still(self, step: int, followed: int | None) -> Still:
        state = pool_state(self.run, step)
        return Still(state, *frames.map_table(state, followed), frames.at_step(self.free, step))
