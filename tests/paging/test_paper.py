"""Figure 2, the batches of Figure 13, Table 1, Figure 3, and what moves them."""

from statistics import mean

import pytest

from kvcore.paging import lognormal_requests, paper_requests, simulate
from kvcore.paging.experiments import load_sweep, sweep
from kvcore.paging.paper import (
    ALPACA_BATCHES,
    ALPACA_MEAN_OUTPUT,
    ALPACA_MEAN_PROMPT,
    FIGURE_2,
    TABLE_1,
    closed_form_max,
    equal_share_waste,
    implied_tokens_per_request,
    never_used_slots,
    tokens_per_request,
)

SEEDS = (0, 1, 2)
PAPER_BATCH = {"contiguous-pow2": 9.81, "contiguous-oracle": 13.62}


@pytest.fixture(scope="module")
def requests():
    return paper_requests(4_000, seed=1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", FIGURE_2)
def test_every_labelled_segment_of_figure_2_is_within_two_points(policy, seed):
    result = simulate(paper_requests(4_000, seed=seed), policy)
    bar = FIGURE_2[policy]
    for segment in bar.labelled:
        assert getattr(result, segment) == pytest.approx(getattr(bar.split, segment), abs=2.0)
    if policy == "contiguous-max":
        assert result.batch_size == 7
    if policy in PAPER_BATCH:
        assert result.batch_size == pytest.approx(PAPER_BATCH[policy], rel=0.03)


def test_the_orcas_batch_alpaca_as_the_paper_has_it():
    """Figure 13b, though only the means of Alpaca's lengths are known: within 5 %."""
    requests = lognormal_requests(4_000, ALPACA_MEAN_PROMPT, ALPACA_MEAN_OUTPUT, 0.5, 1.0)
    for policy in ("contiguous-max", "contiguous-pow2", "contiguous-oracle"):
        batch = simulate(requests, policy).batch_size
        assert batch == pytest.approx(ALPACA_BATCHES[policy], rel=0.05)


def test_the_bars_as_printed_sum_to_the_pool():
    for bar in FIGURE_2.values():
        split = bar.split
        whole = split.token_states + split.reservation + split.internal + split.external
        assert whole == pytest.approx(100, abs=0.11)


def test_independent_pairs_give_the_closed_form_of_max():
    """Without a simulation: 19.24 / 12.82 / 59.08 / 8.85, as worked out from Figure 11."""
    seeds = range(6)
    splits = [closed_form_max(paper_requests(4_000, s, correlation=0), 15_728)[0] for s in seeds]
    assert mean(s.token_states for s in splits) == pytest.approx(19.24, abs=0.3)
    assert mean(s.reservation for s in splits) == pytest.approx(12.82, abs=0.1)
    assert mean(s.internal for s in splits) == pytest.approx(59.08, abs=0.3)
    assert mean(s.external for s in splits) == pytest.approx(8.85, abs=0.01)


def test_the_simulation_of_max_comes_to_its_closed_form(requests):
    split, batch = closed_form_max(requests, 15_728)
    result = simulate(requests, "contiguous-max")
    assert batch == 7 == result.batch_size
    assert result.token_states == pytest.approx(split.token_states, abs=0.25)
    assert result.reservation == pytest.approx(split.reservation, abs=0.25)
    assert result.internal == pytest.approx(split.internal, abs=0.4)
    assert result.external == pytest.approx(split.external)


def test_the_correlation_is_the_one_the_bars_imply():
    """E[po]/E[o] is 160 with a copula of 0.1; the bars of Figure 2 imply 159.5."""
    pairs = paper_requests(40_000, seed=0)
    weighted = sum(r.prompt * r.output for r in pairs) / sum(r.output for r in pairs)
    assert weighted == pytest.approx(159.5, abs=4)
    assert tokens_per_request(pairs) == pytest.approx(449, abs=4)


def test_three_bars_imply_the_same_request_and_vllms_does_not():
    implied = {policy: implied_tokens_per_request(bar) for policy, bar in FIGURE_2.items()}
    assert implied["contiguous-max"] == pytest.approx(458.4, abs=0.1)
    assert implied["contiguous-pow2"] == pytest.approx(429.7, abs=0.1)
    assert implied["contiguous-oracle"] == pytest.approx(441.1, abs=0.1)
    assert implied["paged"] == pytest.approx(497.9, abs=0.1)


@pytest.mark.parametrize(
    ("block_size", "tokens", "slack"),
    [
        (1, 97.8, 0),
        (8, 97.1, 0.8),
        (16, 96.2, 1.7),
        (32, 94.5, 3.4),
        (64, 91.2, 6.6),
        (128, 85.0, 12.6),
        (256, 75.3, 23.0),
    ],
)
def test_larger_blocks_hold_fewer_tokens(requests, block_size, tokens, slack):
    result = simulate(requests, "paged", block_size=block_size)
    assert result.token_states == pytest.approx(tokens, abs=1)
    assert result.reservation + result.internal == pytest.approx(slack, abs=1)


def test_a_watermark_buys_fewer_preemptions_with_empty_blocks(requests):
    """The same falling shape as vllm-project/vllm#44594 measured on a GPU."""
    runs = dict(sweep(requests, "watermark", [0, 0.01, 0.02, 0.05, 0.10]))
    shares = [run.token_states for run in runs.values()]
    assert shares == pytest.approx([96.4, 96.2, 95.8, 94.0, 90.3], abs=1)
    preempted = [run.preemptions_per_request for run in runs.values()]
    assert preempted == sorted(preempted, reverse=True)
    assert preempted == pytest.approx([1.79, 1.14, 0.76, 0.30, 0.09], rel=0.15)


def test_ninety_six_percent_full_is_not_free(requests):
    """About 0.6 tokens are computed again for each token generated, at a watermark of 1 %."""
    result = simulate(requests, "paged", watermark=0.01)
    assert result.recomputed_per_generated == pytest.approx(0.6, abs=0.08)
    assert result.recomputed_tokens == sum(entry.tokens for entry in result.preemption_log)


def test_the_bars_need_a_queue_that_never_empties():
    """Loads 0.5, 0.9, 1.5 of capacity: Oracle 18.6, 33.5, 37.6; Max 10.0, 17.4, 19.5."""
    pairs = paper_requests(4_000, seed=0, correlation=0)
    for policy, shares in {
        "contiguous-oracle": [18.6, 33.5, 37.6],
        "contiguous-max": [10.0, 17.4, 19.5],
    }.items():
        runs = [run.token_states for _, run in load_sweep(pairs, [0.5, 0.9, 1.5], policy)]
        assert runs == pytest.approx(shares, abs=1)


def test_looking_past_a_blocked_head_fills_the_pool():
    """Look-ahead 0 / 1 / 16: Oracle 37.5 / 38.9 / 41.1."""
    pairs = paper_requests(4_000, seed=0, correlation=0)
    runs = [run for _, run in sweep(pairs, "look_ahead", [0, 1, 16], "contiguous-oracle")]
    assert [run.token_states for run in runs] == pytest.approx([37.5, 38.9, 41.1], abs=1)


def test_the_shape_of_the_pool_matters_as_the_paper_has_it():
    """7 x 2,048 without the tail: Oracle 34.9, Pow2 25.1; 16,384 slots: Max batches 8, not 7."""
    pairs = paper_requests(4_000, seed=0, correlation=0)
    full, cut = 15_728, 7 * 2_048
    for policy, tokens in {"contiguous-oracle": 34.9, "contiguous-pow2": 25.1}.items():
        result = simulate(pairs, policy, num_slots=cut)
        assert result.token_states * cut / full == pytest.approx(tokens, abs=1)
    assert simulate(pairs, "contiguous-max", num_slots=16_384).batch_size == 8


def test_booked_as_internal_the_buddys_slack_moves_the_bars_and_no_token():
    result = simulate(paper_requests(4_000, seed=0, correlation=0), "contiguous-oracle")
    paper, other = result.split(), result.split(buddy_slack="internal")
    assert paper.internal == 0
    assert other.internal == pytest.approx(26, abs=1)
    assert other.external == pytest.approx(11.7, abs=1)
    assert other.token_states == paper.token_states


def test_halved_slack_gives_vllms_equal_slivers(requests):
    split = simulate(requests, "paged").split(block_slack="halved")
    assert split.reservation == split.internal == pytest.approx(1.04, abs=0.3)


@pytest.mark.parametrize(
    ("model", "bytes_per_token", "slots"),
    [
        ("OPT-13B", 819_200, 15_728.64),
        ("OPT-66B", 2_359_296, 9_557.3),
        ("OPT-175B", 4_718_592, 60_074.7),
    ],
)
def test_table_1(model, bytes_per_token, slots):
    row = next(row for row in TABLE_1 if row.name == model)
    assert row.bytes_per_token == bytes_per_token
    assert row.slots == pytest.approx(slots, abs=0.1)


def test_consequences_of_table_1():
    slots = TABLE_1[0].slots
    assert int(slots // 2_048) == 7 == FIGURE_2["contiguous-max"].batch_size
    assert 100 * (slots - 7 * 2_048) / slots == pytest.approx(8.85, abs=0.005)
    assert 2_048 * TABLE_1[0].bytes_per_token / 2**30 == 1.5625
    assert int(slots) // 16 == 983


def test_figure_3s_never_used_slots():
    assert never_used_slots(2_048, prompt=7, output=3) == 2_038
    assert never_used_slots(512, prompt=3, output=2) == 507
    with pytest.raises(ValueError, match="does not fit"):
        never_used_slots(8, 7, 2)


@pytest.mark.parametrize(
    ("layers", "waste"),
    [
        # 43 text and 6,193 image tokens (MMMU-Pro): 32 layers need the text, 8 the image.
        pytest.param([(32, 43), (8, 6_193), (0, 6_236)], 0.796, id="mllama"),
        pytest.param([(21, 4_096), (21, 8_192)], 0.25, id="Gemma-2"),
        pytest.param([(27, 32_768), (9, 131_072)], 0.5625, id="Ministral"),
    ],
)
def test_equal_room_for_unequal_layers_is_waste(layers, waste):
    """vllm-project/vllm#11382."""
    assert equal_share_waste(layers) == pytest.approx(waste, abs=0.0005)


def test_equal_share_needs_layers():
    with pytest.raises(ValueError, match="at least one token"):
        equal_share_waste([])


def test_the_closed_form_needs_requests():
    with pytest.raises(ValueError, match="at least one request"):
        closed_form_max([], 15_728)
