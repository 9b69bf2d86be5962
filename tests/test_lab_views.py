"""How a step is turned into boxes, frames and charts, and how a player moves through a trace."""

from __future__ import annotations

import base64
import threading
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from kvcore.charts import cache_lab as charts
from kvcore.charts.theme import spec
from kvcore.jobs import MEASUREMENTS, Job, State
from kvcore.lab import frames
from kvcore.lab.player import Wanted, recorded
from kvcore.lab.rack import MAX_BOXES, grid_for, rack_data
from kvcore.lab.run import Policy, Settings
from kvcore.lab.trace import TokenState
from kvcore.prefix.scenarios import SCENARIOS
from tests.small_models import small_model


@pytest.fixture
def player():
    return recorded()


# The rack


@pytest.mark.parametrize(
    ("layers", "tokens", "block", "columns", "shelves"),
    [
        (28, 512, 16, 32, 28),
        (30, 192, 16, 24, 30),
        (12, 60, 16, 60, 12),
        (12, 61, 16, 61, 12),
        (80, 512, 16, 32, 27),
        (30, 2_048, 16, 32, 30),
        (30, 512, 1, 32, 30),
        (1, 1, 16, 1, 1),
    ],
)
def test_the_grid_is_as_fine_as_2000_boxes_allow(layers, tokens, block, columns, shelves):
    grid = grid_for(layers, tokens, block)
    assert -(-tokens // grid.tokens) == columns
    assert -(-layers // grid.layers) == shelves
    assert 2 * columns * shelves <= MAX_BOXES


def test_a_column_lies_within_a_block_or_holds_whole_blocks():
    for tokens in range(1, 1_500, 7):
        for block in (1, 4, 8, 16, 32):
            width = grid_for(30, tokens, block).tokens
            assert width % block == 0 or block % width == 0


def test_boxes_tell_brightness_eviction_and_norms(player):
    frame = player.trace.frames[40]
    data = rack_data(player.trace, frame)
    first, second = data["columns"][:2]
    assert first["gone"] == 0.5
    assert second["gone"] == 1
    assert second["brightness"] == 0
    assert second["state"] == "evicted"
    assert first["state"] == "4 from the pool; 4 evicted"
    assert data["columns"][-1]["brightness"] == 0.35
    assert data["columns"][10]["reused"] == 1
    assert data["shelves"][0] == "layer 1"
    norms = np.frombuffer(base64.b64decode(data["keys"]), dtype="<f4")
    keys, _ = player.trace.norms(frame)
    assert norms.reshape(30, -1)[3, 0] == pytest.approx(keys[3, :8].mean(), rel=1e-5)
    assert norms.reshape(30, -1)[29, -1] == pytest.approx(keys[29, 232 - 8 :].mean(), rel=1e-5)


def test_a_block_given_back_is_named_so(player):
    data = rack_data(player.trace, player.trace.frames[40])
    named = [column["block"] for column in data["columns"]]
    assert "block given back" in named
    assert named[0] == "block 1"


# Frames and charts


def test_the_block_table_tells_what_is_still_held(player):
    table = frames.block_table(player.trace, player.trace.frames[1])
    assert list(table["still held"])[:3] == ["4 of 16", "15 of 16", "16 of 16"]
    assert list(table["block"])[:3] == [1, 2, 3]
    table = frames.block_table(player.trace, player.trace.frames[40])
    assert list(table["still held"])[:2] == ["4 of 16", "0 of 16"]
    assert table["block"].isna()[1]


def test_small_blocks_stand_side_by_side(player):
    trace = player.trace
    about = replace(trace.about, block_size=4)
    frame = trace.frames[0]
    blocks = tuple(range(1, 49))
    small = replace(trace, about=about)
    frame = replace(frame, block_ids=blocks, ref_counts=(1,) * 48, findable=(True,) * 48)
    slots = frames.block_slots(small, frame).to_pandas()
    assert slots["column"].max() == 15
    assert slots["line"].nunique() == 12
    assert slots["blocks"].iloc[0] == "1 2 3 4"


def test_the_free_list_keeps_its_order():
    frame = frames.free_list([5, 4, 9], {9}, {4}).to_pandas()
    assert list(frame["block"]) == ["5", "4", "9"]
    assert list(frame["holds"]) == ["empty", "empty", "can still be found"]
    assert list(frame["just_freed"]) == [False, True, False]


def test_the_flat_map_agrees_with_the_rack(player):
    frame = player.trace.frames[20]
    flat = frames.heat_map(player.trace, frame).to_pandas()
    assert len(flat) <= frames.MAX_CELLS
    bottom = flat[flat["bottom"] == 0.5]
    assert list(bottom["end"])[-1] == frame.num_tokens
    assert set(flat["state"]) == {str(state) for state in TokenState}


def test_tokens_keep_their_numbers_or_are_renumbered(player):
    table = frames.tokens(player.trace, player.trace.frames[1])
    kept = table.dropna(subset=["position"])
    assert list(kept["position"]) == list(kept["index"])
    assert len(kept) == 180


ALL_CHARTS = [
    (charts.heat_map, lambda p: frames.heat_map(p.trace, p.frame), {}),
    (charts.heat_map, lambda p: frames.heat_map(p.trace, p.frame), {"colour_by": "key_norm"}),
    (charts.block_map, lambda p: frames.block_slots(p.trace, p.frame), {}),
    (charts.free_list, lambda p: frames.free_list(p.frame.free_list, set()), {}),
    (charts.latency, lambda p: frames.steps(p.trace), {}),
    (charts.experiment, lambda p: frames.experiment(p.experiment), {}),
]


@pytest.mark.parametrize(("chart", "frame_of", "options"), ALL_CHARTS)
def test_charts_use_fields_that_exist_and_a_second_cue(player, chart, frame_of, options):
    frame = frame_of(player).to_pandas()
    drawn = spec(chart(pd.DataFrame(columns=frame.columns).astype(frame.dtypes), **options))
    made = {"middle", "label"}
    cues = set()
    for layer in drawn["layer"]:
        for channel, encoding in layer["encoding"].items():
            for part in encoding if isinstance(encoding, list) else [encoding]:
                assert part.get("field", "label") in set(frame.columns) | made
            cues.add(channel)
    assert cues & {"text", "shape"}
    assert "#" not in str(drawn)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.key)
def test_answers_are_shown_in_words(scenario):
    table = frames.checks(scenario.run()).to_pandas()
    assert set(table["agrees"]) == {"yes"}
    assert (table["expected"] == table["computed"]).all()
    assert table["expected"].str.len().max() < 120


# The player


def finish(work) -> Job:
    job = Job(work, queue=None).start()
    job.join(20)
    assert job.state is not State.FAILED, job.trace
    return job


def wanted(**options) -> Wanted:
    return Wanted("small", "s" * 60, "why?", settings=Settings(num_blocks=33), **options)


def load(name: str):
    return small_model("gpt2")


def test_a_recording_plays_to_its_end(player):
    assert not player.is_live
    finish(player.step())
    assert player.cursor == 1
    player.back()
    player.back()
    assert player.cursor == 0
    job = finish(player.play(steps_per_second=10_000))
    assert player.cursor == 40
    assert player.ended
    assert len(job.results) == 40


def test_asking_makes_it_live_and_stepping_back_computes_nothing(player):
    finish(player.ask(wanted(), load))
    assert player.is_live
    assert player.label is None
    assert player.cursor == 0
    finish(player.step())
    finish(player.step())
    player.back()
    known = len(player.trace.frames)
    finish(player.step())
    assert len(player.trace.frames) == known == 3
    assert player.cursor == 2
    finish(player.ask(wanted(policy=Policy("window", {"window": 20})), load))
    assert player.trace.prefill.cached_tokens == 80
    finish(player.ask(replace(wanted(), settings=Settings(block_size=8)), load))
    assert player.trace.prefill.cached_tokens == 0


def test_a_refusal_keeps_what_was_there(player):
    trace = player.trace
    finish(player.ask(replace(wanted(), settings=Settings(num_blocks=3)), load))
    assert "can never fit" in player.error
    assert player.trace is trace
    finish(player.step())
    assert player.error is None


def test_a_step_waits_for_its_turn_and_can_be_given_up(player):
    finish(player.ask(wanted(), load))
    ticket, leave = object(), threading.Event()

    def other_measurement():
        with MEASUREMENTS.turn(ticket, lambda: False):
            leave.wait(20)

    other = threading.Thread(target=other_measurement)
    other.start()
    job = Job(player.step(), queue=None).start()
    deadline = time.monotonic() + 10
    while player.ahead != 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert player.ahead == 1
    job.stop()
    MEASUREMENTS.wake()
    job.join(10)
    assert len(player.trace.frames) == 1
    leave.set()
    other.join(10)
    finish(player.step())
    assert len(player.trace.frames) == 2


def test_play_stops_before_the_next_step(player):
    finish(player.ask(wanted(), load))
    job = Job(player.play(steps_per_second=50), queue=None).start()
    while len(player.trace.frames) < 4:
        time.sleep(0.01)
    job.stop()
    job.join(10)
    known = len(player.trace.frames)
    time.sleep(0.2)
    assert len(player.trace.frames) == known


def test_the_experiment_replaces_the_recorded_one(player):
    recorded_rows = list(player.experiment)
    job = finish(player.try_times(wanted(), load))
    assert len(player.experiment) == 6
    assert player.experiment != recorded_rows
    assert player.experiment_label is None
    assert job.results[-1] == "time at the end, later"
    assert recorded().experiment == recorded_rows
