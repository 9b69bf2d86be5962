"""Pictures of the pool: Figure 2, the memory map, the curves."""

from __future__ import annotations

import json

import altair as alt
import pandas as pd

from kvcore.charts.theme import Role, colour, dash, painted
from kvcore.paging.frames import NEVER, ROUNDED, SEGMENT_NAMES, STRENGTH
from kvcore.paging.sharing import ALPACA_HERE, ALPACA_PAPER, THESE

SEGMENTS = dict(
    zip(
        SEGMENT_NAMES.values(),
        (Role.CACHED, Role.RESERVED, Role.UNCACHED, Role.WASTED),
        strict=True,
    )
)
FREE_LINES = {"all free slots": Role.WASTED, "largest usable": Role.CACHED}
SAVINGS = {THESE: Role.CACHED, ALPACA_HERE: Role.SAVED, ALPACA_PAPER: Role.VALUES}


def figure_2(frame: pd.DataFrame) -> alt.LayerChart:
    """Stacked shares of the pool, and right of each bar the requests that run at once.

    Columns as `frames.bars` gives them.
    """
    axis = alt.Axis(labelLimit=200)
    base = alt.Chart(frame).encode(y=alt.Y("bar:N", title=None, sort=None, axis=axis))
    segments = base.mark_bar().encode(
        x=alt.X("start:Q", title="Share of the pool (%)", scale=alt.Scale(domain=[0, 100])),
        x2="end:Q",
        color=colour("segment", SEGMENTS).legend(
            values=list(SEGMENTS),
            orient="top",
            direction="horizontal",
            columns=alt.ExprRef("width < 330 ? 2 : 4"),
        ),
        tooltip=[
            alt.Tooltip("bar:N", title="Policy"),
            alt.Tooltip("segment:N", title="Segment"),
            alt.Tooltip("percent:Q", title="Share (%)", format=".2f"),
            alt.Tooltip("batch_shown:N", title="Requests at once"),
        ],
    )
    labels = _readable(base.encode(x="middle:Q", text="shown:N"), 11)
    batches = (
        base.transform_filter("isValid(datum.batch)")
        .mark_text(align="left", dx=8, tooltip=None)
        .encode(x=alt.datum(100), text="batch_shown:N")
    )
    return alt.layer(segments, *labels, batches).properties(height=alt.Step(24))


def memory_map(frame: pd.DataFrame) -> alt.LayerChart:
    """Slots in rows, coloured by request; what holds no token is pale and hatched.

    Columns as `frames.memory_map` gives them. Selection parameter: `follow`.
    """
    follow = alt.selection_point(name="follow", fields=["request"], on="click", empty=False)
    x = alt.X("x:Q", title="Slot within the row", axis=alt.Axis(grid=False, tickCount=5))
    y = alt.Y(
        "y:Q",
        title="First slot of the row",
        scale=alt.Scale(reverse=True, nice=False),
        axis=alt.Axis(grid=False, tickCount=8),
    )
    base = alt.Chart(frame)
    pieces = (
        base.transform_calculate(
            strength=f"{json.dumps(STRENGTH)}[datum.what]", shade="(datum.request + 20) % 20"
        )
        .mark_rect(strokeWidth=0.6, stroke="currentColor", strokeOpacity=0.45)
        .encode(
            x=x,
            x2="x2:Q",
            y=y,
            y2="y2:Q",
            color=alt.Color("shade:N", scale=alt.Scale(scheme="tableau20"), legend=None),
            fillOpacity=alt.FillOpacity("strength:Q", scale=None, legend=None),
            tooltip=[
                alt.Tooltip("owners:N", title="Request"),
                alt.Tooltip("what:N", title="This part"),
                alt.Tooltip("tokens:Q", title="Tokens it holds", format=",d"),
                alt.Tooltip("place:N", title="Where"),
            ],
        )
        .properties(name="pool")
        .add_params(follow)
    )
    hatch = painted(
        base.transform_filter(f"datum.what == '{NEVER}' || datum.what == '{ROUNDED}'")
        .transform_calculate(line="sequence(datum.x, datum.x2, (datum.y2 - datum.y) / 24)")
        .transform_flatten(["line"])
        .transform_calculate(line2="min(datum.x2, datum.line + (datum.y2 - datum.y) / 48)")
        .mark_rule(strokeWidth=0.9, tooltip=None)
        .encode(x="line:Q", x2="line2:Q", y="y2:Q", y2="y:Q"),
        Role.WASTED,
    )
    frame_of_followed = painted(
        base.transform_filter("datum.followed")
        .mark_rect(filled=False, strokeWidth=3, tooltip=None)
        .encode(x="x:Q", x2="x2:Q", y="y:Q", y2="y2:Q"),
        Role.FOLLOWED,
    )
    named = (
        base.transform_filter("datum.tag != ''")
        .transform_calculate(x_text="datum.x + (datum.x2 - datum.x) / 2")
        .transform_calculate(y_text="datum.y + (datum.y2 - datum.y) / 2")
        .encode(x="x_text:Q", y="y_text:Q", text="tag:N")
    )
    layers = alt.layer(pieces, hatch, frame_of_followed, *_readable(named, 10))
    return layers.resolve_scale(color="independent").properties(height=430)


def free_space(frame: pd.DataFrame) -> alt.LayerChart:
    """All that is free against what one request could get, with a rule at the step looked at.

    Columns as `frames.at_step` gives them.
    """
    lines = (
        alt.Chart(frame)
        .transform_filter("isValid(datum.step)")
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("step:Q", title="Step"),
            y=alt.Y("slots:Q", title="Slots"),
            color=colour("what", FREE_LINES),
            strokeDash=dash("what", FREE_LINES),
            tooltip=[
                alt.Tooltip("step:Q", title="Step", format=",d"),
                alt.Tooltip("what:N", title="Free"),
                alt.Tooltip("slots:Q", title="Slots", format=",.0f"),
            ],
        )
    )
    now = painted(
        alt.Chart(frame)
        .transform_filter("isValid(datum.now)")
        .mark_rule(strokeWidth=2)
        .encode(x="now:Q"),
        Role.FOLLOWED,
    )
    layers = (lines + now).resolve_scale(color="independent", strokeDash="independent")
    return layers.properties(height=200)


def curve(
    frame: pd.DataFrame,
    column: str,
    y_title: str,
    x_title: str,
    x_log: bool = False,
) -> alt.LayerChart:
    """One output against one setting, with a rule at the value now chosen.

    Columns: value, the one asked for, and chosen: the value now chosen, in every row.
    """
    scale = alt.Scale(type="log", base=2) if x_log else alt.Scale(zero=False)
    line = painted(
        alt.Chart(frame)
        .mark_line(point={"size": 50}, clip=True)
        .encode(
            x=alt.X("value:Q", title=x_title, scale=scale),
            y=alt.Y(f"{column}:Q", title=y_title, scale=alt.Scale(zero=False)),
            tooltip=[
                alt.Tooltip("value:Q", title=x_title),
                alt.Tooltip(f"{column}:Q", title=y_title, format=".3g"),
            ],
        ),
        Role.CACHED,
    )
    rule = painted(
        alt.Chart(frame)
        .transform_aggregate(chosen="max(chosen)")
        .mark_rule(strokeDash=[4, 4], clip=True)
        .encode(x="chosen:Q"),
        Role.FOLLOWED,
    )
    return (line + rule).resolve_scale(color="independent").properties(height=260)


def savings(frame: pd.DataFrame) -> alt.Chart:
    """Blocks saved by parallel samples. Columns: samples, series, percent."""
    in_a_row = {"values": list(SAVINGS), "orient": "top", "columns": 1, "labelLimit": 260}
    return (
        alt.Chart(frame)
        .mark_line(point={"size": 60})
        .encode(
            x=alt.X("samples:Q", title="Samples of one prompt", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("percent:Q", title="Blocks saved (%)"),
            color=colour("series", SAVINGS).legend(**in_a_row),
            strokeDash=dash("series", SAVINGS).legend(**in_a_row),
            tooltip=[
                alt.Tooltip("series:N", title="Lengths"),
                alt.Tooltip("samples:Q", title="Samples"),
                alt.Tooltip("percent:Q", title="Saved (%)", format=".2f"),
            ],
        )
        .properties(height=300)
    )


def _readable(texts: alt.Chart, size: int) -> tuple[alt.Chart, alt.Chart]:
    """Dark text in a light halo, which can be read on every colour in both themes."""
    halo = texts.mark_text(
        fontSize=size, color="white", stroke="white", strokeWidth=2.5, opacity=0.75, tooltip=None
    )
    return halo, texts.mark_text(fontSize=size, color="black", tooltip=None)
