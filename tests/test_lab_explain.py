"""What the lab says of a step, against numbers worked out apart."""

from dataclasses import replace

import pytest

from kvcore.lab.experiment import Asked
from kvcore.lab.explain import (
    arithmetic,
    eviction_note,
    hit_rate,
    positions_note,
    takeaway,
    times_note,
)
from kvcore.lab.player import recorded
from kvcore.lab.trace import Prefill


@pytest.fixture
def trace():
    return recorded().trace


def test_the_picture_in_a_sentence_counts_what_is_held_and_what_is_gone(trace):
    frame = replace(trace.frames[0], num_tokens=50, kept=tuple(range(10, 50)))
    sentence = takeaway(trace, frame)
    assert f"{trace.about.num_layers} layers holds 40 of 50 tokens" in sentence
    assert sentence.endswith("10 are evicted.")


@pytest.mark.parametrize(
    ("renumber", "model", "says"),
    [
        (False, "smollm2", "kept as they were"),
        (True, "smollm2", "keys are turned"),
        (True, "gpt2", "GPT-2 adds positions to its input"),
    ],
)
def test_positions_are_said_to_move_only_where_they_do(trace, renumber, model, says):
    trace = replace(trace, about=replace(trace.about, renumber=renumber, model=model))
    assert says in positions_note(trace)


@pytest.mark.parametrize(
    ("evicted", "freed", "says"),
    [
        ((), (), None),
        ((4,), (), "This step evicted 1 token and freed no block: others in them stay."),
        ((4, 5), (3, 7), "This step evicted 2 tokens and gave back block 3, 7."),
    ],
)
def test_an_eviction_says_what_it_gave_back(trace, evicted, freed, says):
    assert eviction_note(replace(trace.frames[0], evicted=evicted, freed=freed)) == says


def test_the_arithmetic_is_that_of_smollm2(trace):
    """30 layers, 3 KV heads of 64, 32 bits: 2 × 30 × 3 × 64 × 4 = 46,080 B a token."""
    frame = replace(trace.frames[0], kept=tuple(range(100)), hit_rate=None, naive_hit_rate=0.25)
    prefill = replace(trace.prefill, prompt_tokens=161, cached_tokens=160, cold_seconds=None)
    lines = arithmetic(replace(trace, prefill=prefill), frame)
    assert lines[1].endswith("2 × 30 × 3 × 64 × 4 = 46,080 B")
    assert lines[2].endswith("100 tokens × 46,080 B = 4,608,000 B")
    assert lines[4].endswith("floor((161 - 1) / 16) × 16 = 160 tokens")
    assert lines[5].endswith("160 / 161 tokens found = 99.4%")
    assert "once = unknown; with retries and returns counted: 25.0%" in lines[6]
    assert len(lines) == 7


def test_what_was_saved_is_told_once_something_was_reused(trace):
    prefill = Prefill(33, 32, 0.010, 0.150, 2e-6, True)
    line = arithmetic(replace(trace, prefill=prefill), trace.frames[0])[-1]
    assert "150.0 ms cold - 10.0 ms warm = 140.0 ms" in line
    assert line.endswith("2.0e-06, same token: yes")


def test_the_times_are_compared_once_they_are_all_there():
    rows = [
        Asked("first", "", Prefill(100, 0, 0.200)),
        Asked("again", "", Prefill(100, 96, 0.020)),
        Asked("top", "", Prefill(100, 0, 0.210)),
        Asked("top again", "", Prefill(100, 0, 0.205)),
    ]
    assert times_note(rows[:3]) is None
    note = times_note(rows)
    assert "96 of 100 tokens were found" in note
    assert "after 20.0 ms instead of 200.0 ms" in note
    assert "fell to 0%: 210.0 ms" in note


def test_an_unknown_rate_is_no_zero():
    assert (hit_rate(None), hit_rate(0.0)) == ("unknown", "0.0%")
