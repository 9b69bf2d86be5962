"""Block ids, reference counts, copy-on-write, and contents found again."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvcore.paging import BlockAllocator


def test_blocks_are_taken_all_or_none():
    blocks = BlockAllocator(3)
    assert len(set(blocks.take(2))) == 2
    with pytest.raises(MemoryError, match="2 blocks are wanted and 1 are free"):
        blocks.take(2)
    assert blocks.num_free == 1


def test_the_first_write_to_a_shared_block_copies_it_and_the_last_owner_writes_in_place():
    blocks = BlockAllocator(4)
    first = blocks.take(1)
    second, third = blocks.fork(first), blocks.fork(first)
    assert blocks.ref_counts[first[0]] == 3
    assert blocks.make_writable(second, 0)
    assert blocks.make_writable(third, 0)
    assert not blocks.make_writable(first, 0)
    assert len({first[0], second[0], third[0]}) == 3
    assert blocks.num_copies == 2


def test_a_freed_block_is_found_again_until_it_is_handed_out():
    blocks = BlockAllocator(2)
    table = blocks.take(1)
    blocks.name(table[0], "a")
    blocks.release(table)
    assert blocks.num_free == 2
    assert blocks.find(["a", "b"]) == table
    blocks.take(2)
    assert blocks.find(["a"]) == []
    assert blocks.num_evicted == 1


def test_blocks_nobody_can_find_are_taken_first_and_the_others_oldest_first():
    blocks = BlockAllocator(4)
    table = blocks.take(4)
    for block, key in zip(table[:3], "abc", strict=True):
        blocks.name(block, key)
    blocks.release(table)
    assert blocks.free_blocks == [3, 2, 1, 0]
    assert blocks.take(2) == [3, 2]


def test_only_the_shortfall_is_evicted_not_the_whole_requirement():
    """sgl-project/sglang#32016: 12,288 tokens wanted, 8,192 free; 4,096 must go, not 12,288."""
    block_size = 64
    blocks = BlockAllocator(20_480 // block_size)
    cached, plain = blocks.take(12_288 // block_size), blocks.take(8_192 // block_size)
    for block in cached:
        blocks.name(block, block)
    blocks.release(cached)
    blocks.release(plain)
    blocks.take(12_288 // block_size)
    assert blocks.num_evicted * block_size == 4_096


def test_freeing_twice_is_refused():
    blocks = BlockAllocator(2)
    table = blocks.take(1)
    blocks.release(table)
    with pytest.raises(ValueError, match="Block 0 is already free"):
        blocks.release(table)
    assert sorted(blocks.free_blocks) == [0, 1]


def test_a_free_block_without_contents_cannot_be_shared():
    with pytest.raises(ValueError, match="holds nothing to share"):
        BlockAllocator(2).share([1])


def test_a_pool_may_be_empty_but_not_less():
    assert BlockAllocator(0).num_free == 0
    with pytest.raises(ValueError, match="fewer than no blocks"):
        BlockAllocator(-1)


class Blocks(RuleBasedStateMachine):
    """Any sequence of moves; a model of who owns what is kept beside it."""

    def __init__(self):
        super().__init__()
        self.blocks = BlockAllocator(8)
        self.tables: list[list[int]] = []

    @rule(count=st.integers(1, 4))
    def take(self, count):
        if count > self.blocks.num_free:
            with pytest.raises(MemoryError):
                self.blocks.take(count)
        else:
            self.tables.append(self.blocks.take(count))

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 20))
    def fork(self, which):
        self.tables.append(self.blocks.fork(self.tables[which % len(self.tables)]))

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 20))
    def grow(self, which):
        table = self.tables[which % len(self.tables)]
        grown = self.blocks.num_free > 0
        assert self.blocks.extend([table]) == grown

    @precondition(lambda self: self.tables and self.blocks.num_free)
    @rule(which=st.integers(0, 20), index=st.integers(0, 20))
    def write(self, which, index):
        table = self.tables[which % len(self.tables)]
        place = index % len(table)
        before = table[place]
        others = self._owners()[before] > 1
        assert self.blocks.make_writable(table, place) == others
        assert (table[place] != before) == others
        assert self.blocks.ref_counts[table[place]] == 1

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 20), key=st.integers(0, 5))
    def name(self, which, key):
        self.blocks.name(self.tables[which % len(self.tables)][0], key)

    @rule(key=st.integers(0, 5))
    def find_and_share(self, key):
        found = self.blocks.find([key])
        self.blocks.share(found)
        if found:
            self.tables.append(found)

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 20))
    def release(self, which):
        self.blocks.release(self.tables.pop(which % len(self.tables)))

    @invariant()
    def counts_are_the_owners_and_every_block_is_owned_or_free(self):
        owners = self._owners()
        assert self.blocks.ref_counts == [owners[block] for block in range(8)]
        free = self.blocks.free_blocks
        assert len(free) == len(set(free)) == self.blocks.num_free
        assert {block for block, count in owners.items() if not count} == set(free)

    def teardown(self):
        for table in self.tables:
            self.blocks.release(table)
        assert self.blocks.ref_counts == [0] * 8
        assert self.blocks.num_free == 8

    def _owners(self):
        return {block: sum(t.count(block) for t in self.tables) for block in range(8)}


TestBlocks = Blocks.TestCase
