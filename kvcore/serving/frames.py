"""Samples as frames: for the charts, for the tables, for export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd

from kvcore.serving.experiments import AGAIN, BACK, CHANGED, COLD, CONTEXT, FIRST, LEVEL, WARM
from kvcore.serving.findings import Line, early_change_findings, line, token_time_findings
from kvcore.serving.run import Sample

STEPS = (FIRST, AGAIN, CHANGED, BACK)
POINT, TREND = "measured", "trend"


def first_token_points(samples: Sequence[Sample]) -> pd.DataFrame:
    """A row per answer and two per trend. Columns: tokens, seconds, series, kind, reused."""
    rows = [
        (s.tokens, s.first_token_seconds, s.series, POINT, _said(s.said_cached))
        for s in samples
        if s.series in (COLD, WARM) and not s.problem and s.first_token_seconds is not None
    ]
    for series in (COLD, WARM):
        points = [(row[0], row[1]) for row in rows if row[2] == series and row[3] == POINT]
        rows += [(x, y, series, TREND, "") for x, y in _ends(line(points), points)]
    return pd.DataFrame(rows, columns=["tokens", "seconds", "series", "kind", "reused"])


def early_change_bars(samples: Sequence[Sample]) -> pd.DataFrame:
    """A row per step. Columns: step, seconds, low, high, label."""
    found = early_change_findings(samples)
    rows = []
    for step in STEPS:
        if step not in found.seconds:
            continue
        each = found.seconds[step]
        label = f"{each.middle:,.2f} s"
        if found.reused[step] is not None:
            label += f", {found.reused[step]:,.0f} tokens reused"
        rows.append((step, each.middle, each.low, each.high, label))
    return pd.DataFrame(rows, columns=["step", "seconds", "low", "high", "label"])


def token_time_points(samples: Sequence[Sample]) -> pd.DataFrame:
    """A row per answer sent alone. Columns: tokens, ms."""
    rows = [
        (s.tokens, s.seconds_per_token * 1000)
        for s in samples
        if s.series == CONTEXT and not s.problem and s.seconds_per_token is not None
    ]
    return pd.DataFrame(rows, columns=["tokens", "ms"])


def load_points(samples: Sequence[Sample]) -> pd.DataFrame:
    """A row per level of load. Columns: concurrent, ms, low, high, tokens_per_second, label."""
    rows = []
    for load in token_time_findings(samples).loads:
        each = load.seconds_per_token
        label = "not said" if load.kv_usage is None else f"{load.kv_usage:.1%}"
        rows.append(
            (
                load.concurrent,
                each.middle * 1000,
                each.low * 1000,
                each.high * 1000,
                load.tokens_per_second,
                label,
                "not said" if load.preemptions is None else f"{load.preemptions:,.0f}",
            )
        )
    columns = ["concurrent", "ms", "low", "high", "tokens_per_second", "usage", "preemptions"]
    return pd.DataFrame(rows, columns=columns)


def table(samples: Sequence[Sample]) -> pd.DataFrame:
    """Every sample with every field, for export and for those who want to look."""
    return pd.DataFrame([asdict(sample) for sample in samples])


def from_records(records: Sequence[dict]) -> list[Sample]:
    """Samples out of a recording. Raises TypeError for a field that does not exist."""
    return [Sample(**record) for record in records]


def to_records(samples: Sequence[Sample]) -> list[dict]:
    """Samples for a recording: what is None or usual is left out, times in tenths of a ms."""
    usual = asdict(Sample("", 0))
    return [
        {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in asdict(sample).items()
            if name in ("series", "target_tokens") or value != usual[name]
        }
        for sample in samples
        if sample.series
    ]


def _ends(trend: Line | None, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if trend is None:
        return []
    xs = [x for x, _ in points]
    return [(x, trend.intercept + trend.slope * x) for x in (min(xs), max(xs))]


def _said(tokens: float | None) -> str:
    return "not said" if tokens is None else f"{tokens:,.0f} tokens"


__all__ = [
    "LEVEL",
    "early_change_bars",
    "first_token_points",
    "from_records",
    "load_points",
    "table",
    "to_records",
    "token_time_points",
]
