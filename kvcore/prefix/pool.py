"""The block pool: who holds which block, what can be found again, and what goes next.

Behaves as vLLM 0.33's KVCacheManager with one group of layers: block 0 is the null block, only
full blocks are hashed, equal contents are not merged, a block keeps its contents after it is freed
until it is handed out again, and at least the last token of a prompt is always computed anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvcore.checks import is_whole, whole
from kvcore.prefix.blocks import (
    NULL_BLOCK,
    ROOT_HASH,
    Block,
    FreeList,
    chain_hashes,
    check_token_ids,
)
from kvcore.prefix.hit_rate import HitRate

EVENTS_KEPT = 10_000
MOST_BLOCKS = 10_000_000


@dataclass(slots=True, eq=False)
class BlockTable:
    """A sequence and where its keys and values lie: token i is in `block_ids[i // block_size]`.

    `num_cached_tokens` of its prompt were found in the pool and need no computing. A 0 among the
    ids is a block that was dropped. Made by `BlockPool.allocate`, changed by the pool alone, but
    for `findable`: set it to False once something was evicted, since the keys and values of what
    follows then depend on more than the tokens before them and must not be found by those.
    """

    token_ids: list[int]
    block_ids: list[int]
    num_cached_tokens: int
    salt: str | None = None
    hashes: list[bytes] = field(default_factory=list, repr=False)
    findable: bool = True
    freed: bool = False
    pool: BlockPool | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a block: "stored" (it can be found from now on) or "evicted"."""

    kind: str
    block_id: int
    num_tokens: int


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens; block 0 is the null block and never handed out.

    `unhashed_first` is the order of the free list since vllm-project/vllm#42656 (May 2026): blocks
    without a hash, which nobody can find again, are freed to the front, hashed ones to the back.
    False: all to the back, as before. `prefix_caching=False` hashes nothing and finds nothing.
    `sliding_window` (tokens, the current one included): a prefix counts as found when the blocks
    its window needs are there, whatever became of those before them.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        unhashed_first: bool = True,
        prefix_caching: bool = True,
        sliding_window: int | None = None,
    ) -> None:
        if not is_whole(num_blocks) or num_blocks < 2:
            raise ValueError("A pool needs at least 2 blocks, as block 0 is the null block.")
        if num_blocks > MOST_BLOCKS:
            raise ValueError(f"A pool has at most {MOST_BLOCKS:,} blocks here.")
        if not is_whole(block_size) or block_size < 1:
            raise ValueError("A block holds at least 1 token.")
        if sliding_window is not None:
            whole("sliding_window", sliding_window, 1)
        self.block_size = block_size
        self.unhashed_first = unhashed_first
        self.prefix_caching = prefix_caching
        self.sliding_window = sliding_window
        self.blocks = [Block(block_id) for block_id in range(num_blocks)]
        self.hit_rate = HitRate()
        self._free = FreeList(range(1, num_blocks))
        self._by_hash: dict[bytes, dict[int, None]] = {}
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)

    @property
    def num_blocks(self) -> int:
        """All blocks, the null block included."""
        return len(self.blocks)

    @property
    def free_list(self) -> list[int]:
        """Ids of the free blocks, next to be taken first; the hashed ones can still be found."""
        return list(self._free)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the usable blocks that some sequence holds, 0 to 1."""
        return 1 - len(self._free) / (self.num_blocks - 1)

    @property
    def num_orphans(self) -> int:
        """Hashed blocks nobody can reach: the block before them is gone (LMCache#443)."""
        return sum(
            block.hash is not None
            and block.parent != ROOT_HASH
            and block.parent not in self._by_hash
            for block in self.blocks
        )

    def never_fits(self, num_tokens: int) -> bool:
        """True when even an empty pool could not hold `num_tokens` (vllm-project/vllm#35541)."""
        return self._blocks_for(num_tokens) > self.num_blocks - 1

    def find(self, token_ids: Sequence[int], salt: str | None = None) -> list[int]:
        """Ids of the blocks that hold the longest known prefix, without touching them.

        Never the whole prompt: its last token is always left to compute, since its logits are what
        the next token is drawn from. A 0 stands for a block that a sliding window no longer needs.
        """
        hashes = chain_hashes(token_ids[: len(token_ids) - 1], self.block_size, salt)
        return self._find(hashes)

    def allocate(
        self, token_ids: Sequence[int], salt: str | None = None, preempted: bool = False
    ) -> BlockTable | None:
        """Admit a prompt: share the blocks of its known prefix, take new ones for the rest.

        None, with nothing changed, when it cannot be admitted now; see `never_fits`. `salt` keeps
        prompts of different owners apart. `preempted` says that the request was here before and
        was put out, so that its hits are counted apart.

        Raises ValueError for an empty prompt or something that is not a token id.
        """
        token_ids = list(token_ids)
        if not token_ids:
            raise ValueError("A prompt needs at least one token.")
        check_token_ids(token_ids)
        hashes = chain_hashes(token_ids, self.block_size, salt) if self.prefix_caching else []
        hit_ids = self._find(hashes[: (len(token_ids) - 1) // self.block_size])
        num_hit_tokens = len(hit_ids) * self.block_size

        num_new = self._blocks_for(len(token_ids)) - len(hit_ids)
        num_hit_and_free = sum(block_id in self._free for block_id in hit_ids)
        if num_new > len(self._free) - num_hit_and_free:
            self.hit_rate.refused.add(len(token_ids), num_hit_tokens)
            return None

        for block_id in hit_ids:
            self._share(block_id)
        table = BlockTable(token_ids, hit_ids, num_hit_tokens, salt, hashes, pool=self)
        table.block_ids.extend(self._take() for _ in range(num_new))
        self._store_full_blocks(table, first=num_hit_tokens // self.block_size)
        tally = self.hit_rate.preempted if preempted else self.hit_rate.admitted
        tally.add(len(token_ids), num_hit_tokens)
        return table

    def append(self, table: BlockTable, token_ids: Sequence[int]) -> bool:
        """Add tokens to a sequence, taking new blocks only once the last one is full.

        False, with nothing changed, when the pool has too few free blocks. A block that fills up
        is hashed and can be found from then on. Raises ValueError for a freed sequence.
        """
        self._refuse_unheld(table)
        token_ids = list(token_ids)
        check_token_ids(token_ids)
        length = len(table.token_ids) + len(token_ids)
        num_new = self._blocks_for(length) - len(table.block_ids)
        if num_new > len(self._free):
            return False
        table.token_ids.extend(token_ids)
        table.block_ids.extend(self._take() for _ in range(num_new))
        if table.findable and self.prefix_caching:
            num_full = len(table.hashes)
            open_tokens = table.token_ids[num_full * self.block_size :]
            parent = table.hashes[-1] if table.hashes else ROOT_HASH
            table.hashes += chain_hashes(open_tokens, self.block_size, table.salt, parent)
            self._store_full_blocks(table, first=num_full)
        return True

    def drop(self, table: BlockTable, block_indices: Iterable[int]) -> list[int]:
        """Give back single blocks of a running sequence; the null block takes their place.

        Returns the ids that became free. Used by sliding windows and eviction: only a block of
        which no token is needed can go. A hashed one can still be found until it is handed out.
        """
        self._refuse_unheld(table)
        indices = sorted(set(block_indices), reverse=True)
        dropped = [table.block_ids[index] for index in indices]
        for index in indices:
            table.block_ids[index] = NULL_BLOCK
        return self._release(dropped)

    def free(self, table: BlockTable) -> None:
        """End a sequence. Its last block goes first, so that the prefix survives longest.

        Raises ValueError when it was freed before or belongs to another pool.
        """
        self._refuse_unheld(table)
        table.freed = True
        self._release(reversed(table.block_ids))

    def reset(self) -> bool:
        """Forget everything that could be found; False, and nothing changed, while in use."""
        if self.num_free != self.num_blocks - 1:
            return False
        for block in self.blocks:
            block.hash, block.parent = None, ROOT_HASH
        self._by_hash.clear()
        return True

    def take_events(self) -> list[Event]:
        """What was stored and evicted since the last call, in order; the latest 10,000."""
        events = list(self._events)
        self._events.clear()
        return events

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _find(self, hashes: Sequence[bytes]) -> list[int]:
        if not self.prefix_caching:
            return []
        if self.sliding_window is not None:
            return self._find_window(hashes)
        found = []
        for name in hashes:
            holders = self._by_hash.get(name)
            if holders is None:
                break
            found.append(next(iter(holders)))
        return found

    def _find_window(self, hashes: Sequence[bytes]) -> list[int]:
        known = [name in self._by_hash for name in hashes]
        length = sliding_window_hit(known, self.sliding_window, self.block_size)
        needed = -(-(self.sliding_window - 1) // self.block_size)
        first = max(0, length - needed)
        return [NULL_BLOCK] * first + [
            next(iter(self._by_hash[name])) for name in hashes[first:length]
        ]

    def _share(self, block_id: int) -> None:
        block = self.blocks[block_id]
        if block.is_null:
            return
        if block.ref_count == 0:
            self._free.remove(block_id)
        block.ref_count += 1

    def _take(self) -> int:
        block = self.blocks[self._free.take()]
        if block.hash is not None:
            self._evict(block)
        block.ref_count = 1
        return block.block_id

    def _evict(self, block: Block) -> None:
        holders = self._by_hash[block.hash]
        del holders[block.block_id]
        if not holders:
            del self._by_hash[block.hash]
        block.hash, block.parent = None, ROOT_HASH
        self._events.append(Event("evicted", block.block_id, self.block_size))

    def _store_full_blocks(self, table: BlockTable, first: int) -> None:
        for index in range(first, len(table.hashes)):
            block = self.blocks[table.block_ids[index]]
            if block.is_null:
                continue
            block.hash = table.hashes[index]
            block.parent = table.hashes[index - 1] if index else ROOT_HASH
            self._by_hash.setdefault(block.hash, {})[block.block_id] = None
            self._events.append(Event("stored", block.block_id, self.block_size))

    def _release(self, block_ids: Iterable[int]) -> list[int]:
        hashed, unhashed = [], []
        for block_id in block_ids:
            block = self.blocks[block_id]
            if block.is_null:
                continue
            block.ref_count -= 1
            if block.ref_count == 0:
                unfindable = self.unhashed_first and block.hash is None
                (unhashed if unfindable else hashed).append(block_id)
        self._free.prepend(unhashed)
        self._free.append(hashed)
        return unhashed + hashed

    def _refuse_unheld(self, table: BlockTable) -> None:
        if getattr(table, "pool", None) is not self:
            raise ValueError("This is no sequence of this pool; allocate its prompt here.")
        if table.freed:
            raise ValueError("This sequence was freed; allocate its prompt again.")


def sliding_window_hit(known: Sequence[bool], window: int, block_size: int) -> int:
    """Leading blocks that count as found when attention looks back `window` tokens.

    `known[i]` says whether block i is in the pool. From the right, the first run of
    ceil((window - 1) / block_size) known blocks is enough: the token after it sees nothing earlier
    (vLLM's SlidingWindowManager). Where no run is long enough, the known blocks from the start.
    """
    needed = -(-(window - 1) // block_size)
    if needed == 0:
        return len(known)
    run = 0
    for index in range(len(known) - 1, -1, -1):
        run = run + 1 if known[index] else 0
        if run == needed:
            return index + run
    return run
