"""A trace of block hashes run through a cache of a given size: what share would be found."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvcore.checks import is_whole


@dataclass(frozen=True)
class Replay:
    """What a replay found. Blocks are references: one looked up twice counts twice."""

    requests: int
    block_references: int
    block_hits: int
    evictions: int
    queried_tokens: int | None = None
    hit_tokens: int | None = None

    @property
    def block_hit_rate(self) -> float:
        """Hits over references, 0 to 1; 0.0 for a trace without blocks."""
        return self.block_hits / self.block_references if self.block_references else 0.0

    @property
    def token_hit_rate(self) -> float | None:
        """Hit tokens over prompt tokens; None when the lengths were not given."""
        return self.hit_tokens / self.queried_tokens if self.queried_tokens else None


def replay(
    hash_ids_per_request: Iterable[Sequence[int]],
    capacity: int | None = None,
    input_lengths: Sequence[int] | None = None,
    block_size: int = 512,
) -> Replay:
    """Serve the requests one after another from a cache of `capacity` blocks; None: no limit.

    A block is a hit when it and all blocks before it in its request are in the cache. The least
    recently used block goes first, and of one request the tail before the head, since a tail is
    useless without its head. With `input_lengths` (tokens of each prompt) hits are counted in
    tokens too, `block_size` a block and the last one of a prompt as long as it is.

    Raises ValueError for a capacity below one block or lengths that do not match the requests.
    """
    if capacity is not None and not (is_whole(capacity) and capacity >= 1):
        raise ValueError("A cache needs a capacity of at least 1 block; None means no limit.")
    requests = [list(ids) for ids in hash_ids_per_request]
    if input_lengths is not None and len(input_lengths) != len(requests):
        raise ValueError(f"{len(requests)} requests but {len(input_lengths)} lengths.")

    recent: OrderedDict[int, None] = OrderedDict()
    references = hits = evictions = hit_tokens = 0
    for index, ids in enumerate(requests):
        found = _leading_hits(ids, recent)
        references += len(ids)
        hits += found
        if input_lengths is not None:
            hit_tokens += min(found * block_size, input_lengths[index])
        for hash_id in reversed(ids):
            recent[hash_id] = None
            recent.move_to_end(hash_id)
        while capacity is not None and len(recent) > capacity:
            recent.popitem(last=False)
            evictions += 1

    queried_tokens = sum(input_lengths) if input_lengths is not None else None
    return Replay(
        len(requests),
        references,
        hits,
        evictions,
        queried_tokens,
        hit_tokens if input_lengths is not None else None,
    )


def _leading_hits(ids: Sequence[int], cached: OrderedDict[int, None]) -> int:
    for count, hash_id in enumerate(ids):
        if hash_id not in cached:
            return count
    return len(ids)
