"""The pool at one step: every slot once, the account the same as the run's, and who waits why."""

import pytest
from hypothesis import given
from hypothesis import settings as effort

from kvcore.paging import POLICIES, Request, paper_requests, simulate
from kvcore.paging.snapshot import pool_state

from . import strategies


@effort(max_examples=80)
@given(strategies.request_lists(12), strategies.policies, strategies.settings())
def test_pieces_and_free_chunks_are_the_pool_and_agree_with_the_run(requests, policy, settings):
    result = simulate(requests, policy, record=True, **settings)
    for moment in result.timeline.moments[:40]:
        state = pool_state(result, moment.step)
        _assert_no_overlap(state)
        pieces = state.pieces
        assert sum(piece.tokens for piece in pieces) == pytest.approx(moment.tokens)
        assert sum(piece.future for piece in pieces) == pytest.approx(moment.future)
        assert sum(piece.never for piece in pieces) == pytest.approx(moment.never)
        assert sum(piece.rounding for piece in pieces) == pytest.approx(moment.rounding)
        assert state.free == pytest.approx(moment.free)
        assert len(state.running) == moment.running
        assert state.num_waiting == moment.waiting
        assert (state.head is None) == (moment.waiting == 0)
        if policy.startswith("contiguous"):
            assert state.largest_free == moment.largest_free


def _assert_no_overlap(state):
    rows = [(piece.address, piece.size) for piece in state.pieces] + state.free_chunks
    end = 0.0
    for address, size in sorted(rows):
        assert address == pytest.approx(end)
        end = address + size
    assert end <= state.num_slots + 1e-6


def test_each_piece_adds_up():
    result = simulate(paper_requests(100), "paged", record=True)
    for piece in pool_state(result, 100).pieces:
        assert piece.tokens + piece.future + piece.never + piece.rounding == piece.size
        assert piece.tokens > 0


def test_a_shared_block_is_drawn_once_with_all_its_owners():
    requests = [Request(40, 8, prefix_id="a", prefix_tokens=32)] * 2
    state = pool_state(simulate(requests, num_slots=640, record=True), 0)
    assert [piece.owners for piece in state.pieces if len(piece.owners) > 1] == [(0, 1), (0, 1)]
    assert len(state.pieces) == 4


def test_the_head_of_the_line_says_why_it_waits():
    """Two of four chunks are free, which is enough, but they are not neighbours."""
    requests = [Request(10, 2), Request(10, 6), Request(10, 2), Request(10, 6), Request(10, 10)]
    result = simulate(requests, "contiguous-oracle", num_slots=64, record=True)
    state = pool_state(result, 3)
    assert (state.head.index, state.head.waited, state.head.needs) == (4, 3, 32)
    assert state.head.reason == (
        "It needs 32 slots in one piece. 32 are free, but the largest chunk has 16."
    )
    assert pool_state(result, 0).head.reason == (
        "It needs a chunk of 32 slots and only 0 are free in all."
    )


def test_the_watermark_is_named_when_it_is_the_reason():
    requests = [Request(80, 16), Request(48, 16)]
    result = simulate(requests, num_slots=160, watermark=0.15, record=True)
    assert pool_state(result, 0).head.reason == (
        "It needs 4 blocks of 16 tokens; 4 are free, but the watermark keeps 1 of them for those "
        "who run."
    )


def test_too_few_blocks_are_counted():
    requests = [Request(80, 16), Request(78, 1)]
    result = simulate(requests, num_slots=160, watermark=0, record=True)
    assert pool_state(result, 0).head.reason == ("It needs 5 blocks of 16 tokens, and 4 are free.")


def test_who_was_put_out_stands_first_in_line():
    result = simulate(paper_requests(200, seed=0), record=True)
    for entry in result.preemption_log[:10]:
        state = pool_state(result, entry.step)
        last = [e for e in result.preemption_log if e.step == entry.step][-1]
        assert state.head.index == last.index
        assert state.head.waited == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_left_at_the_end(policy):
    result = simulate(paper_requests(20), policy, record=True)
    state = pool_state(result, result.steps)
    assert (state.pieces, state.num_waiting, state.head) == ([], 0, None)
    assert state.free == result.num_slots


def test_what_was_not_recorded_cannot_be_shown():
    result = simulate([Request(1, 1)])
    with pytest.raises(ValueError, match="record=True"):
        pool_state(result, 0)
    with pytest.raises(ValueError, match="steps 0 to 1"):
        pool_state(simulate([Request(1, 1)], record=True), 2)
