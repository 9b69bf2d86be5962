"""Recorded traffic replayed: Mooncake's trace against the reference, refusals, cutting."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.lab.traffic import found_by_capacity, found_table, read_traffic
from kvcore.paging.traces import TraceError
from tests.shared_data import shared_data


def trace(*prompts: list[int]) -> bytes:
    lines = (
        {
            "timestamp": 1_000 * place,
            "input_length": 512 * len(ids),
            "output_length": 1,
            "hash_ids": ids,
        }
        for place, ids in enumerate(prompts)
    )
    return "\n".join(map(json.dumps, lines)).encode()


@pytest.fixture(scope="module")
def mooncake() -> bytes:
    return shared_data("mooncake_fast25_conversation.jsonl.gz").read_bytes()


def test_mooncakes_column_by_capacity(mooncake):
    """Section 4 of the paging reference, within 0.005; without a limit 0.3664 and 0.374."""
    traffic = read_traffic(mooncake)
    assert (len(traffic.lengths), traffic.num_in_file) == (12_031, 12_031)
    found = found_by_capacity(traffic)
    assert [each.capacity for each in found] == [
        1_000,
        3_000,
        10_000,
        30_000,
        50_000,
        100_000,
        None,
    ]
    rates = [each.replay.block_hit_rate for each in found]
    assert rates == pytest.approx([0.045, 0.065, 0.212, 0.326, 0.355, 0.364, 0.3664], abs=0.005)
    assert rates[-1] == pytest.approx(0.3664, abs=5e-5)
    assert found[-1].replay.token_hit_rate == pytest.approx(0.374, abs=5e-4)


def test_a_small_trace_is_replayed_at_sizes_of_its_own():
    traffic = read_traffic(trace(list(range(20)), list(range(20)), [99]))
    assert traffic.num_distinct == 21
    found = found_by_capacity(traffic)
    assert [(each.capacity, each.replay.block_hits) for each in found] == [(10, 10), (None, 20)]
    table = found_table(traffic, found).to_pydict()
    assert table["blocks"] == [10, 21]
    assert table["tokens"] == [5_120, 21 * 512]
    assert table["limit"] == ["yes", "none"]
    assert table["block_hit_rate"] == [10 / 41, 20 / 41]


def test_a_long_trace_is_cut_to_its_first_requests():
    traffic = read_traffic(trace([1, 2], [1, 2], [1, 2], [3, 4]), most_blocks=5)
    assert (len(traffic.lengths), traffic.num_in_file) == (2, 4)
    assert len(read_traffic(trace([1, 2], [3]), most_blocks=1).lengths) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,4,4\n", "hash_ids"),
        (b'{"timestamp": 0, "input_length": 9, "output_length": 1}', "No request names its blocks"),
        (trace([1], [2]).replace(b', "hash_ids": [2]', b""), "1 of 2 requests do not name"),
        (trace([1]).replace(b"[1]", b'["a"]'), "whole numbers"),
        (gzip.compress(trace([1]), mtime=0)[:-6], "ends early"),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_a_sentence(data, said):
    with pytest.raises(TraceError, match=said):
        read_traffic(data)


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=12), min_size=1, max_size=20))
def test_more_room_never_finds_less(prompts):
    found = found_by_capacity(read_traffic(trace(*prompts)))
    hits = [each.replay.block_hits for each in found]
    assert hits == sorted(hits)
    assert found[-1].replay.evictions == 0
