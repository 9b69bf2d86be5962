"""The trace replay against Mooncake's conversation trace, the scenarios, and what samples save."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.prefix import BlockPool, parallel_sampling_saving, replay
from kvcore.prefix.scenarios import SCENARIOS
from tests.shared_data import shared_data


@pytest.fixture(scope="module")
def mooncake():
    with gzip.open(shared_data("mooncake_fast25_conversation.jsonl.gz"), "rt") as lines:
        return [json.loads(line) for line in lines]


def test_mooncake_without_limit(mooncake):
    result = replay(
        (row["hash_ids"] for row in mooncake),
        input_lengths=[row["input_length"] for row in mooncake],
    )
    assert result.requests == 12_031
    assert result.block_hit_rate == pytest.approx(0.3664, abs=5e-5)
    assert result.token_hit_rate == pytest.approx(0.374, abs=5e-4)
    assert result.evictions == 0


@pytest.mark.parametrize(
    ("capacity", "hit_rate"),
    [
        (1_000, 0.045),
        (3_000, 0.065),
        (10_000, 0.212),
        (30_000, 0.326),
        (50_000, 0.355),
        (100_000, 0.364),
    ],
)
def test_mooncake_by_capacity(mooncake, capacity, hit_rate):
    result = replay([row["hash_ids"] for row in mooncake], capacity)
    assert result.block_hit_rate == pytest.approx(hit_rate, abs=0.005)


def test_a_hit_behind_a_miss_does_not_count():
    assert replay([[1, 2, 3], [9, 2, 3]]).block_hits == 0
    assert replay([[1, 2, 3], [1, 2, 9]]).block_hits == 2


def test_the_tail_goes_before_the_head():
    result = replay([[1, 2, 3], [4], [1, 2, 3]], capacity=3)
    assert result.block_hits == 2
    assert result.evictions == 2


def test_nothing_to_replay():
    assert replay([]).block_hit_rate == 0
    assert replay([[]]).token_hit_rate is None


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="at least 1 block"):
        replay([[1]], capacity=0)
    with pytest.raises(ValueError, match="1 requests but 2 lengths"):
        replay([[1]], input_lengths=[1, 2])


@given(
    requests=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True), max_size=20)
)
def test_without_limit_every_known_leading_block_hits(requests):
    seen, hits = set(), 0
    for ids in requests:
        for hash_id in ids:
            if hash_id not in seen:
                break
            hits += 1
        seen.update(ids)
    assert replay(requests).block_hits == hits


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.key)
def test_scenarios_hold(scenario):
    outcome = scenario.run()
    assert outcome.checks
    for check in outcome.checks:
        assert check.holds, check


def test_g16_formula_by_hand():
    saving = parallel_sampling_saving([(40, 24)], samples=4)
    assert saving == pytest.approx(3 / 4 * (2 * 24) / (8 * 3 + 16 * 4))
    assert parallel_sampling_saving([(40, 24)], samples=1) == 0


@given(
    prompt=st.integers(1, 70).filter(lambda tokens: tokens % 16),
    output=st.integers(1, 50),
    samples=st.integers(1, 4),
)
def test_g16_counted_in_a_pool(prompt, output, samples):
    pool = BlockPool(64)
    tables = [pool.allocate([1] * prompt) for _ in range(samples)]
    held = unshared = 0
    for step in range(output):
        for sample, table in enumerate(tables):
            pool.append(table, [100 + sample * output + step])
        held += pool.num_blocks - 1 - pool.num_free
        unshared += sum(len(table.block_ids) for table in tables)
    saving = parallel_sampling_saving([(prompt, output)], samples)
    assert saving == pytest.approx((unshared - held) / unshared)


@pytest.mark.parametrize(("samples", "percent"), [(2, 15.5), (4, 23.3), (6, 25.9)])
def test_g16_on_the_papers_lengths(samples, percent):
    from kvcore.paging import paper_requests

    lengths = [(r.prompt, r.output) for r in paper_requests(4_000, seed=0, correlation=0.0)]
    saving = parallel_sampling_saving(lengths, samples)
    assert 100 * saving == pytest.approx(percent, abs=0.6)


def test_parallel_sampling_refuses_nothing():
    with pytest.raises(ValueError, match="at least 1 sample"):
        parallel_sampling_saving([(1, 1)], 0)
    with pytest.raises(ValueError, match="Nothing is generated"):
        parallel_sampling_saving([(5, 0)], 2)
