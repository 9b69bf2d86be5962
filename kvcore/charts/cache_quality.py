"""Pictures of the cache quality page."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kvcore.charts.theme import Role, colour
from kvcore.quality import FORGETS, KEEPS, PLACES, ROUNDS

KINDS = {KEEPS: Role.CACHED, FORGETS: Role.UNCACHED, ROUNDS: Role.VALUES}
SHAPES = {KEEPS: "circle", FORGETS: "triangle-down", ROUNDS: "square"}
MEASURES = {
    "perplexity": "Perplexity (lower is better)",
    "divergence": "Divergence (nats, lower is better)",
    "unchanged": "Unchanged next tokens (higher is better)",
}


def quality(frame: pd.DataFrame, measure: str = "perplexity") -> alt.Chart:
    """Quality against memory, a point for each treatment.

    Columns: treatment, kind, cache_mib, perplexity, divergence, unchanged, number. measure: the
    one of `MEASURES` on the vertical axis.
    """
    base = alt.Chart(frame)
    x = alt.X("cache_mib:Q", title="Cache at the end of the text (MiB)", scale=alt.Scale(zero=True))
    y = alt.Y(
        f"{measure}:Q",
        title=MEASURES[measure],
        scale=alt.Scale(type="sqrt", domainMin=0)
        if measure == "divergence"
        else alt.Scale(zero=False, padding=18),
        axis=alt.Axis(format="%") if measure == "unchanged" else alt.Axis(),
    )
    shape = alt.Shape(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=list(SHAPES), range=list(SHAPES.values())),
        legend=alt.Legend(orient="top", values=list(SHAPES)),
    )
    points = base.mark_point(filled=True, size=110, opacity=1).encode(
        x=x,
        y=y,
        color=colour("kind", KINDS),
        shape=shape,
        tooltip=[
            alt.Tooltip("treatment:N", title="Cache"),
            alt.Tooltip("cache_mib:Q", title="MiB", format=",.2f"),
            alt.Tooltip("perplexity:Q", title="Perplexity", format=",.2f"),
            alt.Tooltip("divergence:Q", title="Divergence (nats)", format=".4f"),
            alt.Tooltip("unchanged:Q", title="Unchanged tokens", format=".1%"),
        ],
    )
    numbers = base.mark_text(dx=9, dy=-9, align="left").encode(x=x, y=y, text="number:Q")
    return alt.layer(points, numbers).properties(height=380)


def hits(frame: pd.DataFrame) -> alt.Chart:
    """Recall by place and treatment as a heat map with its counts.

    Columns: treatment, place, share, shown, distance, hits, asked.
    """
    x = alt.X(
        "place:N",
        title="Where the fact stood",
        sort=list(PLACES),
        scale=alt.Scale(paddingInner=0.03),
        axis=alt.Axis(labelAngle=0, orient="top"),
    )
    y = alt.Y(
        "treatment:N",
        title=None,
        sort=None,
        scale=alt.Scale(paddingInner=0.08),
        axis=alt.Axis(labelLimit=260),
    )
    base = alt.Chart(frame)
    return (
        base.mark_rect()
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "share:Q",
                title="Answered right",
                scale=alt.Scale(domain=[0, 1]),
                legend=alt.Legend(orient="bottom", format="%", values=[0, 0.5, 1]),
            ),
            tooltip=[
                alt.Tooltip("treatment:N", title="Cache"),
                alt.Tooltip("place:N", title="Place"),
                alt.Tooltip("shown:N", title="Right"),
                alt.Tooltip("distance:Q", title="Tokens before the question", format=",.0f"),
            ],
        )
        .properties(height=alt.Step(30))
    )
