"""Pictures of the bill: with and without a cache, and how the saving moves."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kvcore.charts.theme import Role, colour, dash, in_order, painted
from kvcore.costs.curves import CLASS_WORDS
from kvcore.costs.pictures import BREAK_EVEN, HERE, LINE, MINIMUM

CLASSES = {
    CLASS_WORDS["fresh"]: Role.UNCACHED,
    CLASS_WORDS["cache_read"]: Role.SAVED,
    CLASS_WORDS["cache_write"]: Role.VALUES,
    CLASS_WORDS["storage"]: Role.RESERVED,
    CLASS_WORDS["output"]: Role.WASTED,
}
WITHOUT, WITH = "Without caching", "With the cheapest cache"
BILLS = {WITHOUT: Role.UNCACHED, WITH: Role.CACHED}
SENT = {
    "Fresh": Role.UNCACHED,
    "Read from the cache": Role.SAVED,
    "Written to the cache": Role.VALUES,
}

_DOLLARS = "$,.4~r"


def _short_dollars(value: str) -> str:
    """Three digits; thousands as k. (SI prefixes alone would call ten cents 100m.)"""
    return f"abs({value}) >= 1000 ? format({value}, '$,.3~s') : format({value}, '$,.3~r')"


def _dollar_axis(**options: object) -> alt.Axis:
    return alt.Axis(labelExpr=_short_dollars("datum.value"), **options)


def bill(frame: pd.DataFrame) -> alt.LayerChart:
    """Dollars a month by token class, without and with. Columns: scenario, token_class, dollars,
    order (as `kvcore.costs.curves.bill_frame` gives them)."""
    base = (
        alt.Chart(frame)
        .transform_joinaggregate(total="sum(dollars)", groupby=["scenario"])
        .transform_joinaggregate(top="max(total)")
        .transform_calculate(
            label=f"datum.dollars / datum.top > 0.07 ? ({_short_dollars('datum.dollars')}) : ''"
        )
        .encode(
            y=alt.Y("scenario:N", title=None, sort=None, axis=_UNLABELLED),
            x=alt.X(
                "dollars:Q",
                title="Dollars a month",
                stack="zero",
                axis=_dollar_axis(tickCount=6),
            ),
            order=alt.Order("order:Q"),
        )
    )
    bars = base.mark_bar(size=30).encode(
        color=colour("token_class", CLASSES),
        tooltip=[
            alt.Tooltip("scenario:N", title="Bill"),
            alt.Tooltip("token_class:N", title="Tokens"),
            alt.Tooltip("dollars:Q", title="Dollars a month", format=_DOLLARS),
        ],
    )
    labels = base.mark_text(color="black", fontSize=11).encode(
        x=alt.X("dollars:Q", stack="zero", bandPosition=0.5), text="label:N"
    )
    names = _above(base.transform_filter("datum.order === 0"), "scenario", 23)
    return _apart(bars + labels + names).properties(height=270)


def saving_by_rate(frame: pd.DataFrame, lifetimes: tuple[str, ...] = ()) -> alt.LayerChart:
    """Saving as a share of the bill against requests per hour, a line for each lifetime.

    Columns: kind (`LINE`, `BREAK_EVEN`, `HERE`), requests_per_hour, lifetime, saving,
    saving_share.
    """
    x = alt.X(
        "requests_per_hour:Q",
        title="Requests an hour",
        scale=alt.Scale(type="log"),
        axis=alt.Axis(format="~s", tickCount=8),
    )
    y = alt.Y("saving_share:Q", title="Saved, share of the bill", axis=alt.Axis(format=".0%"))
    lines = _lines(frame, lifetimes).encode(
        x=x,
        y=y,
        tooltip=[
            alt.Tooltip("requests_per_hour:Q", title="Requests an hour", format=",.3~r"),
            alt.Tooltip("lifetime:N", title="Lifetime"),
            alt.Tooltip("saving:Q", title="Saved a month ($)", format=_DOLLARS),
            alt.Tooltip("saving_share:Q", title="Share of the bill", format=".1%"),
        ],
    )
    points = (
        alt.Chart(frame)
        .transform_filter(f"datum.kind === '{BREAK_EVEN}'")
        .transform_calculate(
            pays="'pays from ' + format(datum.requests_per_hour, ',.3~r') + ' / h'"
        )
        .transform_calculate(label="[datum.lifetime, datum.pays]")
        .encode(x=x, y=y)
    )
    marks = painted(
        points.mark_point(size=70, shape="diamond", filled=True).encode(
            tooltip=[
                alt.Tooltip("lifetime:N", title="Break-even of"),
                alt.Tooltip("requests_per_hour:Q", title="Requests an hour", format=",.3~r"),
            ]
        ),
        Role.FOLLOWED,
    )
    words = painted(
        points.mark_text(align="left", dx=7, dy=12, fontSize=11).encode(text="label:N"),
        Role.WASTED,
    )
    drawn = _zero(frame, y) + lines + _rule(frame, HERE, x) + marks + words
    return _apart(drawn).properties(height=340)


def saving_by_prefix(
    frame: pd.DataFrame, lifetimes: tuple[str, ...] = (), least: str = "minimum"
) -> alt.LayerChart:
    """Saving against the length of the stable prefix; the provider's minimum is a cliff.

    Columns: kind (`LINE`, `MINIMUM`, `HERE`), prefix_tokens, lifetime, saving.
    """
    x = alt.X("prefix_tokens:Q", title="Stable prefix (tokens)", axis=alt.Axis(format=",d"))
    y = alt.Y("saving:Q", title="Saved (dollars a month)", axis=_dollar_axis(tickCount=6))
    lines = _lines(frame, lifetimes).encode(
        x=x,
        y=y,
        tooltip=[
            alt.Tooltip("prefix_tokens:Q", title="Stable prefix (tokens)", format=",d"),
            alt.Tooltip("lifetime:N", title="Lifetime"),
            alt.Tooltip("saving:Q", title="Saved a month ($)", format=_DOLLARS),
        ],
    )
    cliff = _rule(frame, MINIMUM, x, least)
    drawn = _zero(frame, y) + lines + cliff + _rule(frame, HERE, x)
    return _apart(drawn).properties(height=340)


def tokens_by_call(frame: pd.DataFrame) -> alt.Chart:
    """What each call of a conversation sends. Columns: call, kind (of `SENT`), tokens."""
    return (
        alt.Chart(frame)
        .mark_bar()
        .encode(
            x=alt.X("call:O", title="Call of the conversation", axis=_CALLS),
            y=alt.Y("tokens:Q", title="Prompt (tokens)", axis=alt.Axis(format="~s")),
            color=colour("kind", SENT),
            order=alt.Order("place:Q"),
            tooltip=[
                alt.Tooltip("call:O", title="Call"),
                alt.Tooltip("kind:N", title="Tokens"),
                alt.Tooltip("tokens:Q", title="How many", format=",.0f"),
            ],
        )
        .transform_calculate(place=_place(list(SENT)))
        .properties(height=280)
    )


def dollars_by_call(frame: pd.DataFrame) -> alt.Chart:
    """Dollars of a conversation so far. Columns: call, bill (of `BILLS`), dollars."""
    return (
        alt.Chart(frame)
        .mark_line(point={"size": 30})
        .encode(
            x=alt.X("call:Q", title="Call of the conversation", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("dollars:Q", title="Dollars so far", axis=_dollar_axis(tickCount=6)),
            color=colour("bill", BILLS),
            strokeDash=dash("bill", BILLS),
            tooltip=[
                alt.Tooltip("call:Q", title="Call"),
                alt.Tooltip("bill:N", title="Bill"),
                alt.Tooltip("dollars:Q", title="Dollars so far", format="$,.4f"),
            ],
        )
        .properties(height=280)
    )


def models(frame: pd.DataFrame, rows: int = 3) -> alt.LayerChart:
    """The bill of each model, both ways. Columns: model, bill (of `BILLS`), dollars, order."""
    base = alt.Chart(frame).encode(
        y=alt.Y("model:N", title=None, sort=alt.SortField("order"), axis=alt.Axis(labelLimit=240)),
        yOffset=alt.YOffset("bill:N", sort=list(BILLS)),
        x=alt.X("dollars:Q", title="Dollars a month", axis=_dollar_axis(tickCount=6)),
    )
    bars = base.mark_bar().encode(
        color=colour("bill", BILLS),
        tooltip=[
            alt.Tooltip("model:N", title="Model"),
            alt.Tooltip("bill:N", title="Bill"),
            alt.Tooltip("dollars:Q", title="Dollars a month", format=_DOLLARS),
        ],
    )
    words = painted(
        base.transform_calculate(label=_short_dollars("datum.dollars"))
        .mark_text(align="left", dx=4, fontSize=11)
        .encode(text="label:N"),
        Role.WASTED,
    )
    return _apart(bars + words).properties(height=140 + 60 * rows)


def doubts(frame: pd.DataFrame, rows: int = 4) -> alt.LayerChart:
    """How far each doubtful input moves the saving. Columns: driver, low, high, saving, order."""
    y = alt.Y("driver:N", title=None, sort=alt.SortField("order"), axis=_UNLABELLED)
    x = alt.X(
        "low:Q",
        title="Saved (dollars a month)",
        axis=_dollar_axis(tickCount=6),
        scale=alt.Scale(zero=False),
    )
    base = alt.Chart(frame)
    spans = base.mark_bar(height=12).encode(
        x=x,
        x2="high:Q",
        y=y,
        tooltip=[
            alt.Tooltip("driver:N", title="Varied"),
            alt.Tooltip("low:Q", title="At least ($)", format=_DOLLARS),
            alt.Tooltip("high:Q", title="At most ($)", format=_DOLLARS),
        ],
    )
    estimate = base.mark_tick(thickness=3, size=20).encode(x="saving:Q", y=y)
    drawn = painted(spans, Role.CACHED) + painted(estimate, Role.FOLLOWED)
    return _apart(drawn + _above(base.encode(y=y), "driver", 16)).properties(height=70 + 44 * rows)


def hit_rate(frame: pd.DataFrame, series: tuple[str, ...] = (), by: str = "hour") -> alt.Chart:
    """The real hit rate by model. Columns: hour (0 to 23, UTC) or day, model, hit_rate,
    input_tokens, paid."""
    when = (
        alt.X("hour:Q", title="Hour of the day (UTC)", scale=alt.Scale(domain=[0, 23]))
        if by == "hour"
        else alt.X("day:T", title="Day (UTC)")
    )
    roles = in_order(series)
    return (
        alt.Chart(frame)
        .mark_line(point={"size": 40})
        .encode(
            x=when,
            y=alt.Y(
                "hit_rate:Q",
                title="Input read from the cache",
                axis=alt.Axis(format=".0%"),
                scale=alt.Scale(domain=[0, 1]),
            ),
            color=colour("model", roles),
            strokeDash=dash("model", roles),
            tooltip=[
                alt.Tooltip("model:N", title="Model"),
                alt.Tooltip(when.shorthand, title="When"),
                alt.Tooltip("hit_rate:Q", title="Read from the cache", format=".1%"),
                alt.Tooltip("input_tokens:Q", title="Input tokens", format=",.0f"),
                alt.Tooltip("paid:Q", title="Paid ($)", format=_DOLLARS),
            ],
        )
        .properties(height=280)
    )


def lifetimes(frame: pd.DataFrame, rows: int = 4) -> alt.LayerChart:
    """What the uploaded requests would have cost. Columns: lifetime, paid, order."""
    base = alt.Chart(frame).encode(
        y=alt.Y(
            "lifetime:N", title=None, sort=alt.SortField("order"), axis=alt.Axis(labelLimit=260)
        ),
        x=alt.X("paid:Q", title="Dollars for the uploaded period", axis=_dollar_axis(tickCount=6)),
    )
    bars = painted(
        base.mark_bar().encode(
            tooltip=[
                alt.Tooltip("lifetime:N", title="Lifetime"),
                alt.Tooltip("paid:Q", title="Dollars", format=_DOLLARS),
            ]
        ),
        Role.CACHED,
    )
    words = painted(
        base.transform_calculate(label=_short_dollars("datum.paid"))
        .mark_text(align="left", dx=4, fontSize=11)
        .encode(text="label:N"),
        Role.WASTED,
    )
    return _apart(bars + words).properties(height=70 + 40 * rows)


_UNLABELLED = alt.Axis(labels=False, ticks=False, domain=False)
_CALLS = alt.Axis(labelAngle=0, labelOverlap=True)


def _above(rows: alt.Chart, field: str, dy: int) -> alt.Chart:
    """The names of the rows over their bars rather than beside them, where a phone has no room."""
    return rows.mark_text(align="left", dy=-dy, fontSize=11, tooltip=None).encode(
        x=alt.value(0), text=f"{field}:N"
    )


def _lines(frame: pd.DataFrame, lifetimes: tuple[str, ...]) -> alt.Chart:
    roles = in_order(lifetimes)
    return (
        alt.Chart(frame)
        .transform_filter(f"datum.kind === '{LINE}'")
        .mark_line(clip=True)
        .encode(color=colour("lifetime", roles), strokeDash=dash("lifetime", roles))
    )


def _rule(frame: pd.DataFrame, kind: str, x: alt.X, words: str | None = None) -> alt.LayerChart:
    """A labelled vertical line at the row of this kind."""
    here = (
        alt.Chart(frame)
        .transform_filter(f"datum.kind === '{kind}'")
        .transform_calculate(words=f"'{words or kind}'")
        .encode(x=x)
    )
    rule = here.mark_rule(strokeDash=[3, 3], strokeWidth=1.5)
    text = here.mark_text(align="left", dx=5, fontSize=11).encode(
        y=alt.value(10 if kind == HERE else 26), text="words:N"
    )
    return painted(rule, Role.WASTED) + painted(text, Role.WASTED)


def _zero(frame: pd.DataFrame, y: alt.Y) -> alt.Chart:
    field = y.shorthand.split(":")[0]
    zero = (
        alt.Chart(frame)
        .transform_aggregate(rows="count()")
        .transform_calculate(**{field: "0"})
        .mark_rule()
        .encode(y=y)
    )
    return painted(zero, Role.WASTED)


def _apart(chart: alt.LayerChart) -> alt.LayerChart:
    """Layers painted in a role beside layers with series: each keeps its own scale and legend."""
    return chart.resolve_scale(color="independent", strokeDash="independent")


def _place(names: list[str]) -> str:
    return f"indexof({names!r}, datum.kind)"
