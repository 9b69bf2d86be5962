"""Blocks held once for several: samples of one prompt, a common prefix."""

from __future__ import annotations

import streamlit as st

from kvcore import units
from kvcore.charts import paging as charts
from kvcore.paging.explain import sharing_note
from kvcore.paging.outcome import Outcome
from kvcore.paging.sharing import Savings
from pages.common.draw import draw
from pages.common.links import lab
from pages.common.page import refuse
from pages.common.query import Number
from pages.paging_parts.comparison import Comparison, sharing_runs, sharing_saved

REQUESTS = 1_500

RULES = {"paging_samples": Number(1, 6), "paging_prefix": Number(0, 2_048)}


def tab(comparison: Comparison) -> None:
    samples, prefix = choose_shared()
    first = comparison.first(REQUESTS)
    runs = sharing_runs(first, samples, prefix)
    if runs["shared"].runs_nothing:
        refuse("With that prefix no request is short enough for the model; shorten the prefix.")
        return
    saved = sharing_saved(first, samples, prefix)
    metrics(saved, runs["shared"], runs["apart"], samples)
    draw(
        charts.savings,
        saved.table,
        alt="Blocks saved by two to six samples, computed and as the paper prints them.",
    )
    st.caption(sharing_note())
    lab("cache_lab", "Watch one prompt's blocks being found and shared in the cache lab")


def choose_shared() -> tuple[int, int]:
    left, right = st.columns(2)
    samples = left.slider(
        "Samples of each prompt",
        1,
        6,
        4,
        key="paging_samples",
        bind="query-params",
        help="Outputs drawn from one prompt; its full blocks are held once.",
    )
    prefix = right.number_input(
        "Common prefix (tokens)",
        0,
        2_048,
        0,
        key="paging_prefix",
        bind="query-params",
        help="Before every prompt. The paper translates with 80 (one example) and 341 (five).",
    )
    return samples, prefix


def metrics(saved: Savings, shared: Outcome, apart: Outcome, samples: int) -> None:
    row = st.columns(4)
    row[0].metric(
        "Blocks saved by samples",
        f"{saved.by_samples:.1f} %",
        help="In closed form: blocks the samples share, over the blocks they would take apart.",
    )
    row[1].metric(
        "Blocks saved by the prefix",
        f"{saved.by_prefix:.1f} %",
        help="In closed form: of each request's blocks, those that hold the common prefix.",
    )
    row[2].metric(
        "Samples at once, shared",
        f"{shared.batch_size * samples:.1f}",
        f"{apart.batch_size:.1f} without sharing",
        delta_color="off",
        delta_arrow="off",
        help="Simulated: the same requests, once as samples of one prompt, once on their own.",
    )
    row[3].metric(
        "Blocks copied on write",
        units.count(shared.copied_blocks),
        help="The half-filled last block of a prompt, copied when its samples part.",
    )
