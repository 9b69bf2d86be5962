"""One setting moved, all others as chosen: what it does, point by point."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from kvcore import units
from kvcore.charts import paging as charts
from kvcore.paging import POLICIES, frames
from kvcore.paging.outcome import LABELS, Outcome
from pages.common.draw import draw
from pages.common.query import Named
from pages.paging_parts.comparison import Comparison
from pages.paging_parts.jobs import curve_work, ensure_job, watch

REQUESTS = 1_500
CURVES = {
    "block_size": "Block size",
    "watermark": "Watermark",
    "load": "Load",
    "num_slots": "Pool size",
}
CURVE_AXES = {
    "block_size": "Block size (tokens)",
    "watermark": "Watermark (share of all blocks)",
    "load": "Load (× what the policy can serve)",
    "num_slots": "Pool (slots)",
}
MEASURES = {
    "tokens": "Memory that holds tokens (%)",
    "batch": "Requests at once",
    "preemptions": "Preemptions per request",
    "recomputed": "Recomputed per generated token",
}

RULES = {"paging_curve": Named(CURVES), "paging_curve_policy": Named(LABELS)}


def tab(comparison: Comparison) -> None:
    left, right = st.columns(2)
    with left:
        setting = choose_setting()
    with right:
        policy = choose_policy()
    first = comparison.first(REQUESTS)
    st.caption(f"The first {units.count(first.scenario.count)} requests for each point.")
    ensure_job("paging_curve", (first.key, setting, policy), curve_work(first, setting, policy))
    chosen = float(getattr(first.scenario, setting))
    watch("paging_curve", lambda points: show_curve(points, setting, chosen))


def choose_setting() -> str:
    return st.segmented_control(
        "Move",
        list(CURVES),
        default="watermark",
        required=True,
        format_func=CURVES.get,
        key="paging_curve",
        bind="query-params",
        help="One setting is moved, all others stay as chosen.",
    )


def choose_policy() -> str:
    return st.selectbox(
        "Policy",
        POLICIES,
        POLICIES.index("paged"),
        format_func=LABELS.get,
        key="paging_curve_policy",
        bind="query-params",
        help="Block size and watermark concern the paged policies.",
    )


def show_curve(points: Sequence[tuple[float, Outcome]], setting: str, chosen: float) -> None:
    frame = frames.curve(points).assign(chosen=chosen)
    for column, (field, title) in zip(st.columns(2) * 2, MEASURES.items(), strict=True):
        values = ", ".join(
            f"{value:g}: {y:.2f}" for value, y in zip(frame["value"], frame[field], strict=True)
        )
        with column:
            draw(
                charts.curve,
                frame,
                alt=f"{title} against {CURVE_AXES[setting]}: {values}.",
                column=field,
                y_title=title,
                x_title=CURVE_AXES[setting],
                x_log=setting in ("block_size", "num_slots"),
            )
