"""Recorded traffic through a prefix cache: what share of its blocks would have been found.

Reads Mooncake's JSON lines, whose `hash_ids` name each 512 tokens of a prompt (kvcache-ai/Mooncake,
FAST'25 release).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import pyarrow as pa

from kvcore.paging.traces import MOONCAKE_BLOCK_SIZE, TraceError, read_trace
from kvcore.prefix.replay import Replay, replay

MOST_BLOCKS = 400_000
"""Blocks that are replayed: more would keep a reader waiting for longer than a few seconds."""

CAPACITIES = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 50_000, 100_000)
MOST_CAPACITIES = 6


@dataclass(frozen=True)
class Traffic:
    """Prompts as the names of their blocks, in order of arrival.

    lengths: tokens of each prompt. num_in_file: requests in the file, of which the first are kept.
    """

    hash_ids: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    num_in_file: int

    @cached_property
    def num_distinct(self) -> int:
        """Blocks with different names: a cache with room for them never evicts."""
        return len({name for ids in self.hash_ids for name in ids})


@dataclass(frozen=True)
class Found:
    """What a cache with room for `capacity` blocks would have found; None: no limit."""

    capacity: int | None
    replay: Replay


def read_traffic(data: bytes, most_blocks: int = MOST_BLOCKS) -> Traffic:
    """The first requests of a Mooncake trace, plain or gzipped, up to `most_blocks` blocks.

    Raises TraceError, whose message is a sentence for the user.
    """
    rows = read_trace(data).rows
    unnamed = sum(not row.hash_ids for row in rows)
    if unnamed:
        which = "No request" if unnamed == len(rows) else f"{unnamed:,} of {len(rows):,} requests"
        verb = "names its blocks" if unnamed == len(rows) else "do not name their blocks"
        raise TraceError(
            f"{which} {verb}: this needs Mooncake's form, with hash_ids on every line."
        )
    blocks = accumulate(len(row.hash_ids) for row in rows)
    kept = rows[: max(1, sum(total <= most_blocks for total in blocks))]
    return Traffic(
        tuple(row.hash_ids for row in kept), tuple(row.prompt for row in kept), len(rows)
    )


def found_by_capacity(traffic: Traffic) -> tuple[Found, ...]:
    """One replay for each size of cache below all blocks, and one without a limit, last."""
    smaller = [size for size in CAPACITIES if size < traffic.num_distinct]
    sizes = (*smaller[-MOST_CAPACITIES:], None)
    return tuple(
        Found(size, replay(traffic.hash_ids, size, traffic.lengths, MOONCAKE_BLOCK_SIZE))
        for size in sizes
    )


def found_table(traffic: Traffic, found: Sequence[Found]) -> pa.Table:
    """A row for each size of cache; without a limit, the size at which nothing is evicted.

    Columns: blocks, tokens (what the cache has room for), limit ("yes" or "none"), block_hit_rate
    and token_hit_rate (0 to 1), evictions.
    """
    sizes = [each.capacity or traffic.num_distinct for each in found]
    return pa.table(
        {
            "blocks": sizes,
            "tokens": [size * MOONCAKE_BLOCK_SIZE for size in sizes],
            "limit": ["none" if each.capacity is None else "yes" for each in found],
            "block_hit_rate": [each.replay.block_hit_rate for each in found],
            "token_hit_rate": [each.replay.token_hit_rate for each in found],
            "evictions": [each.replay.evictions for each in found],
        }
    )
