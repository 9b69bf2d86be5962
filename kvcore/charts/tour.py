"""Pictures of the guided tour."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kvcore import tour
from kvcore.charts.bars import labelled_bars
from kvcore.charts.theme import Role, colour, dash

WAYS = {tour.WITHOUT: Role.UNCACHED, tour.WITH: Role.CACHED}
DOINGS = {tour.RUN: Role.UNCACHED, tour.READ: Role.SAVED}
STATES = {tour.FILED: Role.CACHED, tour.USED_ONCE: Role.FOLLOWED, tour.GONE: Role.WASTED}
IN_ORDER = alt.EncodingSortField(field="order", op="min", order="ascending")
FOUND, NOT_FOUND = "cards found", "no cards found"
SIGNS = {tour.FILED: "kept", tour.USED_ONCE: "asks", tour.GONE: "gone"}


def one_step(frame: pd.DataFrame, steps: int = tour.STEPS) -> alt.Chart:
    """Two rows of boxes: which pieces are run in this step and whose cards are read."""
    boxes = _boxes(frame, "way", steps, list(WAYS)).encode(
        color=colour("what", DOINGS),
        tooltip=[
            alt.Tooltip("word:N", title="Piece"),
            alt.Tooltip("way:N", title="Way"),
            alt.Tooltip("what:N", title="In this step"),
        ],
    )
    marks = (
        alt.Chart(frame)
        .transform_calculate(sign=f"datum.what === '{tour.RUN}' ? '↻' : '✓'")
        .mark_text(fontSize=12)
        .encode(x=_piece(steps), y=_row("way", list(WAYS)), text="sign:N")
    )
    return (boxes + marks).properties(height=210)


def cards(frame: pd.DataFrame, steps: int = tour.STEPS) -> alt.Chart:
    """What each piece makes, a row each: keys and values stay, a query is asked once."""
    order = [tour.KEY, tour.VALUE, tour.QUERY]
    signs = " : ".join(f"datum.state === '{state}' ? '{sign}'" for state, sign in SIGNS.items())
    boxes = _boxes(frame, "part", steps, order).encode(
        color=colour("state", STATES),
        opacity=alt.condition(f"datum.state === '{tour.GONE}'", alt.value(0.35), alt.value(1)),
        tooltip=[
            alt.Tooltip("word:N", title="Piece"),
            alt.Tooltip("part:N", title="Made"),
            alt.Tooltip("state:N", title="State"),
        ],
    )
    marks = (
        alt.Chart(frame)
        .transform_calculate(sign=f"{signs} : ''")
        .mark_text(fontSize=9, angle=270)
        .encode(x=_piece(steps), y=_row("part", order), text="sign:N")
    )
    return (boxes + marks).properties(height=290)


def pieces_run(frame: pd.DataFrame) -> alt.Chart:
    """Pieces run through the model in all, step after step, both ways."""
    return (
        alt.Chart(frame)
        .mark_line()
        .encode(
            x=alt.X("step:Q", title="Pieces written", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("total:Q", title="Pieces run through the model, in all"),
            color=colour("way", WAYS),
            strokeDash=dash("way", WAYS),
            tooltip=[
                alt.Tooltip("step:Q", title="Pieces written"),
                alt.Tooltip("way:N", title="Way"),
                alt.Tooltip("this_step:Q", title="Run in this step"),
                alt.Tooltip("total:Q", title="Run in all"),
            ],
        )
        .properties(height=300)
    )


def bytes_per_token(frame: pd.DataFrame) -> alt.LayerChart:
    """Growth of the cache a token, by named model. Columns: model, kib, shown."""
    return labelled_bars(
        alt.Chart(frame),
        alt.X("kib:Q", title="KiB added by each token (16 bits)"),
        alt.Y("model:N", title=None, sort="-x", axis=alt.Axis(labelLimit=220)),
        "shown",
        [alt.Tooltip("model:N", title="Model"), alt.Tooltip("shown:N", title="A token adds")],
    ).properties(height=330)


def after_fixes(frame: pd.DataFrame) -> alt.LayerChart:
    """Memory for one request as fixes are stacked. Columns: order, stage, gib, shown, why."""
    return labelled_bars(
        alt.Chart(frame),
        alt.X("gib:Q", title="GiB held a request"),
        alt.Y("stage:N", title=None, sort=IN_ORDER, axis=alt.Axis(labelLimit=260)),
        "shown",
        [
            alt.Tooltip("stage:N", title="After"),
            alt.Tooltip("shown:N", title="Size"),
            alt.Tooltip("why:N", title="Because"),
        ],
    ).properties(height=300)


def chat(frame: pd.DataFrame) -> alt.Chart:
    """Prompt tokens of each turn: those sent before, and the new ones. Columns of `tour.chat`."""
    return (
        alt.Chart(frame)
        .mark_bar()
        .encode(
            x=alt.X("turn:O", title="Turn of the chat", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("tokens:Q", title="Prompt tokens"),
            color=colour("what", {tour.RESENT: Role.UNCACHED, tour.NEW: Role.CACHED}),
            order=alt.Order("what:N", sort="ascending"),
            tooltip=[
                alt.Tooltip("turn:O", title="Turn"),
                alt.Tooltip("what:N", title="Tokens"),
                alt.Tooltip("tokens:Q", title="Count", format=",d"),
            ],
        )
        .properties(height=300)
    )


def waits(frame: pd.DataFrame) -> alt.LayerChart:
    """Time to first token by way of asking. Columns: order, how, ms, shown, found."""
    return labelled_bars(
        alt.Chart(frame),
        alt.X("ms:Q", title="Time to first token (ms)"),
        alt.Y("how:N", title=None, sort=IN_ORDER, axis=alt.Axis(labelLimit=220)),
        "shown",
        [
            alt.Tooltip("how:N", title="Asked"),
            alt.Tooltip("shown:N", title="First token after"),
            alt.Tooltip("found:N", title="Cards"),
        ],
        color=colour("found", {FOUND: Role.SAVED, NOT_FOUND: Role.UNCACHED}),
    ).properties(height=260)


def _boxes(frame: pd.DataFrame, row: str, steps: int, order: list[str]) -> alt.Chart:
    return (
        alt.Chart(frame)
        .mark_rect(cornerRadius=2, stroke="transparent", strokeWidth=2)
        .encode(x=_piece(steps), y=_row(row, order))
    )


def _piece(steps: int) -> alt.X:
    return alt.X(
        "piece:O",
        title="Pieces of the reply, in order",
        scale=alt.Scale(domain=list(range(1, steps + 1)), paddingInner=0.12),
        axis=alt.Axis(labelAngle=0, labelOverlap=True),
    )


def _row(field: str, order: list[str]) -> alt.Y:
    return alt.Y(f"{field}:N", title=None, sort=order, scale=alt.Scale(domain=order))
