"""Bars that say their own length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from kvcore.charts.theme import Role, painted


def labelled_bars(
    base: alt.Chart,
    x: alt.X,
    y: alt.Y,
    label: str,
    tooltip: Sequence[alt.Tooltip],
    label_width: int = 60,
    role: Role | None = None,
    **channels: Any,
) -> alt.LayerChart:
    """Lying bars on a linear axis, each with the column `label` written behind it.

    label_width: room for the longest label, in pixels. role: of bars that are all alike. channels:
    others of the bars, such as colour.
    """
    bars = base.mark_bar().encode(x=x, y=y, tooltip=list(tooltip), **channels)
    place = {name: channel for name, channel in channels.items() if name == "yOffset"}
    labels = base.mark_text(align="left", dx=5).encode(x=x, y=y, text=f"{label}:N", **place)
    bars = bars if role is None else painted(bars, role)
    return alt.layer(bars, labels, _room(base, x, label_width))


def _room(base: alt.Chart, x: alt.X, pixels: int) -> alt.Chart:
    """An unseen layer that draws the axis on until `pixels` are free behind the longest bar."""
    field = x.shorthand.split(":")[0]
    end = f"datum.{field} * width / max(width - {pixels}, width / 4)"
    return base.transform_calculate(end=end).mark_rule(opacity=0, tooltip=None).encode(x="end:Q")
