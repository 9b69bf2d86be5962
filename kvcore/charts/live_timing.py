"""Pictures of one timing run."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kvcore.charts.bars import labelled_bars
from kvcore.charts.theme import Role, colour, dash, painted

CACHED, UNCACHED = "With the cache", "Without a cache"
FLOOR, PEER = "Memory-bandwidth floor", "transformers, with its cache"
SERIES = {
    CACHED: Role.CACHED,
    UNCACHED: Role.UNCACHED,
    FLOOR: Role.WASTED,
    PEER: Role.VALUES,
}

DECADES = [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000]

MEASURED, EXPECTED = "Measured here", "From token counts alone"
CURVES = {MEASURED: Role.SAVED, EXPECTED: Role.WASTED}


def step_times(frame: pd.DataFrame, log: bool = False, sampled: bool = False) -> alt.Chart:
    """Milliseconds for each new token. Columns: token, series, ms.

    log: a logarithmic axis. sampled: mark the points, because few were measured.
    """
    scale = alt.Scale(type="log") if log else alt.Scale(zero=True)
    axis = alt.Axis(values=DECADES) if log else alt.Axis()
    return (
        alt.Chart(frame)
        .mark_line(point={"size": 18} if sampled else False, clip=True)
        .encode(
            x=alt.X("token:Q", title="New token", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("ms:Q", title="Time for this token (ms)", scale=scale, axis=axis),
            color=colour("series", SERIES),
            strokeDash=dash("series", SERIES),
            tooltip=[
                alt.Tooltip("token:Q", title="New token", format=",d"),
                alt.Tooltip("series:N", title="Series"),
                alt.Tooltip("ms:Q", title="ms", format=",.1f"),
            ],
        )
        .properties(height=400)
    )


def speed_up(frame: pd.DataFrame, mark: float = 16.0) -> alt.Chart:
    """How many times faster so far, against tokens written. Columns: token, series, ratio."""
    lines = (
        alt.Chart(frame)
        .mark_line()
        .encode(
            x=alt.X("token:Q", title="Tokens written"),
            y=alt.Y(
                "ratio:Q",
                title="Times faster with the cache, so far",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(values=DECADES),
            ),
            color=colour("series", CURVES),
            strokeDash=dash("series", CURVES),
            tooltip=[
                alt.Tooltip("token:Q", title="Tokens written", format=",d"),
                alt.Tooltip("series:N", title="Curve"),
                alt.Tooltip("ratio:Q", title="Times faster", format=".1f"),
            ],
        )
    )
    marked = painted(
        alt.Chart(frame)
        .mark_rule(strokeDash=[4, 4])
        .transform_aggregate(rows="count()")
        .transform_calculate(mark=str(mark), label=f"'{mark:g}×, often quoted'"),
        Role.FOLLOWED,
    ).encode(y="mark:Q")
    named = marked.mark_text(align="left", dx=4, dy=-6).encode(text="label:N", x=alt.value(0))
    return (
        (lines + marked + named)
        .resolve_scale(color="independent", strokeDash="independent")
        .properties(height=340)
    )


def cache_growth(frame: pd.DataFrame) -> alt.Chart:
    """Bytes in the cache after each token. Columns: token, mib."""
    area = (
        alt.Chart(frame)
        .mark_area(opacity=0.6, line=True)
        .encode(
            x=alt.X("token:Q", title="New token", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("mib:Q", title="Cache (MiB)"),
            tooltip=[
                alt.Tooltip("token:Q", title="New token", format=",d"),
                alt.Tooltip("mib:Q", title="MiB", format=".2f"),
            ],
        )
    )
    return painted(area, Role.CACHED).properties(height=400)


def phases(frame: pd.DataFrame) -> alt.LayerChart:
    """Milliseconds a token in prefill and in decode. Columns: phase, ms, shown."""
    return labelled_bars(
        alt.Chart(frame),
        alt.X("ms:Q", title="Time for each token run (ms)"),
        alt.Y("phase:N", title=None, sort=None, axis=alt.Axis(labelLimit=240)),
        "shown",
        [alt.Tooltip("phase:N", title="Phase"), alt.Tooltip("shown:N", title="Each token")],
        role=Role.CACHED,
    ).properties(height=150)
