"""One request in an empty pool: what each policy gives it."""

from __future__ import annotations

import streamlit as st

from kvcore.paging import Request
from kvcore.paging.explain import fit_rows
from kvcore.paging.scenario import Scenario
from pages.common.query import Number

RULES = {
    "paging_fit_prompt": Number(1, 1_000_000),
    "paging_fit_output": Number(1, 1_000_000),
}


def show(scenario: Scenario) -> None:
    st.markdown("**Would a request fit?**")
    row = st.container(horizontal=True)
    prompt = row.number_input(
        "Prompt (tokens)",
        1,
        1_000_000,
        1_002,
        key="paging_fit_prompt",
        bind="query-params",
        help="Asked of an empty pool under every policy.",
    )
    output = row.number_input(
        "Output (tokens)",
        1,
        1_000_000,
        100,
        key="paging_fit_output",
        bind="query-params",
        help="What it turns out to be; only “know the output” knows it beforehand.",
    )
    st.dataframe(
        fit_rows(Request(prompt, output), scenario),
        hide_index=True,
        column_config={
            name: st.column_config.NumberColumn(format="%,.0f")
            for name in ("Slots when let in", "Slots at the end", "Never used")
        },
        alt="What each policy gives this request and whether it can ever run.",
    )
