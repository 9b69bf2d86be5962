"""A block allocator: ids, reference counts, copy-on-write, and blocks found again by their key.

Kwon et al. (SOSP 2023), sections 4.2 to 4.4. The order in which freed blocks are taken again is
vLLM's since vllm-project/vllm#42656: blocks nobody can find first, the others oldest first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence

BlockTable = list[int]


class BlockAllocator:
    """`num_blocks` blocks of one size; a block is owned by as many sequences as share it.

    A block may carry a key that says what it holds. When its last owner leaves it is free, but
    keeps its key and contents until it is handed out again. Raises ValueError for fewer than
    no blocks.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 0:
            raise ValueError("A pool cannot have fewer than no blocks.")
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.ref_counts = [0] * num_blocks
        self.num_copies = 0
        self.num_evicted = 0
        self._unkeyed = list(reversed(range(num_blocks)))
        self._keyed: OrderedDict[int, None] = OrderedDict()
        self._block_of: dict[Hashable, int] = {}
        self._key_of: dict[int, Hashable] = {}

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_free

    @property
    def free_blocks(self) -> list[int]:
        """Ids of the free blocks, next to be taken first."""
        return [*reversed(self._unkeyed), *self._keyed]

    def take(self, count: int) -> BlockTable:
        """`count` free blocks, each with one owner; evicts keyed ones only for the shortfall.

        Raises MemoryError, with nothing changed, when there are too few.
        """
        if count > self.num_free:
            raise MemoryError(f"{count} blocks are wanted and {self.num_free} are free.")
        table: BlockTable = []
        self.extend([table] * count)
        return table

    def extend(self, tables: Sequence[BlockTable]) -> bool:
        """One more block at the end of each table; False, with nothing changed, if too few."""
        if self.num_free < len(tables):
            return False
        for table in tables:
            block = self._unkeyed.pop() if self._unkeyed else self._evict()
            self.ref_counts[block] = 1
            self.num_free -= 1
            table.append(block)
        return True

    def find(self, keys: Iterable[Hashable]) -> BlockTable:
        """The blocks that hold the longest known beginning of `keys`, not yet shared."""
        found = []
        for key in keys:
            block = self._block_of.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def count_free(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` nobody owns."""
        return sum(not self.ref_counts[block] for block in blocks)

    def share(self, blocks: Iterable[int]) -> None:
        """One more owner for each block, whether in use or free with its contents kept.

        Raises ValueError for a free block without contents.
        """
        for block in blocks:
            if not self.ref_counts[block]:
                if block not in self._keyed:
                    raise ValueError(f"Block {block} is free and holds nothing to share.")
                del self._keyed[block]
                self.num_free -= 1
            self.ref_counts[block] += 1

    def fork(self, table: BlockTable) -> BlockTable:
        """A second sequence that begins with the same blocks."""
        self.share(table)
        return list(table)

    def make_writable(self, table: BlockTable, index: int) -> bool:
        """Copy-on-write: before a write, a block that others read too is replaced by a copy.

        True when a copy was made. Raises MemoryError when no block is free for it.
        """
        block = table[index]
        if self.ref_counts[block] == 1:
            return False
        (copy,) = self.take(1)
        self.ref_counts[block] -= 1
        table[index] = copy
        self.num_copies += 1
        return True

    def name(self, block: int, key: Hashable) -> None:
        """Say what a full block holds, so that `find` can find it; the first of equals wins."""
        if key in self._block_of or block in self._key_of:
            return
        self._block_of[key] = block
        self._key_of[block] = key

    def release(self, table: BlockTable) -> None:
        """One owner fewer for each block of a table, the last block first.

        Raises ValueError for a block that has no owner.
        """
        ref_counts, key_of = self.ref_counts, self._key_of
        for block in reversed(table):
            count = ref_counts[block] = ref_counts[block] - 1
            if count > 0:
                continue
            if count < 0:
                ref_counts[block] = 0
                raise ValueError(f"Block {block} is already free.")
            self.num_free += 1
            if block in key_of:
                self._keyed[block] = None
            else:
                self._unkeyed.append(block)

    def _evict(self) -> int:
        block, _ = self._keyed.popitem(last=False)
        del self._block_of[self._key_of.pop(block)]
        self.num_evicted += 1
        return block
