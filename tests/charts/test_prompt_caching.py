"""Every picture of the prompt-caching page: titles with units, a second cue, fields that exist."""

from __future__ import annotations

import pandas as pd
import pytest

from kvcore.charts import prompt_caching as charts
from kvcore.charts.theme import spec
from kvcore.costs.curves import bill_frame
from kvcore.costs.estimate import estimate
from kvcore.costs.workload import Workload


@pytest.fixture(scope="module")
def model():
    return estimate([("claude-sonnet-5", "anthropic")], Workload(turns=3)).models[0]


def frames(model) -> dict[str, tuple[pd.DataFrame, dict]]:
    lifetimes = {"lifetimes": ("5 minutes", "1 hour")}
    rate = pd.DataFrame(
        {"kind": ["line"], "requests_per_hour": [1.0], "lifetime": ["5 minutes"],
         "saving": [1.0], "saving_share": [0.1]}
    )  # fmt: skip
    prefix = pd.DataFrame(
        {"kind": ["line"], "prefix_tokens": [1], "lifetime": ["1 hour"], "saving": [1.0]}
    )
    bills = pd.DataFrame({"model": ["m"], "bill": [charts.WITH], "dollars": [1.0], "order": [0]})
    return {
        "bill": (bill_frame(model), {}),
        "saving_by_rate": (rate, lifetimes),
        "saving_by_prefix": (prefix, lifetimes),
        "tokens_by_call": (pd.DataFrame({"call": [1], "kind": ["Fresh"], "tokens": [1.0]}), {}),
        "dollars_by_call": (
            pd.DataFrame({"call": [1], "bill": [charts.WITH], "dollars": [1.0]}),
            {},
        ),
        "models": (bills, {}),
        "doubts": (
            pd.DataFrame(
                {"driver": ["d"], "low": [1.0], "high": [2.0], "saving": [1.5], "order": [0]}
            ),
            {},
        ),
        "hit_rate": (
            pd.DataFrame(
                {
                    "hour": [1],
                    "model": ["m"],
                    "hit_rate": [0.5],
                    "input_tokens": [1.0],
                    "paid": [1.0],
                }
            ),
            {"series": ("m",)},
        ),
        "lifetimes": (pd.DataFrame({"lifetime": ["l"], "paid": [1.0], "order": [0]}), {}),
    }


NAMES = (
    "bill",
    "saving_by_rate",
    "saving_by_prefix",
    "tokens_by_call",
    "dollars_by_call",
    "models",
    "doubts",
    "hit_rate",
    "lifetimes",
)
CALCULATED = {"words", "label", "total", "top", "place", "rows", "saving", "saving_share"}


def encodings(node):
    if isinstance(node, dict):
        if "encoding" in node:
            yield node["encoding"]
        for child in node.values():
            yield from encodings(child)
    elif isinstance(node, list):
        for child in node:
            yield from encodings(child)


@pytest.mark.parametrize("name", NAMES)
def test_spec(name, model):
    frame, options = frames(model)[name]
    drawn = spec(getattr(charts, name)(frame, **options))
    assert drawn == spec(getattr(charts, name)(frame.head(0), **options)), "depends on the rows"
    assert "#" not in str(drawn).replace("'#", "")
    fields, titles = set(), set()
    for encoding in encodings(drawn):
        for channel, definition in encoding.items():
            for each in definition if isinstance(definition, list) else [definition]:
                if "field" in each:
                    fields.add(each["field"])
                if channel in ("x", "y") and each.get("title"):
                    titles.add(each["title"])
    known = set(frame.columns) | CALCULATED
    assert all(field in known or field.startswith("role_") for field in fields), fields - known
    units = ("Dollars", "dollars", "tokens", "share", "hour", "Call", "cache")
    assert any(word in title for title in titles for word in units), titles


def test_small_and_large_dollars_are_told_apart():
    """Vega's SI prefixes alone would print ten cents as $100m."""
    axis = spec(charts.lifetimes(frames_of_lifetimes()))["layer"][0]["encoding"]["x"]["axis"]
    assert "'$,.3~r'" in axis["labelExpr"]
    assert ">= 1000" in axis["labelExpr"]


def frames_of_lifetimes() -> pd.DataFrame:
    return pd.DataFrame({"lifetime": ["l"], "paid": [0.1], "order": [0]})
