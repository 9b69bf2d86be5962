import csv
import io
import json
from decimal import Decimal

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore import export


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_text_that_looks_like_a_formula_is_disarmed(start):
    frame = pd.DataFrame({"text": [f"{start}1+1"], "number": [-3]})
    rows = list(csv.reader(io.StringIO(export.to_csv(frame).decode(), newline="")))
    assert rows[1][0].startswith("'")
    assert rows[1][1] == "-3"


def test_headings_are_disarmed_too():
    frame = pd.DataFrame({"=cmd()": [1]})
    assert export.to_csv(frame).decode().startswith("'=cmd()")


@given(st.lists(st.text(max_size=20), min_size=1, max_size=20))
def test_no_text_cell_of_a_csv_starts_a_formula(cells):
    frame = pd.DataFrame({"a": pd.Series(cells, dtype=object)})
    rows = csv.reader(io.StringIO(export.to_csv(frame).decode(), newline=""))
    assert not any(row and row[0].startswith(export.FORMULA_STARTS) for row in rows)


def test_json_carries_settings_and_rows():
    frame = pd.DataFrame({"step": [1, 2], "seconds": [0.5, None]})
    document = json.loads(
        export.to_json("timing", frame, {"model": "gpt2", "paid": Decimal("1.2")})
    )
    assert document["settings"] == {"model": "gpt2", "paid": "1.2"}
    assert document["rows"] == [{"step": 1, "seconds": 0.5}, {"step": 2, "seconds": None}]
