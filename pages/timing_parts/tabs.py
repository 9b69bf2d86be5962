"""What lies behind the picture of a finished run, a tab each."""

from __future__ import annotations

from dataclasses import asdict

import streamlit as st

from kvcore import units
from kvcore.charts import live_timing as charts
from kvcore.decoding import run_frames
from kvcore.decoding.explain import (
    QUOTED_FACTOR,
    arithmetic,
    quoted_factor_reached,
    verdict,
)
from kvcore.decoding.run import Run
from pages.common.draw import draw
from pages.common.page import export_row, sources

NAMES = ("Speed-up", "Same reply?", "Totals", "Arithmetic", "Sources and export")


def show(run: Run) -> None:
    bodies = (speed_up, same_reply, totals, formulas, sources_and_export)
    for tab, body in zip(st.tabs(NAMES), bodies, strict=True):
        with tab:
            body(run)


def speed_up(run: Run) -> None:
    ratios, where = run.comparison.speed_up(), quoted_factor_reached(run)
    st.markdown(
        "The factor is no constant: it grows with the reply. Introductory articles often quote "
        f"{QUOTED_FACTOR}×. {where} Counting tokens alone promises more, because a cached step "
        "still has to read every weight for its one token."
    )
    draw(
        charts.speed_up,
        run_frames.speed_up(run),
        alt=f"The speed-up grows with the reply to {units.times(ratios[-1])}. {where}",
    )
    if run.comparison.is_sampled:
        st.caption(
            f"Drawn through {run.comparison.uncached.measured} measured uncached steps of "
            f"{run.comparison.cached.reached:,}; straight lines between."
        )


def same_reply(run: Run) -> None:
    st.markdown(verdict(run.comparison.agreement))
    st.caption("Computed in 32 bits. In 16 bits identity cannot be promised: ties are common.")


def totals(run: Run) -> None:
    st.dataframe(
        run_frames.totals(run).rename_columns(["", "With the cache", "Without a cache"]),
        hide_index=True,
    )
    if run.comparison.cached.per_token is None:
        return
    st.markdown(
        "**Two phases, two limits.** Prefill runs all tokens of the prompt at once, so each weight "
        "that is read serves all of them: arithmetic is the limit. Decode runs one token, and "
        "reads every weight for it: memory bandwidth is the limit."
    )
    draw(
        charts.phases,
        run_frames.phases(run),
        alt="A token costs far less in prefill than in decode.",
    )
    if run.peer_notice:
        st.caption(run.peer_notice)


def formulas(run: Run) -> None:
    st.code("\n".join(arithmetic(run)), language=None, wrap_lines=True)


def sources_and_export(run: Run) -> None:
    sources(
        [
            "Times: measured here, both ways in turn, step by step, in one process.",
            "Floor: bytes a step must read, divided by how fast this machine reads the "
            "weights, measured before the run.",
            "16×: what introductory articles on the KV cache quote from measurements of their "
            "own, not ours. A speed-up belongs to one length of reply on one machine, so the page "
            "only marks where that factor is reached here.",
            "Attention and its keys and values: Vaswani et al. 2017, arXiv:1706.03762, 3.2.",
        ]
    )
    export_row(
        "live_timing",
        lambda: run_frames.export(run),
        lambda: {**asdict(run.settings), **run_frames.summary(run)},
    )
