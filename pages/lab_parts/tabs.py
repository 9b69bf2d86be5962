"""What lies behind the picture, a tab each."""

from __future__ import annotations

import streamlit as st

from kvcore.decoding.known import ORIGINS
from kvcore.lab import explain, frames
from kvcore.lab.player import Player
from pages.common.page import export_row, share_link, sources
from pages.common.query import Choice
from pages.lab_parts import known_answers, traffic

TAB, EXPORT = "lab_tab", "Export and link"
NAMES = (
    "Known answers",
    "Recorded traffic",
    "Arithmetic",
    "Table",
    "Colours",
    "Sources",
    EXPORT,
)
COLOURINGS = {"state": "Reusable work", "key_norm": "Norm of keys", "value_norm": "Norm of values"}

RULES = {"lab_colour": Choice(tuple(COLOURINGS.values())), **known_answers.RULES}


def show(player: Player) -> None:
    """Only the open tab is worked out; the colours always, since the picture reads them."""
    bodies = (
        known_answers.tab,
        traffic.tab,
        lambda: arithmetic(player),
        lambda: table(player),
        colours,
        show_sources,
        lambda: export(player),
    )
    tabs = st.tabs(NAMES, key=TAB, on_change="rerun")
    for tab, body in zip(tabs, bodies, strict=True):
        if tab.open or body is colours:
            with tab:
                body()


def arithmetic(player: Player) -> None:
    lines = explain.arithmetic(player.trace, player.frame)
    st.code("\n".join(lines), language=None, wrap_lines=True)
    st.markdown(
        "Blocks that fill up after the first eviction are not offered for reuse: their keys and "
        "values were computed without the evicted tokens. With heavy hitters, tokens taken from "
        "the pool start with no attention received, since the queries that looked at them are gone."
    )


def table(player: Player) -> None:
    trace, frame = player.trace, player.frame
    st.dataframe(frames.block_table(trace, frame), hide_index=True, width="stretch")
    st.dataframe(frames.tokens(trace, frame), hide_index=True, width="stretch", height=320)


def colours() -> None:
    st.segmented_control(
        "Colour the flat map by",
        list(COLOURINGS),
        default="state",
        format_func=COLOURINGS.get,
        key="lab_colour",
        bind="query-params",
        help="What may be used again, or how long the keys or values are in each layer.",
    )


def show_sources() -> None:
    sources(
        [
            "Blocks, hashes, free list, null block: vLLM 0.33, v1/core; the order of the free list "
            "since vllm-project/vllm#42656 (May 2026).",
            "Sinks: Xiao et al. 2023, arXiv:2309.17453. Heavy hitters: Zhang et al. 2023, "
            "arXiv:2306.14048; here one ranking for all layers and heads.",
            "Times, memory and norms: measured here, or in the recording named above.",
        ]
    )


def export(player: Player) -> None:
    about = player.trace.about
    weights = ORIGINS.get(about.source, about.source)
    settings = {"model": about.model, "weights": weights, "policy": about.policy}
    settings |= {"budget": about.budget, "block_size": about.block_size, "blocks": about.num_blocks}
    export_row("cache_lab", frames.steps(player.trace).to_pandas(), settings)
    share_link("lab_")
