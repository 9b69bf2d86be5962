"""Pictures of the experiments on a serving engine."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kvcore.charts.theme import Role, colour, dash, painted

PREFIXES = {"cold": Role.UNCACHED, "warm": Role.CACHED}
STEPS = {
    "first time": Role.UNCACHED,
    "same prefix": Role.CACHED,
    "one character changed": Role.FOLLOWED,
    "old prefix": Role.SAVED,
}


def first_token(frame: pd.DataFrame) -> alt.Chart:
    """Seconds to the first token. Columns: tokens, seconds, series, kind, reused."""
    base = alt.Chart(frame).encode(
        x=alt.X("tokens:Q", title="Prompt (tokens)"),
        y=alt.Y("seconds:Q", title="Time to first token (s)"),
        color=colour("series", PREFIXES, title="Prefix"),
    )
    points = (
        base.transform_filter("datum.kind == 'measured'")
        .mark_point(size=70, filled=False, strokeWidth=2)
        .encode(
            shape=alt.Shape(
                "series:N",
                scale=alt.Scale(domain=list(PREFIXES), range=["triangle-up", "circle"]),
                legend=None,
            ),
            tooltip=[
                alt.Tooltip("series:N", title="Prefix"),
                alt.Tooltip("tokens:Q", title="Tokens", format=",d"),
                alt.Tooltip("seconds:Q", title="Seconds", format=".3f"),
                alt.Tooltip("reused:N", title="Server says it reused"),
            ],
        )
    )
    trend = (
        base.transform_filter("datum.kind == 'trend'")
        .mark_line()
        .encode(strokeDash=dash("series", PREFIXES, title="Prefix"))
    )
    return (trend + points).properties(height=380)


def early_change(frame: pd.DataFrame) -> alt.Chart:
    """Seconds to the first token at each step. Columns: step, seconds, low, high, label."""
    axis = alt.Axis(labelLimit=220)
    base = alt.Chart(frame).encode(y=alt.Y("step:N", title=None, sort=list(STEPS), axis=axis))
    bars = base.mark_bar(height={"band": 0.6}).encode(
        x=alt.X("seconds:Q", title="Time to first token (s)"),
        color=colour("step", STEPS, legend=False),
        tooltip=[
            alt.Tooltip("step:N", title="Step"),
            alt.Tooltip("seconds:Q", title="Median (s)", format=".3f"),
            alt.Tooltip("low:Q", title="Least (s)", format=".3f"),
            alt.Tooltip("high:Q", title="Most (s)", format=".3f"),
        ],
    )
    ranges = painted(base.mark_rule(strokeWidth=3), Role.WASTED).encode(x="low:Q", x2="high:Q")
    labels = base.mark_text(align="left", baseline="middle", dy=-22, dx=2).encode(
        x=alt.value(0), text="label:N"
    )
    layers = (bars + ranges + labels).resolve_scale(color="independent")
    return layers.properties(height=280)


def context_time(frame: pd.DataFrame) -> alt.Chart:
    """Milliseconds for each output token against the context. Columns: tokens, ms."""
    points = (
        alt.Chart(frame)
        .mark_point(size=70, strokeWidth=2)
        .encode(
            x=alt.X("tokens:Q", title="Context (tokens)"),
            y=alt.Y("ms:Q", title="Time per output token (ms)"),
            tooltip=[
                alt.Tooltip("tokens:Q", title="Tokens", format=",d"),
                alt.Tooltip("ms:Q", title="ms a token", format=",.1f"),
            ],
        )
    )
    return painted(points, Role.CACHED).properties(height=320)


def load_time(frame: pd.DataFrame) -> alt.Chart:
    """Milliseconds for each output token against requests at once.

    Columns: concurrent, ms, low, high, tokens_per_second, usage, preemptions.
    """
    base = alt.Chart(frame).encode(x=_concurrent())
    line = base.mark_line(point={"size": 60}).encode(
        y=alt.Y("ms:Q", title="Time per output token (ms)"), tooltip=_load_tooltip()
    )
    ranges = base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q")
    return (painted(ranges, Role.CACHED) + painted(line, Role.CACHED)).properties(height=320)


def throughput(frame: pd.DataFrame) -> alt.Chart:
    """Tokens a second of all requests together. Columns as for load_time."""
    line = (
        alt.Chart(frame)
        .mark_line(point={"size": 60, "shape": "square"}, strokeDash=[2, 2])
        .encode(
            x=_concurrent(),
            y=alt.Y("tokens_per_second:Q", title="Output of all (tokens a second)"),
            tooltip=_load_tooltip(),
        )
    )
    return painted(line, Role.SAVED).properties(height=320)


def _concurrent() -> alt.X:
    return alt.X("concurrent:O", title="Requests at once", axis=alt.Axis(labelAngle=0))


def _load_tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("concurrent:O", title="Requests at once"),
        alt.Tooltip("ms:Q", title="ms a token", format=",.1f"),
        alt.Tooltip("tokens_per_second:Q", title="Tokens a second", format=",.1f"),
        alt.Tooltip("usage:N", title="KV cache in use, at most"),
        alt.Tooltip("preemptions:N", title="Preemptions"),
    ]
