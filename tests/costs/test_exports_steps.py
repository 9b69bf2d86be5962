"""Reading an export in bounded steps."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from kvcore.costs import exports
from kvcore.costs.exports import reading

SAMPLES = Path(__file__).parents[1] / "data" / "usage"


@pytest.mark.parametrize("name", ["own_log.csv", "claude_code_session.jsonl", "openai_costs.csv"])
def test_steps_count_the_rows_and_end_in_what_reading_at_once_gives(name, monkeypatch):
    data = (SAMPLES / name).read_bytes()
    whole = exports.read_usage(data, name)
    monkeypatch.setattr(reading, "ROWS_AT_ONCE", 1)
    *counts, usage = exports.usage_steps(data, name)
    assert counts == sorted(counts)
    assert len(counts) > 2
    assert counts[-1] >= len(usage.frame)
    pd.testing.assert_frame_equal(usage.frame, whole.frame)
    assert usage.total == whole.total
    assert usage.rejected == whole.rejected
    assert usage.notes == whole.notes


def test_what_is_no_export_is_one_step():
    (usage,) = exports.usage_steps(b"hello", "x.txt")
    assert usage.format == exports.Format.UNKNOWN


def test_steps_to_expect_follow_from_the_lines():
    assert exports.steps_expected(b"one line of JSON") is None
    assert exports.steps_expected(b"x\n" * 120_000) == 3 + 2
    assert exports.steps_expected(b"\n" * 9_000_000) == 40 + 2
