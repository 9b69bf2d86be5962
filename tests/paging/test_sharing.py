"""Blocks saved by parallel samples and common prefixes, against the paper and by counting."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from kvcore.paging import Request, lognormal_requests, paper_requests, simulate
from kvcore.paging.paper import (
    ALPACA_MEAN_OUTPUT,
    ALPACA_MEAN_PROMPT,
    ALPACA_PARALLEL_SAVING,
    SHAREGPT_PARALLEL_SAVING,
)
from kvcore.paging.sharing import parallel_saving, prefix_saving


@pytest.mark.parametrize(("samples", "percent"), [(2, 15.5), (4, 23.3), (6, 25.9)])
def test_savings_on_sharegpt_with_independent_pairs(samples, percent):
    requests = paper_requests(20_000, seed=0, correlation=0)
    assert 100 * parallel_saving(requests, samples) == pytest.approx(percent, abs=0.5)


def test_savings_on_sharegpt_are_in_the_papers_range():
    requests = paper_requests(20_000, seed=0)
    low, high = SHAREGPT_PARALLEL_SAVING
    assert 100 * parallel_saving(requests, 2) == pytest.approx(low, abs=1)
    assert low < 100 * parallel_saving(requests, 4) < 100 * parallel_saving(requests, 6) < high


def test_savings_on_alpaca_are_near_the_papers():
    """Only Alpaca's means are known; lognormal with variations 0.5 and 1 comes within 1.5."""
    requests = lognormal_requests(20_000, ALPACA_MEAN_PROMPT, ALPACA_MEAN_OUTPUT, 0.5, 1.0)
    for samples, percent in ALPACA_PARALLEL_SAVING.items():
        assert 100 * parallel_saving(requests, samples) == pytest.approx(percent, abs=1.5)


@effort(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=8),
    st.integers(1, 6),
    st.sampled_from([1, 4, 16]),
)
def test_the_formula_is_what_counting_each_step_gives(lengths, samples, block_size):
    shared = held = 0
    for prompt, output in lengths:
        for step in range(1, output + 1):
            blocks = -(-(prompt + step) // block_size)
            held += samples * blocks
            shared += (samples - 1) * (prompt // block_size)
    requests = [Request(prompt, output) for prompt, output in lengths]
    assert parallel_saving(requests, samples, block_size) == pytest.approx(shared / held)


@pytest.mark.parametrize("samples", [2, 3, 6])
def test_the_simulation_saves_what_the_formula_says(samples):
    requests = paper_requests(60, seed=3)
    shared = simulate([replace(r, samples=samples) for r in requests], num_slots=2_000_000)
    apart = simulate([r for r in requests for _ in range(samples)], num_slots=2_000_000)
    used = [run.num_slots - run.parts.free for run in (shared, apart)]
    assert shared.steps == apart.steps
    assert 1 - used[0] / used[1] == pytest.approx(parallel_saving(requests, samples), abs=0.06)


def test_a_half_filled_prompt_block_is_copied_for_all_but_one_sample():
    assert simulate([Request(20, 5, samples=4)], num_slots=400).copied_blocks == 3
    assert simulate([Request(32, 5, samples=4)], num_slots=400).copied_blocks == 0


def test_samples_share_the_full_prompt_blocks():
    result = simulate([Request(40, 1, samples=4)], num_slots=400)
    # Two full blocks once, the third copied so that each sample has its own: 2 + 4.
    assert result.num_slots - result.parts.free == 6 * 16
    contiguous = simulate([Request(40, 1, samples=4)], "contiguous-oracle", num_slots=400)
    assert contiguous.parts.tokens == 4 * 41


def test_a_declared_prefix_is_held_once():
    requests = [Request(40, 8, prefix_id="system", prefix_tokens=36)] * 3
    result = simulate(requests, num_slots=640)
    assert result.hit_tokens == 2 * 32
    alone = simulate(requests, num_slots=640, prefix_caching=False)
    assert alone.hit_tokens == 0
    assert result.parts.free - alone.parts.free == 2 * 32


def test_a_prefix_stays_findable_after_its_owner_is_gone():
    first = Request(40, 8, prefix_id="a", prefix_tokens=40)
    later = Request(40, 8, arrival=100, prefix_id="a", prefix_tokens=40)
    assert simulate([first, later], num_slots=640).hit_tokens == 32


def test_equal_tokens_are_found_and_others_are_not():
    common = list(range(48))
    one, two = common + [1] * 20, common + [2] * 20
    requests = [
        Request(55, 10, token_ids=one),
        Request(55, 10, token_ids=two),
        Request(55, 10, token_ids=[9, *one[1:]]),
    ]
    assert simulate(requests, num_slots=640).hit_tokens == 48


def test_the_last_prompt_token_is_always_computed():
    requests = [Request(64, 4, token_ids=range(68))] * 2
    assert simulate(requests, num_slots=640).hit_tokens == 48


def test_mooncakes_names_of_512_tokens_serve_smaller_blocks():
    first = Request(1_100, 4, hash_ids=(7, 8, 9))
    second = Request(1_100, 4, hash_ids=(7, 5, 6))
    settings = {"num_slots": 4_096, "max_model_len": 2_048}
    assert simulate([first, second], **settings).hit_tokens == 512
    assert simulate([first, second], block_size=48, **settings).hit_tokens == 0


def test_what_a_known_prefix_saves():
    requests = [Request(15, 1)]
    # 16 tokens after an 80-token prefix: 6 blocks, of which 5 are shared.
    assert prefix_saving(requests, 80) == 5 / 6
    assert prefix_saving(requests, 15) == 0


def test_savings_need_requests():
    for call in (lambda: parallel_saving([], 2), lambda: prefix_saving([Request(1, 1)], -1)):
        with pytest.raises(ValueError, match="at least one request"):
            call()
