"""Scenarios whose answer is known, the pool's own beside it."""

from __future__ import annotations

import streamlit as st

from kvcore.charts import cache_lab as charts
from kvcore.lab import frames
from kvcore.prefix.pool import BlockPool
from kvcore.prefix.scenarios import SCENARIOS, Scenario
from pages.common.draw import draw
from pages.common.query import Choice

RULES = {"lab_scenario": Choice(tuple(scenario.title for scenario in SCENARIOS))}


def tab() -> None:
    scenario = choose()
    outcome = scenario.run()
    st.markdown(scenario.story)
    st.dataframe(frames.checks(outcome), hide_index=True, width="stretch")
    agree = sum(check.holds for check in outcome.checks)
    st.caption(
        f"{agree} of {len(outcome.checks)} agree; computed just now. Expected: {scenario.source}."
    )
    if outcome.pool is None:
        return
    for name, table in outcome.tables.items():
        st.markdown(f"Blocks of {name}: {', '.join(map(str, table.block_ids))}")
    free_blocks(outcome.pool)


def choose() -> Scenario:
    by_key = {scenario.key: scenario for scenario in SCENARIOS}
    chosen = st.pills(
        "Scenario",
        list(by_key),
        default=SCENARIOS[0].key,
        format_func=lambda key: by_key[key].title,
        key="lab_scenario",
        bind="query-params",
        required=True,
        help="A few steps of a pool, run when chosen, whose outcome is known beforehand.",
    )
    return by_key[chosen or SCENARIOS[0].key]


def free_blocks(pool: BlockPool) -> None:
    findable = {block.block_id for block in pool.blocks if block.hash is not None}
    free = frames.free_list(pool.free_list, findable)
    if free.num_rows:
        st.caption("The free list at the end, next to be taken first")
        draw(charts.free_list, free, alt=f"Free blocks in order: {pool.free_list}.")
