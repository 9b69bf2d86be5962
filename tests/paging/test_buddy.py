"""Chunks of powers of two that split, and always merge back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.paging.buddy import BuddyAllocator, buddy_roots, buddy_size


def test_the_papers_pool_has_a_binary_tail():
    sizes = [size for _, size in buddy_roots(15_728)]
    assert sizes == [8192, 4096, 2048, 1024, 256, 64, 32, 16]


@pytest.mark.parametrize(("slots", "size"), [(1, 1), (2, 2), (3, 4), (25, 32), (499, 512)])
def test_a_chunk_is_the_next_power_of_two(slots, size):
    assert buddy_size(slots) == size


def test_seven_of_the_longest_requests_fit_and_an_eighth_does_not():
    buddy = BuddyAllocator(15_728)
    assert all(buddy.allocate(2_048) is not None for _ in range(7))
    assert buddy.allocate(2_048) is None
    assert buddy.num_free == 15_728 - 7 * 2_048
    assert buddy.largest_free == 1_024


def test_enough_may_be_free_and_no_chunk_large_enough():
    buddy = BuddyAllocator(64)
    addresses = [buddy.allocate(16) for _ in range(4)]
    buddy.free(addresses[0])
    buddy.free(addresses[2])
    assert buddy.num_free == 32
    assert buddy.allocate(32) is None
    buddy.free(addresses[1])
    assert buddy.allocate(32) == 0


def test_the_smallest_sufficient_chunk_at_the_lowest_address_is_taken():
    buddy = BuddyAllocator(48)
    assert buddy.allocate(9) == 32
    assert buddy.allocate(9) == 0
    assert buddy.free_chunks == [(16, 16)]


def test_freeing_what_is_not_a_chunk_is_refused():
    buddy = BuddyAllocator(8)
    address = buddy.allocate(3)
    buddy.free(address)
    with pytest.raises(ValueError, match="No chunk begins at slot 0"):
        buddy.free(address)


@pytest.mark.parametrize("slots", [0, -1])
def test_nothing_is_neither_a_pool_nor_a_chunk(slots):
    with pytest.raises(ValueError, match="at least one slot"):
        BuddyAllocator(slots)
    with pytest.raises(ValueError, match="at least one slot"):
        BuddyAllocator(8).allocate(slots)


@given(st.integers(1, 5_000), st.lists(st.tuples(st.booleans(), st.integers(1, 600)), max_size=80))
def test_chunks_never_overlap_and_buddies_always_merge_back(num_slots, moves):
    buddy = BuddyAllocator(num_slots)
    held: list[int] = []
    for give_back, number in moves:
        if give_back and held:
            buddy.free(held.pop(number % len(held)))
        else:
            fitted = buddy.largest_free >= buddy_size(number)
            address = buddy.allocate(number)
            assert (address is not None) == fitted
            if address is not None:
                held.append(address)
        _assert_every_slot_once(buddy)
    for address in held:
        buddy.free(address)
    assert buddy.free_chunks == buddy.roots


def _assert_every_slot_once(buddy: BuddyAllocator) -> None:
    end = 0
    for address, size in sorted(buddy.chunks + buddy.free_chunks):
        assert address == end
        assert address % size == 0
        end = address + size
    assert end == buddy.num_slots
    assert buddy.num_free == sum(size for _, size in buddy.free_chunks)
