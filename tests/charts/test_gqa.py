"""Pictures of the sharing-heads and cache quality pages: fields that exist, titles, second cues."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from kvcore import recordings
from kvcore.attention import FORMULATIONS, Sharing
from kvcore.charts import cache_quality, gqa
from kvcore.charts.theme import spec
from kvcore.gqa import Setting, head_table, ladder_table, memory_table, models_frame
from kvcore.quality import hits_by_place

SETTING = Setting(Sharing(8, 2), 2, 64, 1_000, "bf16", 10**9, 0)
GROUPED = {"heads": {"num_query_heads": 8, "num_kv_heads": 2}, "ladder": {"num_query_heads": 8}}


def drawn():
    recorded, quality = recordings.read("gqa").data, recordings.read("cache_quality").data
    timing = pd.DataFrame(recorded["timing"])
    scores = pd.DataFrame(quality["scores"])
    scores = scores.assign(number=range(len(scores)), cache_mib=scores["cache_bytes"] / 2**20)
    yield gqa.heads, head_table(SETTING.sharing).to_pandas(), GROUPED["heads"]
    yield gqa.ladder, ladder_table(SETTING).to_pandas(), GROUPED["ladder"]
    yield gqa.memory, memory_table(SETTING).to_pandas(), {}
    yield gqa.models, models_frame(["Llama-3.1-8B"], 1_000, "bf16"), {}
    yield gqa.speed_up, timing, {"sharing": "GQA-8", "formulations": tuple(FORMULATIONS)}
    yield gqa.pooling, pd.DataFrame(recorded["pooling"]["scores"]), {}
    for measure in cache_quality.MEASURES:
        yield cache_quality.quality, scores, {"measure": measure}
    yield cache_quality.hits, pd.DataFrame(hits_by_place(quality["recall"])), {}


PICTURES = [pytest.param(*each, id=f"{each[0].__name__}-{n}") for n, each in enumerate(drawn())]


def encodings(node):
    if isinstance(node, list):
        for child in node:
            yield from encodings(child)
    if isinstance(node, dict):
        yield from node.get("encoding", {}).items()
        for child in node.values():
            yield from encodings(child)


def made_in_the_chart(node):
    """Fields that transforms of the chart itself add."""
    if isinstance(node, list):
        return {name for child in node for name in made_in_the_chart(child)}
    if not isinstance(node, dict):
        return set()
    own = {node["as"]} if isinstance(node.get("as"), str) else set()
    return own | {name for child in node.values() for name in made_in_the_chart(child)}


@pytest.mark.parametrize(("chart", "frame", "options"), PICTURES)
def test_fields_exist(chart, frame, options):
    built = spec(chart(frame, **options))
    known = set(frame.columns) | made_in_the_chart(built)
    used = {
        value["field"]
        for _, value in encodings(built)
        if isinstance(value, dict) and isinstance(value.get("field"), str)
    }
    assert used
    assert used <= known, used - known


def unnumbered(chart):
    """The spec without the numbers Altair gives to views as it makes them."""
    return re.sub(r"view_[0-9a-f]+_\d+", "view", json.dumps(spec(chart)))


@pytest.mark.parametrize(("chart", "frame", "options"), PICTURES)
def test_the_spec_does_not_depend_on_the_rows(chart, frame, options):
    full, empty = (unnumbered(chart(rows, **options)) for rows in (frame, frame.iloc[:0]))
    assert full == empty


@pytest.mark.parametrize(("chart", "frame", "options"), PICTURES)
def test_number_axes_are_named(chart, frame, options):
    built = spec(chart(frame, **options))
    titles = {
        value.get("title")
        for channel, value in encodings(built)
        if channel in ("x", "y") and isinstance(value, dict) and value.get("axis", 1) is not None
    }
    assert any(titles) or chart is gqa.heads


def test_series_are_told_apart_by_more_than_colour():
    built = spec(
        gqa.speed_up(
            pd.DataFrame(recordings.read("gqa").data["timing"]),
            sharing="GQA-8",
            formulations=tuple(FORMULATIONS),
        )
    )
    assert "strokeDash" in dict(encodings(built))
    points = spec(cache_quality.quality(pd.DataFrame({"number": [1]})))
    assert {"shape", "color", "text"} <= set(dict(encodings(points)))
