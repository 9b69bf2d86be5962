"""Invariants of every policy, whatever the requests and the settings."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings as effort

from kvcore.paging import POLICIES, Request, paper_requests, simulate
from kvcore.paging.contiguous import ContiguousPool
from kvcore.paging.policies import make_pool
from kvcore.paging.simulation import Rules, Simulation

from . import strategies

POOL_SETTINGS = (
    "num_slots",
    "block_size",
    "watermark",
    "max_model_len",
    "page_bytes",
    "tensor_bytes",
)
RULE_SETTINGS = ("look_ahead", "preemption", "swap_slots", "max_batch", "max_model_len")


@effort(max_examples=150)
@given(strategies.request_lists(), strategies.policies, strategies.settings())
def test_no_slot_is_owned_twice_nor_lost_and_everything_comes_back(requests, policy, settings):
    pool = make_pool(policy, **{name: settings[name] for name in POOL_SETTINGS})
    run = Simulation(requests, pool, Rules(**{name: settings[name] for name in RULE_SETTINGS}))
    num_events = 0
    while run.advance():
        num_events += 1
        _assert_sound(run)
        assert num_events < 40_000, "no progress"
    _assert_empty(run)
    served = sum(step is not None for step in run.finished_at)
    assert served + len(run.refused) == len(requests)


@effort(max_examples=100)
@given(strategies.request_lists(), strategies.policies, strategies.settings())
def test_the_split_sums_to_the_pool_under_every_definition(requests, policy, settings):
    result = simulate(requests, policy, **settings)
    for buddy_slack in ("external", "internal"):
        for block_slack in ("strict", "reservation", "internal", "halved"):
            split = result.split(buddy_slack, block_slack)
            parts = (split.token_states, split.reservation, split.internal, split.external)
            assert sum(parts) == pytest.approx(100)
            assert min(parts) >= -1e-9
            assert split.token_states == pytest.approx(result.token_states)
    for moment in result.timeline.moments:
        whole = moment.tokens + moment.future + moment.never + moment.rounding + moment.free
        assert whole == pytest.approx(result.num_slots)


@effort(max_examples=60)
@given(strategies.request_lists(), strategies.policies, strategies.settings())
def test_who_can_never_fit_is_refused_at_once_and_nobody_else(requests, policy, settings):
    result = simulate(requests, policy, **settings)
    refused = {refusal.index for refusal in result.refused}
    alone = {
        index
        for index, request in enumerate(requests)
        if simulate([request], policy, **settings).completed == 0
    }
    assert refused == alone
    assert all(result.finished_at[index] is None for index in refused)


def _assert_sound(run: Simulation) -> None:
    pool, step = run.pool, run.step
    stays = list(run.running.values())
    for stay in stays:
        assert step <= stay.next_event
    growth = sum(stay.request.samples for stay in stays)
    assert pool.growth == growth
    if isinstance(pool, ContiguousPool):
        owned = sorted(address for stay in stays for address in stay.places)
        assert owned == [address for address, _ in pool.buddy.chunks]
        end = 0
        for address, size in sorted(pool.buddy.chunks + pool.buddy.free_chunks):
            assert address == end
            end += size
        assert end == pool.num_slots
        return
    owners = Counter(block for stay in stays for table in stay.places for block in table)
    counts = pool.blocks.ref_counts
    assert counts == [owners[block] for block in range(len(counts))]
    free = pool.blocks.free_blocks
    assert len(free) == len(set(free)) == pool.blocks.num_free
    assert set(free) | set(owners) == set(range(pool.blocks.num_blocks))
    assert not set(free) & set(owners)
    for stay in stays:
        for table in stay.places:
            assert pool.blocks_for(stay.length(step) - 1) <= len(table)


def _assert_empty(run: Simulation) -> None:
    pool = run.pool
    assert not run.running
    assert not run.waiting
    assert pool.allocated == 0
    for account in (pool.future, pool.never, pool.rounding, pool.growth):
        assert account == pytest.approx(0)
    if isinstance(pool, ContiguousPool):
        assert pool.buddy.free_chunks == pool.buddy.roots
    else:
        assert set(pool.blocks.ref_counts) == {0}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_run(policy):
    first = simulate(paper_requests(200, seed=5), policy)
    second = simulate(paper_requests(200, seed=5), policy)
    assert first.parts == second.parts
    assert first.finished_at == second.finished_at


def test_a_request_takes_a_step_for_each_token_and_one_more_slot_each_step():
    result = simulate([Request(prompt=7, output=3)], "contiguous-oracle", num_slots=16)
    assert result.steps == 3
    assert result.finished_at == [3]
    # 8, 9 and 10 tokens in a chunk of 16: 27 of 48 slot-steps hold tokens, 3 will, 18 round up.
    assert result.parts.tokens * 3 == 27
    assert result.parts.future * 3 == 3
    assert result.parts.rounding * 3 == 18


def test_paged_takes_a_block_when_the_last_one_is_full_and_not_before():
    result = simulate([Request(4, 5)], "paged", num_slots=16, block_size=4, watermark=0)
    # Blocks held while 5, 6, 7, 8, 9 tokens are stored: 2, 2, 2, 2, 3.
    assert result.num_slots - result.parts.free == 11 * 4 / 5
    assert result.parts.tokens == 7
    assert (result.parts.future + result.parts.never) * 5 == 11 * 4 - 35


def test_strict_order_waits_behind_a_blocked_head_and_look_ahead_does_not():
    requests = [Request(8, 10), Request(14, 2), Request(2, 2)]
    settings = {"policy": "contiguous-oracle", "num_slots": 52}
    strict = simulate(requests, **settings)
    assert strict.admitted_at == [0, 0, 0]
    settings["num_slots"] = 40
    assert simulate(requests, **settings).admitted_at == [0, 10, 10]
    assert simulate(requests, **settings, look_ahead=1).admitted_at == [0, 10, 0]


def test_arrivals_are_served_in_order_of_time_even_if_listed_otherwise():
    requests = [Request(4, 4, arrival=9.5), Request(4, 4, arrival=0)]
    result = simulate(requests, "paged", num_slots=64)
    assert result.admitted_at == [10, 0]
    assert result.waits == [0.5, 0.0]


def test_an_idle_pool_counts_as_idle():
    requests = [Request(4, 4), Request(4, 4, arrival=100)]
    result = simulate(requests, "paged", num_slots=64)
    assert result.steps == 104
    assert result.batch_size == pytest.approx(8 / 104)


def test_the_batch_can_be_capped():
    result = simulate([Request(4, 10)] * 10, num_slots=1_000, max_batch=3)
    assert result.batch_size <= 3
    assert result.completed == 10


def test_a_pool_smaller_than_a_block_refuses_everybody():
    result = simulate([Request(1, 1)], num_slots=15)
    assert result.refused[0].reason == (
        "It needs 1 block of 16 tokens to finish, and the whole pool has 0."
    )
    assert result.external == 100


def test_no_requests_give_an_empty_pool():
    result = simulate([], "paged")
    assert result.external == 100
    assert (result.batch_size, result.steps, result.mean_wait) == (0, 0, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": "best"}, "There is no policy 'best'"),
        ({"num_slots": 0}, "num_slots must be at least 1"),
        ({"block_size": 0}, "block_size must be at least 1"),
        ({"watermark": 1}, "watermark is a share"),
        ({"watermark": -0.1}, "watermark is a share"),
        ({"max_model_len": 1}, "max_model_len must be at least 2"),
        ({"preemption": "kill"}, "recompute"),
        ({"look_ahead": -1}, "look_ahead"),
        ({"max_batch": 0}, "max_batch"),
        ({"swap_slots": -1}, "swap_slots"),
        ({"page_bytes": 0}, "at least one byte"),
    ],
)
def test_a_setting_that_cannot_be_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        simulate([Request(1, 1)], **settings)


def test_another_definition_is_refused():
    result = simulate([Request(1, 1)])
    with pytest.raises(ValueError, match="buddy_slack"):
        result.split(buddy_slack="none")
    with pytest.raises(ValueError, match="block_slack"):
        result.split(block_slack="none")
