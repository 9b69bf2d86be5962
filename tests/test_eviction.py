"""Which positions stay: the papers' sets, budgets, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvcore.eviction import blocks_freed, budget_for, kept_positions, policy_name, renumbered


@pytest.mark.parametrize("length", [1, 4, 100, 515, 516, 517, 600, 2_000])
def test_g13_streaming_llm(length):
    kept = kept_positions(length, "sinks", sinks=4, window=512)
    expected = set(range(min(4, length))) | set(range(max(0, length - 512), length))
    assert kept == sorted(expected)
    assert len(kept) == min(length, 516)


@pytest.mark.parametrize("room", [1, 12, 511])
def test_g13_room_for_what_comes(room):
    kept = kept_positions(2_000, "sinks", sinks=4, window=512, room=room)
    assert kept == [0, 1, 2, 3, *range(2_000 - (512 - room), 2_000)]
    assert kept_positions(516 - room, "sinks", sinks=4, window=512, room=room) == list(
        range(516 - room)
    )


def test_g14_streaming_llm_press():
    kept = kept_positions(100, "sinks", budget=50, sinks=4)
    assert sorted(set(range(100)) - set(kept)) == list(range(4, 54))


def test_none_keeps_everything():
    assert kept_positions(7, "none") == list(range(7))
    assert kept_positions(7, None, budget=3) == list(range(7))


def test_window():
    assert kept_positions(10, "window", window=3) == [7, 8, 9]
    assert kept_positions(2, "window", window=3) == [0, 1]


def test_the_class_defaults_are_streaming_llms():
    assert len(kept_positions(2_000, "sinks")) == 516


def test_heavy_hitters_keep_the_most_attended_and_the_recent():
    scores = [0.1, 5, 0.2, 4, 0.3, 0, 0, 9]
    assert kept_positions(8, "heavy hitters", heavy=2, recent=3, scores=scores) == [1, 3, 5, 6, 7]
    assert kept_positions(8, "h2o", budget=5, scores=scores) == [1, 3, 5, 6, 7]


def test_of_equal_scores_the_earlier_stays():
    assert kept_positions(6, "h2o", heavy=2, recent=1, scores=[1] * 6) == [0, 1, 5]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("Sinks + window", "sinks"),
        ("sinks+window", "sinks"),
        ("streaming-llm", "sinks"),
        ("StreamingLLM", "sinks"),
        ("sliding_window", "window"),
        ("heavy_hitters", "heavy hitters"),
        ("H2O", "heavy hitters"),
        ("full", "none"),
        (None, "none"),
    ],
)
def test_spellings(spelling, name):
    assert policy_name(spelling) == name


def test_the_papers_parts_are_understood():
    theirs = budget_for("streaming-llm", start_size=4, recent_size=512)
    assert theirs == budget_for("sinks", sinks=4, window=512)
    assert theirs.total == 516


@pytest.mark.parametrize(
    ("policy", "budget", "says"),
    [
        ("windows", {}, "no policy 'windows'"),
        ("window", {"window": 0}, "at least 1 token"),
        ("window", {"window": -3}, "0 or more"),
        ("window", {"window": 2.5}, "whole number"),
        ("window", {"sinks": 4}, "has no sinks"),
        ("sinks", {"budget": 4, "sinks": 4}, "at least 1 token"),
        ("sinks", {"window": 4, "recent": 4}, "same part"),
        ("sinks", {"sinks": 4, "n_sink": 4}, "twice"),
        ("sinks", {"shelves": 4}, "has no shelves"),
        ("h2o", {}, "need a budget"),
        ("h2o", {"budget": 4, "recent": 5}, "too small"),
        ("h2o", {"heavy": 4, "recent": 4}, "10 scores"),
        ("h2o", {"budget": 4, "scores": [1, 2]}, "10 scores"),
    ],
)
def test_impossible_budgets_are_refused(policy, budget, says):
    with pytest.raises(ValueError, match=says):
        kept_positions(10, policy, **budget)


def test_a_negative_length_is_refused():
    with pytest.raises(ValueError, match="0 or more"):
        kept_positions(-1, "none")


def test_an_evicted_token_inside_a_kept_block_frees_nothing():
    kept = kept_positions(100, "sinks", sinks=4, window=40)
    assert blocks_freed(kept, 100, 16) == [1, 2]
    assert blocks_freed([0, 17, 40], 48, 16) == []


def test_renumbered():
    assert renumbered([0, 1, 97, 98]) == [0, 1, 2, 3]


@given(
    length=st.integers(0, 300),
    policy=st.sampled_from(["window", "sinks", "heavy hitters"]),
    budget=st.integers(6, 200),
    room=st.integers(0, 5),
    seed=st.randoms(use_true_random=False),
)
def test_budgets_are_never_exceeded_nor_wasted(length, policy, budget, room, seed):
    scores = [seed.random() for _ in range(length)] if policy == "heavy hitters" else None
    kept = kept_positions(length, policy, budget=budget, room=room, scores=scores)
    assert kept == sorted(set(kept))
    assert all(0 <= position < length for position in kept)
    assert len(kept) == min(length, budget if length + room <= budget else len(kept))
    if length + room > budget:
        recent = budget_for(policy, budget=budget).recent
        fitted = budget - min(room, recent)
        assert len(kept) == min(length, fitted)
    if length and room == 0:
        assert length - 1 in kept


@given(scores=st.lists(st.floats(0, 1), min_size=1, max_size=60), heavy=st.integers(0, 20))
def test_nothing_dropped_outweighs_a_kept_heavy_hitter(scores, heavy):
    kept = kept_positions(len(scores), "h2o", heavy=heavy, recent=3, scores=scores)
    earlier = [position for position in kept if position < len(scores) - 3]
    dropped = set(range(len(scores))) - set(kept)
    if earlier and dropped:
        assert min(scores[p] for p in earlier) >= max(scores[p] for p in dropped)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_scores_may_be_a_list_an_array_or_a_tensor(kind):
    scores = kind([0.1, 0.9, 0.2, 0.8, 0.3])
    assert kept_positions(5, "heavy hitters", heavy=2, recent=1, scores=scores) == [1, 3, 4]
