"""Pictures of the memory calculator."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kvcore.calculator import OWN_CACHE, SHARED_PREFIX
from kvcore.charts.theme import Role, colour, dash, in_order

USERS = {OWN_CACHE: Role.CACHED, SHARED_PREFIX: Role.SAVED}

PARTS = {
    "caches": Role.CACHED,
    "weights": Role.VALUES,
    "free": Role.SAVED,
    "overhead": Role.FOLLOWED,
    "held back": Role.RESERVED,
    "missing": Role.UNCACHED,
}


def memory_against_context(
    frame: pd.DataFrame, models: tuple[str, ...], log: bool = False, ranged: bool = False
) -> alt.Chart:
    """Cache of one request. Columns: model, tokens, gib, low, here.

    models: their order. log: logarithmic axes, on which equal ratios look equal. ranged: shade what
    a config leaves open.
    """
    series = in_order(models)
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=True)
    x = alt.X("tokens:Q", title="Context (tokens)", scale=scale, axis=alt.Axis(format="~s"))
    y = alt.Y("gib:Q", title="Cache of one request (GiB)", scale=scale)
    base = alt.Chart(frame)
    if log:
        base = base.transform_filter("datum.gib > 0 && datum.tokens >= 64")
    lines = base.mark_line().encode(
        x=x,
        y=y,
        color=colour("model", series),
        strokeDash=dash("model", series),
        tooltip=[
            alt.Tooltip("model:N", title="Model"),
            alt.Tooltip("tokens:Q", title="Tokens", format=",d"),
            alt.Tooltip("gib:Q", title="GiB", format=",.3f"),
        ],
    )
    marks = (
        base.transform_filter("datum.here")
        .mark_point(filled=True, size=70)
        .encode(x=x, y=y, color=colour("model", series))
    )
    layers = [lines, marks]
    if ranged:
        layers.insert(0, _range(base, series, scale))
    return alt.layer(*layers).properties(height=380)


def _range(base: alt.Chart, series: dict[str, Role], scale: alt.Scale) -> alt.Chart:
    return (
        base.transform_filter("datum.low < datum.gib")
        .mark_area(opacity=0.2)
        .encode(
            x=alt.X("tokens:Q", scale=scale),
            y=alt.Y("low:Q", scale=scale, title="Cache of one request (GiB)"),
            y2="gib:Q",
            color=colour("model", series),
        )
    )


def memory_bar(frame: pd.DataFrame) -> alt.Chart:
    """Where the memory of one GPU goes. Columns: part, gib, start, label."""
    base = alt.Chart(frame).transform_calculate(
        end="datum.start + datum.gib", middle="datum.start + datum.gib / 2", row="''"
    )
    row = alt.Y("row:N", axis=None)
    bars = base.mark_bar(height=34).encode(
        x=alt.X("start:Q", title="Memory of the fullest GPU (GiB)"),
        x2="end:Q",
        y=row,
        color=colour("part", PARTS),
        tooltip=[
            alt.Tooltip("part:N", title="Part"),
            alt.Tooltip("label:N", title="Size"),
        ],
    )
    wide = base.transform_joinaggregate(total="sum(gib)").transform_filter(
        "datum.gib > 0.12 * datum.total"
    )
    names = wide.mark_text(dy=-27).encode(x="middle:Q", y=row, text="part:N")
    sizes = wide.mark_text(dy=27).encode(x="middle:Q", y=row, text="label:N")
    return (bars + names + sizes).properties(height=190)


def users_against_context(frame: pd.DataFrame, log: bool = False) -> alt.Chart:
    """Users who fit. Columns: tokens, users, series, here. log: a logarithmic length, too."""
    x = alt.X(
        "tokens:Q",
        title="Context each holds (tokens)",
        scale=alt.Scale(type="log", nice=False) if log else alt.Scale(zero=True),
        axis=alt.Axis(format="~s"),
    )
    y = alt.Y("users:Q", title="Users at once (log scale)", scale=alt.Scale(type="log"))
    base = alt.Chart(frame).transform_filter("datum.users > 0")
    lines = base.mark_line(interpolate="step-after").encode(
        x=x,
        y=y,
        color=colour("series", USERS),
        strokeDash=dash("series", USERS),
        tooltip=[
            alt.Tooltip("series:N", title="How"),
            alt.Tooltip("tokens:Q", title="Tokens", format=",d"),
            alt.Tooltip("users:Q", title="Users", format=",d"),
        ],
    )
    here = base.transform_filter("datum.here").mark_point(filled=True, size=70)
    marked = here.encode(x=x, y=y, color=colour("series", USERS))
    return (lines + marked).properties(height=320)
