"""Charts on screen: the spec is built once for a shape of frame, the data is sent each time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

import pandas as pd
import pyarrow as pa
import streamlit as st
from altair import TopLevelMixin

from kvcore.charts.theme import spec

ChartFunction = Callable[..., TopLevelMixin]


def draw(
    chart: ChartFunction,
    frame: pd.DataFrame | pa.Table,
    *,
    alt: str,
    key: str | None = None,
    on_select: Any = "ignore",
    slot: Any = st,
    **options: Hashable,
) -> Any:
    """Draw `chart(frame, **options)`; `alt` states the takeaway for those who cannot see it.

    A frame that is only drawn may come as an Arrow table, which costs a tenth to build. `slot` is
    where it goes (an `st.empty()` for a live chart). Options must be hashable, and the chart may
    depend on the columns of the frame and the options, never on the rows.
    """
    table = frame if isinstance(frame, pa.Table) else _arrow(frame)
    drawn = _spec(chart, table.schema, tuple(sorted(options.items())))
    drawn = {**drawn, "config": {"text": {"color": _text_colour(st.context.theme.type)}}}
    return slot.vega_lite_chart(
        table, drawn, alt=alt, key=key, on_select=on_select, width="stretch"
    )


def _arrow(frame: pd.DataFrame) -> pa.Table:
    """Streamlit would convert the frame itself, with its index, in twice the time."""
    columns = {name: pa.array(column.array, from_pandas=True) for name, column in frame.items()}
    return pa.table(columns)


@lru_cache
def _text_colour(theme: str | None) -> str | None:
    """The theme's own: Streamlit colours axes and legends, but leaves text marks black."""
    return st.get_option(f"theme.{theme or 'light'}.textColor")


@lru_cache(maxsize=256)
def _spec(
    chart: ChartFunction,
    columns: pa.Schema,
    options: tuple[tuple[str, Hashable], ...],
) -> dict[str, Any]:
    return spec(chart(columns.empty_table().to_pandas(), **dict(options)))
