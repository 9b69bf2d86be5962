"""The colour roles of the app, by name.

The colours themselves stand once, in `.streamlit/config.toml`, for light and dark; Streamlit
hands them to every chart as the categorical palette. A role is a place in that palette, so a
chart names roles and follows the theme without knowing a colour. A role is never the only sign:
give the series a dash, a shape or a word as well. Layers that name different series need
`resolve_scale(color="independent")`, or Vega-Lite would merge their palettes into one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import altair as alt


class Role(StrEnum):
    """What a colour means, in the order of `chartCategoricalColors`."""

    CACHED = "with a cache; keys"
    VALUES = "values"
    SAVED = "reused, saved"
    FOLLOWED = "the one being followed"
    RESERVED = "reserved for later"
    UNCACHED = "without a cache; a loss"
    WASTED = "wasted, evicted, gone"


DASHES: dict[Role, list[int]] = {
    Role.CACHED: [1, 0],
    Role.VALUES: [6, 3],
    Role.SAVED: [2, 2],
    Role.FOLLOWED: [8, 2, 2, 2],
    Role.RESERVED: [4, 4],
    Role.UNCACHED: [10, 4],
    Role.WASTED: [1, 3],
}

PHONE_CHARACTERS = 52

# Series beyond one a role (several models on one chart) take roles in this order.
SERIES_ORDER = (Role.CACHED, Role.UNCACHED, Role.SAVED, Role.FOLLOWED, Role.VALUES, Role.RESERVED)


def in_order(names: Sequence[str]) -> dict[str, Role]:
    """Roles for series that have no meaning of their own, such as models under comparison."""
    if len(names) > len(SERIES_ORDER):
        raise ValueError(f"a chart tells {len(SERIES_ORDER)} series apart, not {len(names)}")
    return dict(zip(names, SERIES_ORDER, strict=False))


def colour(
    field: str,
    series: Mapping[str, Role],
    title: str | None = None,
    legend: bool = True,
) -> alt.Color:
    """Colour by a nominal field, each series in the colour of its role.

    At most one series may hold a role. The legend lists the series in the order given.
    """
    return alt.Color(
        f"{field}:N", title=title, scale=_scale(series), legend=_legend(series, legend)
    )


def painted(chart: alt.Chart, role: Role) -> alt.Chart:
    """A chart or layer with a single series, all of it in the colour of one role, no legend."""
    field = f"role_{role.name}"
    every_role = {str(each): each for each in Role}
    return chart.transform_calculate(**{field: f"'{role}'"}).encode(
        color=alt.Color(f"{field}:N", scale=_scale(every_role), legend=None)
    )


def dash(field: str, series: Mapping[str, Role], title: str | None = None) -> alt.StrokeDash:
    """The second cue for lines: a dash for each role, merged into the legend of `colour`."""
    scale = alt.Scale(domain=list(series), range=[DASHES[role] for role in series.values()])
    legend = _legend(series, True)
    legend.symbolType, legend.symbolSize, legend.symbolStrokeWidth = "stroke", 300, 2
    return alt.StrokeDash(f"{field}:N", title=title, scale=scale, legend=legend)


def spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """A chart as the dict `st.vega_lite_chart` draws fastest: no data, no configuration."""
    drawn = chart.to_dict()
    for key in ("datasets", "config", "$schema"):
        drawn.pop(key, None)
    _drop_named_data(drawn)
    return drawn


def _scale(series: Mapping[str, Role]) -> alt.Scale:
    by_role = {role: name for name, role in series.items()}
    if len(by_role) < len(series):
        raise ValueError(f"two series share one colour role: {dict(series)}")
    return alt.Scale(domain=[by_role.get(role, f" {role.name}") for role in Role])


def _legend(series: Mapping[str, Role], shown: bool) -> alt.Legend | None:
    if not shown:
        return None
    return alt.Legend(
        values=list(series), orient="top", columns=_columns(list(series)), labelLimit=300
    )


def _columns(names: Sequence[str]) -> int:
    """Legend columns that still fit on a phone."""
    return max(1, PHONE_CHARACTERS // (max(len(name) for name in names) + 4))


def _drop_named_data(node: Any) -> None:
    """Layers name the frame they share; with the datasets gone, the name would draw nothing."""
    if isinstance(node, list):
        for child in node:
            _drop_named_data(child)
    if not isinstance(node, dict):
        return
    if isinstance(node.get("data"), dict) and "name" in node["data"]:
        del node["data"]
    for child in node.values():
        _drop_named_data(child)
