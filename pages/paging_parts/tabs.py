"""What lies behind the picture, a tab each; only the open one is worked out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import streamlit as st

from kvcore.paging import frames
from kvcore.paging.outcome import Outcome
from pages.common.page import export_row, share_link, sources
from pages.common.query import Choice
from pages.paging_parts import curves, fit, maps, preemption, sharing
from pages.paging_parts.comparison import Comparison, arithmetic
from pages.paging_parts.policies import Slack

TABS = ["Memory map", "Curves", "Preemption", "Sharing", "Arithmetic", "Sources", "Export"]

RULES = {
    **maps.RULES,
    **fit.RULES,
    **curves.RULES,
    **sharing.RULES,
    "paging_tab": Choice(tuple(TABS)),
}


def show(comparison: Comparison, outcomes: Sequence[Outcome], slack: Slack) -> None:
    bodies = (
        lambda: memory(comparison),
        lambda: curves.tab(comparison),
        lambda: preemption.tab(outcomes),
        lambda: sharing.tab(comparison),
        lambda: formulas(comparison),
        show_sources,
        lambda: export(comparison, outcomes, slack),
    )
    tabs = st.tabs(TABS, key="paging_tab", on_change="rerun", bind="query-params")
    for tab, body in zip(tabs, bodies, strict=True):
        if tab.open:
            with tab:
                body()


def memory(comparison: Comparison) -> None:
    maps.tab(comparison)
    fit.show(comparison.scenario)


def formulas(comparison: Comparison) -> None:
    for line in arithmetic(comparison):
        st.code(line, language=None, wrap_lines=True)


def show_sources() -> None:
    sources(
        [
            "Bars, batches, lengths and Table 1: Kwon et al., *Efficient Memory Management for "
            "Large Language Model Serving with PagedAttention*, SOSP 2023, "
            "[arXiv:2309.06180](https://arxiv.org/abs/2309.06180), Figures 2, 3, 11, 13 and 15 "
            "(CC BY 4.0). The lengths are the 2 × 128 bars of Figure 11a; they are paired with "
            "a rank correlation of 0.1, which the bars of Figure 2 imply.",
            "Large pages: Prabhu et al., *vAttention*, 2024, "
            "[arXiv:2405.04437](https://arxiv.org/abs/2405.04437); page sizes of its code.",
            "Watermark and the order of preemption: vLLM's scheduler and block manager; the "
            "falling curve was also measured on a GPU in vllm-project/vllm#44594.",
            "Traces: Azure/AzurePublicDataset (CC BY 4.0) and kvcache-ai/Mooncake (Apache-2.0).",
            "Everything labelled “here” is simulated when the page runs. A step gives each "
            "running request one token; prefill takes no time.",
        ]
    )


def export(comparison: Comparison, outcomes: Sequence[Outcome], slack: Slack) -> None:
    table = frames.table(outcomes, *slack)
    st.dataframe(table, hide_index=True, alt="Every number of every policy.")
    export_row("paging", table, asdict(comparison.scenario) | slack._asdict())
    share_link("paging_")
