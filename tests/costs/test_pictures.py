"""The tables that the charts of a bill draw."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kvcore.costs import estimate
from kvcore.costs.curves import bill_frame, break_even_frame, saving_curves
from kvcore.costs.doubts import uncertainty_band
from kvcore.costs.pictures import (
    BREAK_EVEN,
    HERE,
    LINE,
    MINIMUM,
    bill_table,
    drivers_table,
    prefix_table,
    rate_table,
)

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def model():
    return estimate([("claude-opus-5", "anthropic")], at=NOW, prefix_tokens=3_000).models[0]


def test_the_drawn_bill_is_the_bill(model):
    assert bill_table(model).to_pylist() == bill_frame(model).to_dict(orient="records")


def test_a_curve_by_rate_has_its_break_evens_and_its_place(model):
    rows = rate_table(model, saving_curves(model)).to_pandas()
    assert set(rows["kind"]) == {LINE, BREAK_EVEN, HERE}
    assert (rows.loc[rows["kind"] == HERE, "requests_per_hour"] == 120).all()
    marks = rows[rows["kind"] == BREAK_EVEN].set_index("lifetime")["requests_per_hour"]
    known = break_even_frame(model).set_index("lifetime")["requests_per_hour"]
    assert marks.to_dict() == known[marks.index].to_dict()
    lines = rows[(rows["kind"] == LINE) & (rows["requests_per_hour"] == 120)]
    savings = lines.set_index("lifetime")["saving"]
    for outcome in model.outcomes:
        assert savings[outcome.name] == pytest.approx(float(outcome.saving))


def test_a_curve_by_prefix_has_the_minimum_and_its_place(model):
    rows = prefix_table(model).to_pandas()
    places = rows[rows["kind"] != LINE].set_index("kind")["prefix_tokens"]
    assert places.to_dict() == {HERE: 3_000, MINIMUM: model.rules.minimum.tokens}


def test_the_widest_doubts_are_drawn(model):
    band = uncertainty_band(model)
    rows = drivers_table(band).to_pylist()
    assert rows[0]["driver"].startswith(band.drivers[0].name)
    assert [row["order"] for row in rows] == list(range(len(rows)))
    assert rows[0]["high"] - rows[0]["low"] == pytest.approx(float(band.drivers[0].spread))


def test_a_model_without_a_cache_still_has_tables():
    bare = estimate([("gpt-5", "openai")], at=NOW).models[0]
    rows = rate_table(bare, ()).to_pylist()
    assert [row["kind"] for row in rows] == [HERE]
