"""Nothing we hand out is executed by the program that opens it."""

from __future__ import annotations

import csv
import io
import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.export import to_csv, to_json

FORMULAS = (
    "=1+1",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1,1)",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    "＝1+1",
    "＠SUM(1,1)",
    '=HYPERLINK("http://127.0.0.1:9/?leak="&A1,"click")',
)
DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def cells(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_a_formula_in_a_cell_becomes_text(formula, dtype):
    frame = pd.DataFrame({"model": pd.Series([formula, "gpt2"], dtype=dtype), "tokens": [-1, 2]})
    header, first, second = cells(to_csv(frame))
    assert first == ["'" + formula, "-1"]
    assert second == ["gpt2", "2"]


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_in_a_heading_becomes_text(formula):
    assert cells(to_csv(pd.DataFrame({formula: [1]})))[0] == ["'" + formula]


@given(st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_no_text_cell_ever_begins_like_a_formula(texts):
    rows = cells(to_csv(pd.DataFrame({"a": texts, "b": range(len(texts))})))
    assert len(rows) == len(texts) + 1
    assert all(not row[0].startswith(DANGEROUS) for row in rows)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3))
def test_json_carries_settings_as_they_were_typed(settings):
    document = json.loads(to_json("x", pd.DataFrame({"a": ["=1+1"]}), settings))
    assert document["settings"] == settings
    assert document["rows"] == [{"a": "=1+1"}]
