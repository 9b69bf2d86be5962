"""Charts of the cache lab: the rack laid flat, blocks and free list, latencies, the experiment."""

import altair as alt
import pandas as pd

from kvcore.charts.theme import Role, colour, painted
from kvcore.lab.experiment import VARIANTS
from kvcore.lab.trace import TokenState

STATES = {
    str(TokenState.REUSED): Role.SAVED,
    str(TokenState.FINDABLE): Role.CACHED,
    str(TokenState.HELD): Role.RESERVED,
    str(TokenState.EVICTED): Role.WASTED,
}
KINDS = {"prefill": Role.VALUES, "decode": Role.CACHED}
HOLDS = {"can still be found": Role.CACHED, "empty": Role.RESERVED}
PARTS = {"found in the pool": Role.SAVED, "computed": Role.UNCACHED}
WAYS = [variant.how for variant in VARIANTS]
NORM_TITLES = {"key_norm": "Norm of the key", "value_norm": "Norm of the value"}
SIGN_LEGEND = "R from the pool, F can be reused, H cannot, × evicted"


def heat_map(frame: pd.DataFrame, colour_by: str = "state") -> alt.LayerChart:
    """Layers upwards, positions along; coloured by state (with its sign below) or by a norm."""
    x = alt.X("first:Q", title="Position in the text (tokens)").scale(nice=False, zero=True)
    cells = (
        alt.Chart(frame)
        .mark_rect()
        .encode(
            x=x,
            x2="end:Q",
            y=alt.Y("bottom:Q", title="Layer", axis=alt.Axis(format="d", tickMinStep=1)).scale(
                nice=False, zero=False
            ),
            y2="top:Q",
            color=_cell_colour(colour_by),
            tooltip=[
                alt.Tooltip("tokens:N", title="Tokens"),
                alt.Tooltip("layers:N", title="Layer"),
                alt.Tooltip("block:N", title="Block"),
                alt.Tooltip("state:N", title="State"),
                alt.Tooltip("key_norm:Q", title="Norm of the key", format=".3~g"),
                alt.Tooltip("value_norm:Q", title="Norm of the value", format=".3~g"),
            ],
        )
    )
    signs = (
        alt.Chart(frame)
        .transform_filter("datum.bottom == 0.5")
        .transform_calculate(middle="(datum.first + datum.end) / 2")
        .mark_text(fontSize=11, baseline="top", dy=4)
        .encode(x="middle:Q", y="top:Q", text="sign:N")
    )
    return alt.layer(cells, signs).properties(height=300)


def block_map(frame: pd.DataFrame) -> alt.LayerChart:
    """A line for each block of the request, a cell for each token in it."""
    base = alt.Chart(frame).encode(
        x=alt.X("column:O", title="Tokens in a line", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("blocks:N", title="Block", sort=alt.SortField("line")),
    )
    cells = base.transform_filter("datum.state != 'empty'").mark_rect(opacity=0.6)
    cells = cells.encode(
        color=colour("state", STATES, title=None, legend=False),
        tooltip=[
            alt.Tooltip("token:N", title="Token"),
            alt.Tooltip("index:Q", title="Position"),
            alt.Tooltip("block:N", title="Block"),
            alt.Tooltip("requests:Q", title="Requests that hold the block"),
            alt.Tooltip("state:N", title="State"),
        ],
    )
    empty = (
        base.transform_filter("datum.state == 'empty'")
        .mark_rect(filled=False, strokeDash=[2, 2], strokeOpacity=0.4)
        .encode(
            tooltip=[alt.Tooltip("state:N", title="State"), alt.Tooltip("block:N", title="Block")]
        )
    )
    signs = base.mark_text(fontSize=10).encode(text="sign:N")
    return alt.layer(empty, cells, signs).properties(height=alt.Step(18))


def free_list(frame: pd.DataFrame) -> alt.LayerChart:
    """The free blocks in the order in which they will be taken; a ring marks those just freed."""
    base = alt.Chart(frame).encode(
        x=alt.X("column:O", title="Order of the free list, next to be taken first", axis=_BARE),
        y=alt.Y("line:O", title=None, axis=None),
        tooltip=[
            alt.Tooltip("order:Q", title="Place in the row"),
            alt.Tooltip("block:N", title="Block"),
            alt.Tooltip("holds:N", title="Its old contents"),
        ],
    )
    cells = base.mark_rect(cornerRadius=3, opacity=0.6).encode(
        color=colour("holds", HOLDS, title=None)
    )
    rings = (
        base.transform_filter("datum.just_freed")
        .mark_rect(filled=False, strokeWidth=2.5, cornerRadius=3)
        .encode(stroke=alt.value("gray"))
    )
    ids = [
        base.transform_filter(f"datum.holds == '{holds}'")
        .mark_text(fontSize=11, fontWeight=weight)
        .encode(text="block:N")
        for holds, weight in (("empty", "normal"), ("can still be found", "bold"))
    ]
    return alt.layer(cells, rings, *ids).properties(height=alt.Step(26))


def latency(frame: pd.DataFrame) -> alt.LayerChart:
    """Milliseconds of each step, prefill first."""
    base = alt.Chart(frame).encode(
        x=alt.X("step:Q", title="Step").axis(tickMinStep=1, format="d"),
        y=alt.Y("ms:Q", title="Time of the step (ms)"),
    )
    line = base.transform_filter("datum.kind == 'decode'").mark_line(opacity=0.5)
    line = line.encode(color=colour("kind", KINDS, title=None))
    points = base.mark_point(filled=True, size=55).encode(
        color=colour("kind", KINDS, title=None),
        shape=alt.Shape("kind:N", title=None, scale=_KIND_SHAPES, legend=None),
        tooltip=[
            alt.Tooltip("step:Q", title="Step"),
            alt.Tooltip("kind:N", title="Kind"),
            alt.Tooltip("token:N", title="Token chosen"),
            alt.Tooltip("ms:Q", title="Milliseconds", format=".1f"),
            alt.Tooltip("tokens_processed:Q", title="Tokens run through the model"),
        ],
    )
    return alt.layer(line, points).properties(height=230)


def experiment(frame: pd.DataFrame) -> alt.LayerChart:
    """Tokens of each prompt, found and computed, with the time to the first token beside them."""
    ways = alt.Y("how:N", title=None, sort=WAYS, axis=alt.Axis(labelLimit=220))
    bars = (
        alt.Chart(frame)
        .mark_bar()
        .encode(
            x=alt.X("tokens:Q", title="Tokens of the prompt", stack="zero"),
            y=ways,
            color=colour("part", PARTS, title=None),
            order=alt.Order("part:N", sort="descending"),
            tooltip=[
                alt.Tooltip("how:N", title="Asked"),
                alt.Tooltip("part:N", title="Tokens"),
                alt.Tooltip("tokens:Q", title="How many"),
                alt.Tooltip("ms:Q", title="Time to first token (ms)", format=".1f"),
                alt.Tooltip("hit_rate:Q", title="Hit rate", format=".0%"),
            ],
        )
    )
    times = (
        alt.Chart(frame)
        .transform_aggregate(
            tokens="sum(tokens)", ms="max(ms)", hit_rate="max(hit_rate)", groupby=["how"]
        )
        .transform_calculate(
            label="format(datum.hit_rate, '.0%') + ' found, ' + format(datum.ms, ',.1f') + ' ms'"
        )
        .mark_text(align="left", dx=6, limit=150)
        .encode(x="tokens:Q", y=ways, text="label:N")
    )
    return alt.layer(bars, times).properties(height=alt.Step(34))


def found_by_capacity(frame: pd.DataFrame) -> alt.LayerChart:
    """Share of blocks found against the room a cache has. Columns: those of `found_table`."""
    base = alt.Chart(frame).encode(
        x=alt.X(
            "blocks:Q",
            title="Room in the cache (blocks, log scale)",
            scale=alt.Scale(type="log", nice=False, padding=24),
            axis=alt.Axis(format="~s"),
        ),
        y=alt.Y("block_hit_rate:Q", title="Blocks found", axis=alt.Axis(format=".0%")),
        tooltip=[
            alt.Tooltip("blocks:Q", title="Blocks", format=",d"),
            alt.Tooltip("tokens:Q", title="Tokens", format=",d"),
            alt.Tooltip("block_hit_rate:Q", title="Blocks found", format=".1%"),
            alt.Tooltip("token_hit_rate:Q", title="Tokens found", format=".1%"),
            alt.Tooltip("evictions:Q", title="Evictions", format=",d"),
        ],
    )
    line = painted(base.mark_line(), Role.SAVED)
    points = painted(base.mark_point(filled=True, size=70), Role.SAVED)
    rates = base.transform_filter("datum.limit == 'yes'").mark_text(dy=-14)
    rates = rates.encode(text=alt.Text("block_hit_rate:Q", format=".1%"))
    last = base.transform_filter("datum.limit == 'none'").mark_text(dy=16)
    last = last.transform_calculate(label="'no limit'").encode(text="label:N")
    return alt.layer(line, points, rates, last).properties(height=280)


_BARE = alt.Axis(labels=False, ticks=False, domain=False)
_KIND_SHAPES = alt.Scale(domain=["prefill", "decode"], range=["diamond", "circle"])


def _cell_colour(colour_by: str) -> alt.Color:
    if colour_by == "state":
        return colour("state", STATES, title=None)
    return alt.Color(f"{colour_by}:Q", title=NORM_TITLES[colour_by])
