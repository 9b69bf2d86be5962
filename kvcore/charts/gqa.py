"""Pictures of the sharing-heads page."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kvcore.attention import ENABLE_GQA, GROUPED_MATMUL, PACKED, REPEATED
from kvcore.charts.bars import labelled_bars
from kvcore.charts.theme import Role, colour, dash, painted

CHOSEN = {"chosen": Role.CACHED, "other": Role.RESERVED}
TWINS = {"as it is": Role.CACHED, "had it stayed MHA": Role.WASTED}
FORMULATION_ROLES = {
    PACKED: Role.CACHED,
    GROUPED_MATMUL: Role.SAVED,
    ENABLE_GQA: Role.VALUES,
    REPEATED: Role.UNCACHED,
}


def heads(frame: pd.DataFrame, num_query_heads: int, num_kv_heads: int) -> alt.Chart:
    """Figure 2 of Ainslie et al. for these numbers: readers above, the drawers they open below.

    Columns: query_head, kv_head, query_x, kv_x, first_of_group. Pointing at any part of a group
    brings the group out.
    """
    group = alt.selection_point(
        name="group", on="pointerover", clear="pointerout", fields=["kv_head"], empty=True
    )
    base = alt.Chart(frame)
    drawers = base.transform_filter("datum.first_of_group")
    lines = base.mark_rule(strokeWidth=1.5).encode(
        x=_place("query_x"),
        x2="kv_x",
        y=alt.datum(QUERY_ROW - 0.05, type="quantitative"),
        y2=alt.datum(KEY_ROW + 0.07),
        opacity=alt.condition(group, alt.value(0.7), alt.value(0.06)),
    )
    readers = _boxes(base, "query_x", QUERY_ROW, num_query_heads, group).add_params(group)
    layers = [
        painted(lines, Role.FOLLOWED),
        painted(readers, Role.FOLLOWED),
        painted(_boxes(drawers, "kv_x", KEY_ROW, num_kv_heads, group), Role.CACHED),
        painted(_boxes(drawers, "kv_x", VALUE_ROW, num_kv_heads, group), Role.VALUES),
    ]
    if num_query_heads <= MOST_NUMBERED:
        layers.append(
            _numbers(base, "query_x", "query_head", QUERY_ROW, num_query_heads, above=True)
        )
    if num_kv_heads <= MOST_NUMBERED:
        layers.append(_numbers(drawers, "kv_x", "kv_head", VALUE_ROW, num_kv_heads, above=False))
    return alt.layer(*layers).properties(height=270)


QUERY_ROW, KEY_ROW, VALUE_ROW = 0.86, 0.36, 0.16
ROW_NAMES = {QUERY_ROW: "Query heads", KEY_ROW: "Keys kept", VALUE_ROW: "Values kept"}
MOST_NUMBERED = 32
NUMBER_PIXELS = 15


def _place(field: str) -> alt.X:
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=[0, 1]), axis=None)


def _row(place: float) -> alt.Y:
    named = " : ".join(f"datum.value == {at} ? '{name}'" for at, name in ROW_NAMES.items())
    return alt.Y(
        datum=place,
        type="quantitative",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(
            title=None,
            values=list(ROW_NAMES),
            labelExpr=f"{named} : ''",
            grid=False,
            ticks=False,
            domain=False,
        ),
    )


def _boxes(
    base: alt.Chart, field: str, place: float, count: int, group: alt.Parameter
) -> alt.Chart:
    tooltip = [alt.Tooltip("kv_head:Q", title="KV head")]
    if field == "query_x":
        tooltip.insert(0, alt.Tooltip("query_head:Q", title="Query head"))
    size = alt.ExprRef(f"pow(min(22, 0.8 * width / {count}), 2)")
    return base.mark_square(size=size, filled=True).encode(
        x=_place(field),
        y=_row(place),
        opacity=alt.condition(group, alt.value(1.0), alt.value(0.18)),
        tooltip=tooltip,
    )


def _numbers(
    base: alt.Chart, field: str, text: str, place: float, count: int, above: bool
) -> alt.Chart:
    """The numbers of the heads, or of every second, third … where there is no room for all."""
    every = f"ceil({NUMBER_PIXELS * count} / width)"
    return (
        base.transform_calculate(number=f"datum.{text} % {every} ? '' : datum.{text}")
        .mark_text(fontSize=10, dy=-18 if above else 18)
        .encode(x=_place(field), y=_row(place), text="number:N")
    )


def ladder(frame: pd.DataFrame, num_query_heads: int) -> alt.Chart:
    """Every even way to share, one row each: a box is a drawer, as wide as the heads that share it.

    Columns: sharing, label, step, kv_head, start, end, state, readers, cache.
    """
    return (
        alt.Chart(frame)
        .transform_calculate(left="datum.start + 0.06", right="datum.end - 0.06")
        .mark_bar()
        .encode(
            x=alt.X(
                "left:Q",
                title="Query heads, side by side",
                scale=alt.Scale(domain=[0, num_query_heads], nice=False),
                axis=alt.Axis(format="d", tickMinStep=1, grid=False),
            ),
            x2="right:Q",
            y=alt.Y("label:N", title=None, sort=alt.SortField("step"), axis=_wide_labels()),
            color=colour("state", CHOSEN, legend=False),
            tooltip=[
                alt.Tooltip("sharing:N", title="Sharing"),
                alt.Tooltip("kv_head:Q", title="KV head"),
                alt.Tooltip("readers:N", title="read by"),
                alt.Tooltip("cache:N", title="Cache of one request"),
            ],
        )
        .properties(height=alt.Step(24))
    )


def _wide_labels() -> alt.Axis:
    return alt.Axis(labelLimit=260)


def memory(frame: pd.DataFrame) -> alt.LayerChart:
    """Cache of one request for each way to share.

    Columns: sharing, kv_heads, gib, cache, times_less, users, state.
    """
    noted = alt.Chart(frame).transform_calculate(
        note="datum.cache + ', ' + format(datum.users, ',d') + "
        "(datum.users == 1 ? ' user' : ' users') + (datum.state == 'chosen' ? ' (chosen)' : '')"
    )
    return labelled_bars(
        noted,
        alt.X("gib:Q", title="Cache of one request (GiB)"),
        alt.Y("sharing:N", title=None, sort=None),
        "note",
        [
            alt.Tooltip("sharing:N", title="Sharing"),
            alt.Tooltip("cache:N", title="Cache of one request"),
            alt.Tooltip("times_less:Q", title="Times less than MHA", format=".1f"),
            alt.Tooltip("users:Q", title="Users at once", format=",d"),
        ],
        label_width=165,
        color=colour("state", CHOSEN, legend=False),
    ).properties(height=alt.Step(28))


def models(frame: pd.DataFrame) -> alt.LayerChart:
    """Real models as they are, each beside what it would keep as MHA.

    Columns: model, what, sharing, gib, cache, users.
    """
    noted = alt.Chart(frame).transform_calculate(
        note="datum.what == 'as it is' ? datum.cache + ' (' + datum.sharing + ')' : "
        "datum.cache + ' as MHA'"
    )
    return labelled_bars(
        noted,
        alt.X("gib:Q", title="Cache of one request (GiB)"),
        alt.Y("model:N", title=None, sort=None),
        "note",
        [
            alt.Tooltip("model:N", title="Model"),
            alt.Tooltip("what:N", title="Counted"),
            alt.Tooltip("sharing:N", title="Sharing as it is"),
            alt.Tooltip("cache:N", title="Cache of one request"),
            alt.Tooltip("users:Q", title="Users at once", format=",d"),
        ],
        label_width=120,
        color=colour("what", TWINS),
        yOffset=alt.YOffset("what:N", sort=list(TWINS)),
    ).properties(height=alt.Step(17))


def speed_up(frame: pd.DataFrame, sharing: str, formulations: tuple[str, ...]) -> alt.Chart:
    """Times faster than MHA against the context, for one way to share, with the ideal.

    Columns: context, sharing, formulation, speed_up, ideal, median_ms. formulations: those drawn.
    """
    series = {name: FORMULATION_ROLES[name] for name in formulations}
    base = alt.Chart(frame).transform_filter(alt.datum.sharing == sharing)
    x = alt.X(
        "context:O",
        title="Context (tokens in the cache)",
        axis=alt.Axis(labelAngle=0, labelExpr="format(datum.value, ',d')"),
    )
    y = alt.Y(
        "speed_up:Q",
        title="Times faster than MHA",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(values=[0.1, 0.2, 0.5, 1, 2, 4, 8, 16, 32], format="~g"),
    )
    tooltip = [
        alt.Tooltip("formulation:N", title="Written as"),
        alt.Tooltip("context:Q", title="Context", format=",d"),
        alt.Tooltip("speed_up:Q", title="Times faster than MHA", format=".2f"),
        alt.Tooltip("median_ms:Q", title="Milliseconds", format=".2f"),
    ]
    lines = base.mark_line().encode(
        x=x, y=y, color=colour("formulation", series), strokeDash=dash("formulation", series)
    )
    points = base.mark_point(filled=True, size=55, opacity=1).encode(
        x=x, y=y, color=colour("formulation", series, legend=False), tooltip=tooltip
    )
    ideal = (
        base.transform_aggregate(ideal="max(ideal)")
        .mark_rule(strokeDash=[4, 4], strokeWidth=1.5)
        .encode(y="ideal:Q")
    )
    ideal_name = (
        base.transform_aggregate(ideal="max(ideal)")
        .transform_calculate(note="'ideal: ' + datum.ideal + ' times fewer bytes'")
        .mark_text(align="left", baseline="bottom", dx=4, dy=-3)
        .encode(x=alt.value(0), y="ideal:Q", text="note:N")
    )
    even = (
        alt.Chart(frame)
        .transform_aggregate(one="count()")
        .mark_rule(strokeWidth=1)
        .encode(y=alt.datum(1))
    )
    rules = [painted(rule, Role.WASTED) for rule in (even, ideal)]
    return alt.layer(*rules, ideal_name, lines, points).properties(height=380)


def pooling(frame: pd.DataFrame) -> alt.Chart:
    """Perplexity after pooling heads in more and more layers.

    Columns: treatment, share_of_full, perplexity, divergence, unchanged.
    """
    base = alt.Chart(frame)
    y = alt.Y("treatment:N", title=None, sort=None, axis=_wide_labels())
    bars = base.mark_bar().encode(
        x=alt.X(
            "perplexity:Q",
            title="Perplexity (log; lower is better)",
            scale=alt.Scale(type="log", domainMin=1, nice=False),
            axis=alt.Axis(values=[1, 10, 100, 1_000, 10_000], format=",~g"),
        ),
        x2=alt.datum(1),
        y=y,
        tooltip=[
            alt.Tooltip("treatment:N", title="Pooled"),
            alt.Tooltip("perplexity:Q", title="Perplexity", format=",.1f"),
            alt.Tooltip("divergence:Q", title="Divergence (nats)", format=".3f"),
            alt.Tooltip("unchanged:Q", title="Unchanged tokens", format=".1%"),
        ],
    )
    notes = (
        base.transform_calculate(
            note="format(datum.perplexity, ',.3~r') + ' with ' + "
            "format(datum.share_of_full, '.0%') + ' of the cache'"
        )
        .mark_text(align="left", dx=5)
        .encode(x="perplexity:Q", y=y, text="note:N")
    )
    return alt.layer(painted(bars, Role.UNCACHED), notes).properties(height=alt.Step(30))
