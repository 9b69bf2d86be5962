"""The radix tree: matching, splitting, leaf eviction, and agreement with the block pool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.prefix import BlockPool, RadixCache


def test_a_match_ends_at_any_token_and_splits_the_run():
    cache = RadixCache(100)
    cache.free(cache.allocate([1, 2, 3, 4, 5]))
    lease = cache.allocate([1, 2, 3, 9, 9])
    assert lease.num_cached_tokens == 3
    assert [(depth, node.tokens) for depth, node in cache.runs()] == [
        (0, (1, 2, 3)),
        (1, (4, 5)),
        (1, (9, 9)),
    ]
    assert [node.users for _, node in cache.runs()] == [1, 0, 1]


def test_the_last_token_is_always_computed():
    cache = RadixCache(100)
    cache.free(cache.allocate([1, 2, 3, 4]))
    assert cache.allocate([1, 2, 3, 4]).num_cached_tokens == 3


def test_equal_contents_are_held_once():
    cache = RadixCache(100)
    leases = [cache.allocate([1, 2, 3, 4]) for _ in range(3)]
    assert cache.num_tokens == 4
    for lease in leases:
        cache.append(lease, [5, 6])
    assert cache.num_free == 100 - 4 - 6
    for lease in leases:
        cache.free(lease)
    assert cache.num_tokens == 6
    assert cache.num_free == 94


def test_pages_are_matched_and_kept_whole():
    cache = RadixCache(100, page_size=4)
    cache.free(cache.allocate([1] * 10))
    assert cache.num_tokens == 8
    assert cache.allocate([1] * 7).num_cached_tokens == 4


def test_the_least_recently_used_leaf_goes_first_then_its_parent():
    cache = RadixCache(8)
    cache.free(cache.allocate([1, 1, 2, 2]))
    cache.free(cache.allocate([1, 1, 3, 3]))
    assert cache.num_free == 2
    cache.free(cache.allocate([9, 9, 9, 9]))
    assert [node.tokens for _, node in cache.runs()] == [(1, 1), (3, 3), (9, 9, 9, 9)]
    cache.free(cache.allocate([8, 8, 8, 8]))
    assert [node.tokens for _, node in cache.runs()] == [(9, 9, 9, 9), (8, 8, 8, 8)]


def test_only_what_is_missing_is_evicted():
    cache = RadixCache(16)
    for label in range(4):
        cache.free(cache.allocate([label] * 4))
    cache.allocate([9] * 12)
    assert [node.tokens[0] for _, node in cache.runs()] == [3, 9]
    cache = RadixCache(20)
    for label in range(4):
        cache.free(cache.allocate([label] * 4))
    cache.allocate([9] * 8)
    assert [node.tokens[0] for _, node in cache.runs()] == [1, 2, 3, 9]


def test_what_a_sequence_holds_is_never_evicted():
    cache = RadixCache(8)
    lease = cache.allocate([1, 2, 3, 4, 5])
    assert cache.allocate([9] * 4) is None
    assert cache.num_tokens == 5
    assert not cache.append(lease, [6] * 4)
    assert cache.append(lease, [6] * 3)
    cache.free(lease)
    assert cache.allocate([9] * 4) is not None


def test_a_refused_request_evicts_nothing():
    cache = RadixCache(8)
    cache.free(cache.allocate([1, 1, 1]))
    cache.allocate([2, 2, 2])
    assert cache.allocate([3] * 6) is None
    assert cache.find([1, 1, 1, 0]) == 3
    assert cache.hit_rate.admitted.requests == 2
    assert cache.hit_rate.refused.requests == 1


def test_misuse_is_refused():
    cache = RadixCache(8)
    lease = cache.allocate([1])
    cache.free(lease)
    with pytest.raises(ValueError, match="was freed"):
        cache.free(lease)
    with pytest.raises(ValueError, match="at least one token"):
        cache.allocate([])
    with pytest.raises(ValueError, match="at least 1 token"):
        RadixCache(0)
    with pytest.raises(ValueError, match="page"):
        RadixCache(8, page_size=0)


prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=20), min_size=1, max_size=12)


@given(prompts=prompts, block_size=st.integers(1, 5))
def test_with_room_for_all_both_implementations_find_the_same(prompts, block_size):
    pool, cache = BlockPool(500, block_size), RadixCache(2_000, block_size)
    for prompt in prompts:
        table, lease = pool.allocate(prompt), cache.allocate(prompt)
        assert table.num_cached_tokens == lease.num_cached_tokens
        pool.free(table)
        cache.free(lease)
    assert pool.hit_rate.rate == cache.hit_rate.rate


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["allocate", "append", "free"]),
            st.lists(st.integers(0, 1), min_size=1, max_size=9),
        ),
        max_size=50,
    ),
    page_size=st.integers(1, 3),
)
def test_memory_is_accounted_for(steps, page_size):
    cache = RadixCache(30, page_size)
    running = []
    for kind, tokens in steps:
        if kind == "allocate":
            lease = cache.allocate(tokens)
            running += [lease] if lease else []
        elif running and kind == "append":
            cache.append(running[0], tokens)
        elif running:
            cache.free(running.pop(0))
        nodes = [node for _, node in cache.runs()]
        private = sum(len(lease.token_ids) - lease.num_in_tree for lease in running)
        assert sum(len(node.tokens) for node in nodes) == cache.num_tokens
        assert sum(len(node.tokens) for node in nodes if not node.users) == cache.num_evictable
        assert cache.num_free == 30 - cache.num_tokens - private >= 0
        for lease in running:
            assert cache.find([*lease.token_ids[: lease.num_in_tree], 0]) == lease.num_in_tree
    for lease in running:
        cache.free(lease)
    assert cache.num_evictable == cache.num_tokens
