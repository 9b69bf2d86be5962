"""Preemption: who goes, what it costs, and that it ends. Cases from engines' issue trackers."""

from collections import Counter
from dataclasses import replace

import pytest

from kvcore.paging import Request, paper_requests, simulate


def test_a_request_that_can_never_fit_is_refused_not_waited_for():
    """vllm-project/vllm#35541 hangs: 49 usable blocks, prompts of 1,002 tokens need 63."""
    result = simulate([Request(1_002, 100), Request(100, 10)], num_slots=49 * 16)
    (refusal,) = result.refused
    assert refusal.index == 0
    assert refusal.reason == (
        "It needs 69 blocks of 16 tokens to finish, and the whole pool has 49."
    )
    assert result.finished_at == [None, 10]


def test_a_prompt_that_fits_with_an_output_that_never_will_is_refused_too():
    result = simulate([Request(16, 17)], num_slots=32, watermark=0)
    assert "3 blocks of 16 tokens to finish" in result.refused[0].reason
    assert not simulate([Request(16, 16)], num_slots=32, watermark=0).refused


def test_longer_than_the_model_takes_is_refused_by_every_policy():
    for policy in ("contiguous-max", "paged", "demand-paged"):
        result = simulate([Request(2_000, 49)], policy)
        assert "takes at most 2,048" in result.refused[0].reason


def test_a_watermark_larger_than_the_rest_does_not_shut_a_request_out_for_ever():
    result = simulate([Request(16, 100)], num_slots=160, watermark=0.9)
    assert result.completed == 1


def test_the_latest_goes_first_and_comes_back_first():
    requests = [Request(16, 30), Request(16, 30), Request(16, 4)]
    result = simulate(requests, num_slots=5 * 16, watermark=0)
    first = result.preemption_log[0]
    # Two blocks each for requests 0 and 1; at step 16 both need a third, one is left.
    assert (first.step, first.index, first.wanted_by) == (16, 1, 1)
    assert first.tokens == 32
    assert first.freed == 32
    assert result.finished_at[0] == 30
    assert result.recomputed_tokens == 32
    assert result.admitted_at[2] > first.step


def test_what_was_lost_is_logged_for_each_victim():
    """vllm-project/vllm#18115, #25538: who was put out and how much was lost must be visible."""
    result = simulate(paper_requests(600, seed=2))
    assert result.preemptions == len(result.preemption_log) > 0
    for entry in result.preemption_log:
        request = result.requests[entry.index]
        assert request.prompt < entry.tokens < request.length
        assert entry.freed > 0
        assert result.admitted_at[entry.index] < entry.step < result.finished_at[entry.index]
    assert result.recomputed_tokens == sum(entry.tokens for entry in result.preemption_log)


def test_nobody_is_put_out_over_and_over():
    """Bounds where others livelocked: one request failed 173,622 times in a simulator
    (inference-sim#963), the whole running list cascaded in an engine (vllm-ascend#16315)."""
    result = simulate(paper_requests(4_000, seed=3))
    index, times = result.most_preempted
    assert times == Counter(entry.index for entry in result.preemption_log)[index]
    assert times <= 20
    assert max(Counter(entry.step for entry in result.preemption_log).values()) <= 5
    assert result.completed == 4_000


def test_the_oldest_request_is_never_put_out_so_there_is_always_progress():
    requests = [Request(10, 100)] * 20
    result = simulate(requests, num_slots=130, block_size=4, watermark=0)
    assert result.completed == 20
    assert 0 not in {entry.index for entry in result.preemption_log}


def test_no_one_is_let_in_while_someone_put_out_waits():
    result = simulate(paper_requests(600, seed=4), look_ahead=16, record=True)
    for entry in result.preemption_log:
        back = min(
            stay.start
            for stay in result.stays
            if stay.index == entry.index and stay.start >= entry.step
        )
        assert not [step for step in result.admitted_at if step and entry.step <= step < back]


def test_swapping_computes_nothing_again():
    requests = paper_requests(600, seed=2)
    recompute, swap = (simulate(requests, preemption=way) for way in ("recompute", "swap"))
    assert swap.recomputed_tokens == 0
    assert swap.swapped_tokens == recompute.recomputed_tokens > 0
    assert swap.finished_at == recompute.finished_at


def test_full_swap_space_falls_back_and_never_freezes():
    """vllm-project/vllm#1206, #1607, #1927: at 100 % usage the engine stood still."""
    result = simulate(paper_requests(600, seed=2), preemption="swap", swap_slots=500)
    assert result.completed == 600
    assert any(entry.swapped for entry in result.preemption_log)
    assert any(not entry.swapped for entry in result.preemption_log)
    assert result.recomputed_tokens == sum(
        entry.tokens for entry in result.preemption_log if not entry.swapped
    )


def test_a_request_that_finds_its_own_blocks_again_is_not_a_hit():
    """vllm-project/vllm#25780: unique prompts showed 32 % hits, all of preempted requests."""
    requests = [
        replace(request, token_ids=range(10_000 * index, 10_000 * index + request.length))
        for index, request in enumerate(paper_requests(300, seed=2))
    ]
    result = simulate(requests)
    assert result.preemptions > 0
    assert result.hit_tokens == 0
    assert result.rehit_tokens > 0


def test_contiguous_memory_may_be_free_and_of_no_use():
    """ggml-org/llama.cpp#3380 and others: enough cells are free, no run of them is long enough."""
    requests = [Request(10, 2), Request(10, 6), Request(10, 2), Request(10, 6), Request(10, 10)]
    contiguous = simulate(requests, "contiguous-oracle", num_slots=64)
    assert contiguous.admitted_at == [0, 0, 0, 0, 6]
    assert simulate(requests, num_slots=64, block_size=4, watermark=0).admitted_at[4] < 6


def test_requests_put_out_of_large_pages_come_back_too():
    result = simulate(paper_requests(300, seed=0), "demand-paged")
    assert result.completed == 300
    assert result.preemptions > 0


@pytest.mark.parametrize("page_kib", [64, 128, 256, 2_048])
def test_larger_pages_waste_more(page_kib):
    """A page is shared by no two requests: on average half of one, in each tensor, is empty."""
    requests = paper_requests(600, seed=0)
    result = simulate(requests, "demand-paged", page_bytes=page_kib * 1024)
    tokens_per_page = page_kib * 1024 / 10_240
    slack = (result.parts.future + result.parts.never) / result.batch_size
    # Ends of requests fall on each fifth of a token of a page equally often.
    assert slack == pytest.approx((tokens_per_page - 1 / 5) / 2, rel=0.05)
