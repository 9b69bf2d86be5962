"""The block pool against vLLM's own manager and the golden cases of its tests and issues."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.prefix import NULL_BLOCK, BlockPool, block_hash, chain_hashes, sliding_window_hit

RUNS = json.loads((Path(__file__).parent / "data" / "vllm_block_pool.json").read_text())


def tokens(label: int, count: int) -> list[int]:
    return list(range(label * 10_000, label * 10_000 + count))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"seed-{run['seed']}")
def test_every_step_of_vllms_own_manager(run):
    pool = BlockPool(run["num_blocks"], run["block_size"])
    tables = {}
    for step, op in enumerate(run["ops"]):
        if op["op"] == "free":
            pool.free(tables.pop(op["seq"]))
        elif op.get("refused"):
            assert pool.allocate(op["tokens"]) is None, step
        else:
            table = tables[op["seq"]] = pool.allocate(op["tokens"])
            assert table.block_ids == op["block_ids"], step
            assert table.num_cached_tokens == op["cached"], step
        assert pool.free_list == op["free_list"], step


def test_the_reference_runs_contain_hits_refusals_and_evictions():
    ops = [op for run in RUNS for op in run["ops"]]
    assert len(ops) == 360
    assert sum(bool(op.get("cached")) for op in ops) > 50
    assert sum(bool(op.get("refused")) for op in ops) > 10


def two_with_a_common_prefix(**options):
    pool = BlockPool(11, **options)
    first = pool.allocate(tokens(0, 48) + tokens(1, 7))
    second = pool.allocate(tokens(0, 48) + tokens(2, 5))
    return pool, first, second


def test_g1_two_requests_share_three_blocks():
    pool, first, second = two_with_a_common_prefix()
    assert (first.block_ids, first.num_cached_tokens) == ([1, 2, 3, 4], 0)
    assert (second.block_ids, second.num_cached_tokens) == ([1, 2, 3, 5], 48)
    assert [pool.blocks[block_id].ref_count for block_id in (1, 2, 3)] == [2, 2, 2]
    assert pool.num_free == 5
    assert pool.usage == 0.5


def test_g2_free_list_since_2026():
    pool, first, second = two_with_a_common_prefix()
    pool.free(first)
    pool.free(second)
    assert pool.free_list == [5, 4, 6, 7, 8, 9, 10, 3, 2, 1]
    third = pool.allocate(tokens(0, 48) + tokens(3, 6))
    assert third.block_ids == [1, 2, 3, 5]
    assert third.num_cached_tokens == 48
    assert pool.num_free == 6
    pool.free(third)
    row = pool.free_list
    assert pool.allocate(tokens(4, 160)).block_ids == row
    assert pool.free_list == []


def test_g3_free_list_before_2026():
    pool, first, second = two_with_a_common_prefix(unhashed_first=False)
    pool.free(first)
    pool.free(second)
    assert pool.free_list == [6, 7, 8, 9, 10, 4, 5, 3, 2, 1]


def test_g4_a_block_that_is_hit_is_not_the_one_evicted():
    pool = BlockPool(3)
    for label in (1, 2):
        pool.free(pool.allocate(tokens(label, 16)))
    both = pool.allocate(tokens(1, 16) + tokens(2, 16))
    assert both.block_ids == [1, 2]
    assert both.num_cached_tokens == 16


def test_g5_a_fully_cached_prompt_recomputes_its_last_block():
    pool = BlockPool(11)
    pool.free(pool.allocate(tokens(1, 64)))
    again = pool.allocate(tokens(1, 64))
    assert again.num_cached_tokens == 48
    assert len(again.block_ids) == 4
    assert again.block_ids[3] != 4


def test_g6_tail_first_keeps_two_of_three_hits():
    pool = BlockPool(4)
    pool.free(pool.allocate(tokens(1, 48)))
    pool.free(pool.allocate(tokens(2, 16)))
    assert pool.allocate(tokens(1, 48)).num_cached_tokens == 32


@pytest.mark.parametrize(("block_size", "hits"), [(16, 960), (240, 960), (784, 0)])
def test_g7_the_block_size_is_the_floor_of_what_can_be_shared(block_size, hits):
    pool = BlockPool(400, block_size)
    for request in range(5):
        pool.free(pool.allocate(tokens(0, 240) + tokens(1 + request, 800)))
    assert pool.hit_rate.admitted.hit_tokens == hits
    assert pool.hit_rate.admitted.queried_tokens == 5200
    assert pool.hit_rate.rate == pytest.approx(hits / 5200)


@pytest.mark.parametrize(("length", "percent"), [(527, 0), (552, 95.7), (979, 53.9)])
def test_hybrid_blocks_of_528(length, percent):
    pool = BlockPool(20, 528)
    pool.free(pool.allocate(tokens(1, length)))
    again = pool.allocate(tokens(1, length))
    assert 100 * again.num_cached_tokens / length == pytest.approx(percent, abs=0.05)


def test_g9_without_caching():
    pool = BlockPool(5, block_size=4, prefix_caching=False)
    first = pool.allocate(tokens(1, 10))
    assert len(first.block_ids) == 3
    pool.free(first)
    assert len(pool.allocate(tokens(2, 16)).block_ids) == 4
    assert pool.allocate(tokens(3, 4)) is None


def test_g10_growing_takes_a_block_only_when_the_last_is_full():
    pool = BlockPool(11)
    table = pool.allocate(tokens(1, 55))
    assert len(table.block_ids) == 4
    assert pool.append(table, tokens(2, 4))
    assert len(table.block_ids) == 4
    assert pool.blocks[table.block_ids[3]].hash is None
    assert pool.append(table, tokens(3, 19))
    assert len(table.block_ids) == 5
    assert pool.blocks[table.block_ids[3]].hash is not None
    whole = tokens(1, 55) + tokens(2, 4) + tokens(3, 19)
    assert pool.find([*whole, 1]) == table.block_ids[:4]


def test_g11_a_window_needs_only_its_last_block():
    pool = BlockPool(6, block_size=1, sliding_window=2)
    table = pool.allocate([0, 1, 2, 3, 4])
    assert pool.drop(table, [0, 1, 2]) == [3, 2, 1]
    pool.free(table)
    pool.free(pool.allocate(tokens(9, 3)))
    again = pool.allocate([0, 1, 2, 3, 4, 5])
    assert again.num_cached_tokens == 5
    assert again.block_ids[:4] == [NULL_BLOCK] * 4


@pytest.mark.parametrize(
    ("known", "window", "block_size", "hit"),
    [
        ([0, 0, 0, 1, 1], 2, 1, 5),
        ([1, 1, 0, 1, 0], 2, 1, 4),
        ([1, 1, 0, 0, 1], 4, 1, 2),
        ([0, 1, 1, 0, 1], 3, 1, 3),
        ([0, 0, 0], 2, 1, 0),
        ([1, 0, 1, 1, 0, 1], 4, 2, 4),
        ([0, 0, 0], 1, 16, 3),
    ],
)
def test_sliding_window_hit(known, window, block_size, hit):
    assert sliding_window_hit([bool(flag) for flag in known], window, block_size) == hit


def test_a_changed_first_token_reuses_nothing():
    pool = BlockPool(20)
    pool.free(pool.allocate(tokens(1, 100)))
    changed = pool.allocate([7, *tokens(1, 100)[1:]])
    assert changed.num_cached_tokens == 0


def test_salts_keep_owners_apart():
    pool = BlockPool(40)
    cached = []
    for salt in ("ann", "ben", "ann", None, None):
        table = pool.allocate(tokens(1, 64), salt=salt)
        cached.append(table.num_cached_tokens)
        pool.free(table)
    assert cached == [0, 0, 48, 0, 48]


def test_a_salt_cannot_be_mistaken_for_tokens():
    salted = block_hash(b"", [1, 2], "x")
    assert salted != block_hash(b"", [1, 2])
    assert chain_hashes([1, 2, 3, 4], 2, "x")[1] != chain_hashes([1, 2, 3, 4], 2)[1]


def test_preempted_requests_are_counted_apart():
    pool = BlockPool(40)
    for request in range(8):
        pool.free(pool.allocate(tokens(request, 160)))
        pool.free(pool.allocate(tokens(request, 160), preempted=True))
    assert pool.hit_rate.rate == 0
    assert pool.hit_rate.preempted.rate == 144 / 160
    assert pool.hit_rate.naive_rate == 8 * 144 / (16 * 160)


def test_a_request_that_waits_is_counted_once():
    pool = BlockPool(6)
    pool.allocate(tokens(1, 48))
    other = pool.allocate(tokens(2, 32))
    waiting = tokens(1, 48) + tokens(3, 16)
    for _ in range(3):
        assert pool.allocate(waiting) is None
    pool.free(other)
    pool.allocate(waiting)
    assert pool.hit_rate.admitted.requests == 3
    assert pool.hit_rate.rate == 48 / 144
    assert pool.hit_rate.naive_rate == 192 / 336


def test_eight_identical_requests_report_what_they_hit():
    pool = BlockPool(200)
    for _ in range(8):
        pool.free(pool.allocate(tokens(1, 1024)))
    assert pool.hit_rate.rate == pytest.approx(7 * 1008 / (8 * 1024))


def test_hit_rate_is_unknown_before_the_first_request():
    assert BlockPool(4).hit_rate.rate is None


def test_never_fits_is_told_from_not_now():
    pool = BlockPool(50)
    assert pool.never_fits(1002)
    assert pool.allocate(tokens(1, 1002)) is None
    assert not pool.never_fits(49 * 16)


def test_equal_contents_are_not_merged():
    pool = BlockPool(20)
    first = pool.allocate(tokens(1, 16))
    second = pool.allocate(tokens(1, 16))
    assert first.block_ids != second.block_ids
    assert pool.find(tokens(1, 17)) == first.block_ids
    pool.free(first)
    pool.free(second)
    pool.free(pool.allocate(tokens(2, 17 * 16)))
    assert pool.find(tokens(1, 17)) == first.block_ids
    assert pool.allocate(tokens(3, 16)).block_ids == first.block_ids
    assert pool.find(tokens(1, 17)) == second.block_ids


def test_unhashed_blocks_keep_their_reversed_order_at_the_front():
    pool = BlockPool(8, block_size=4, prefix_caching=False)
    pool.free(pool.allocate(tokens(1, 12)))
    assert pool.free_list == [3, 2, 1, 4, 5, 6, 7]


def test_orphans_are_counted():
    pool = BlockPool(5, block_size=4, unhashed_first=False)
    table = pool.allocate(tokens(1, 12))
    pool.drop(table, [0])
    assert pool.num_orphans == 0
    filler = pool.allocate(tokens(2, 8))
    assert filler.block_ids == [4, 1]
    assert pool.num_orphans == 1


def test_dropping_a_shared_block_frees_nothing():
    pool, first, second = two_with_a_common_prefix()
    assert pool.drop(first, [0, 3]) == [4]
    assert first.block_ids == [NULL_BLOCK, 2, 3, NULL_BLOCK]
    assert pool.blocks[1].ref_count == 1
    pool.free(first)
    pool.free(second)
    assert pool.num_free == 10


def test_events_name_what_was_stored_and_evicted():
    pool = BlockPool(3)
    pool.free(pool.allocate(tokens(1, 32)))
    pool.take_events()
    pool.allocate(tokens(2, 20))
    assert [(event.kind, event.block_id) for event in pool.take_events()] == [
        ("evicted", 2),
        ("evicted", 1),
        ("stored", 2),
    ]
    assert pool.take_events() == []


def test_reset_waits_until_nothing_is_in_use():
    pool = BlockPool(5)
    table = pool.allocate(tokens(1, 32))
    assert not pool.reset()
    pool.free(table)
    assert pool.reset()
    assert pool.find(tokens(1, 33)) == []


def test_append_refused_changes_nothing():
    pool = BlockPool(3)
    table = pool.allocate(tokens(1, 30))
    assert not pool.append(table, tokens(2, 3))
    assert len(table.token_ids) == 30
    assert len(table.block_ids) == 2
    assert pool.append(table, tokens(2, 2))


def test_what_follows_an_eviction_cannot_be_found():
    pool = BlockPool(10, block_size=4)
    table = pool.allocate(tokens(1, 6))
    table.findable = False
    assert pool.append(table, tokens(2, 6))
    assert len(table.block_ids) == 3
    assert pool.find(tokens(1, 6) + tokens(2, 6)) == table.block_ids[:1]
    pool.free(table)
    assert pool.free_list[:2] == [3, 2]


def test_misuse_is_refused_in_a_sentence():
    pool = BlockPool(4)
    table = pool.allocate([1, 2, 3])
    pool.free(table)
    for misuse in (pool.free, lambda freed: pool.append(freed, [4]), lambda t: pool.drop(t, [0])):
        with pytest.raises(ValueError, match="was freed"):
            misuse(table)
    with pytest.raises(ValueError, match="at least one token"):
        pool.allocate([])
    with pytest.raises(ValueError, match="whole numbers"):
        pool.allocate(["a"] * 16)
    with pytest.raises(ValueError, match="at least 2 blocks"):
        BlockPool(1)
    with pytest.raises(ValueError, match="at least 1 token"):
        BlockPool(4, block_size=0)
    with pytest.raises(ValueError, match="window"):
        BlockPool(4, sliding_window=0)


steps = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "append", "free", "drop"]),
        st.integers(0, 3),
        st.integers(1, 14),
    ),
    max_size=60,
)


@given(
    steps=steps,
    num_blocks=st.integers(2, 12),
    unhashed_first=st.booleans(),
    prefix_caching=st.booleans(),
)
def test_nothing_is_lost_or_held_twice(steps, num_blocks, unhashed_first, prefix_caching):
    pool = BlockPool(num_blocks, 4, unhashed_first, prefix_caching)
    running = []
    for kind, label, count in steps:
        if kind == "allocate":
            table = pool.allocate([label] * count)
            running += [table] if table else []
        elif not running:
            continue
        elif kind == "append":
            pool.append(running[label % len(running)], [label] * count)
        elif kind == "drop":
            table = running[label % len(running)]
            pool.drop(table, [count % len(table.block_ids)])
        else:
            pool.free(running.pop(label % len(running)))
        held = {block_id for table in running for block_id in table.block_ids} - {NULL_BLOCK}
        free = pool.free_list
        assert len(free) == len(set(free))
        assert held.isdisjoint(free)
        assert held | set(free) == set(range(1, num_blocks))
        for block in pool.blocks[1:]:
            users = sum(block.block_id in table.block_ids for table in running)
            assert block.ref_count == users
    for table in running:
        pool.free(table)
    assert pool.num_free == num_blocks - 1


@given(
    first=st.lists(st.integers(0, 2), min_size=1, max_size=40),
    second=st.lists(st.integers(0, 2), min_size=1, max_size=40),
    block_size=st.integers(1, 5),
)
def test_a_hit_is_the_longest_common_run_of_whole_blocks(first, second, block_size):
    pool = BlockPool(100, block_size)
    pool.free(pool.allocate(first))
    common = 0
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            break
        common += 1
    expected = min(common, len(second) - 1) // block_size * block_size
    assert pool.allocate(second).num_cached_tokens == expected
