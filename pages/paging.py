"""Contiguous reservations against paging: where the memory goes, and what paging costs."""

from pages.common.entry import through_app

through_app()

from collections.abc import Sequence

import streamlit as st

from kvcore.paging import POLICIES
from kvcore.paging.outcome import Outcome
from pages.common.page import header
from pages.common.query import check
from pages.paging_parts import answer, controls, figure, tabs
from pages.paging_parts.comparison import run_all
from pages.paging_parts.jobs import all_policies, ensure_job, watch
from pages.paging_parts.policies import choose_slack

check(controls.RULES | tabs.RULES)

header(
    "Paging",
    "Give each request its memory in one piece and most of it holds nothing. "
    "Give it out in blocks as tokens come, and almost all of it holds tokens, at a price.",
)

figures = st.container()
asked, shown = st.columns([1, 3], gap="large")

with asked:
    comparison = controls.choose()
    scenario = comparison.scenario

with shown:
    slack = choose_slack()
    if comparison.lacks_trace:
        st.markdown("Upload a trace to see what each policy would make of it.")
        st.stop()

    def draw_bars(outcomes: Sequence[Outcome]) -> None:
        figure.bars(outcomes, slack, with_paper=scenario.is_the_papers)

    if comparison.is_quick:
        outcomes = run_all(comparison)
        draw_bars(outcomes)
    else:
        job = ensure_job("paging_runs", comparison.key, all_policies(comparison))
        watch("paging_runs", draw_bars)
        if job.active or len(job.results) < len(POLICIES):
            st.stop()
        outcomes = list(job.results)
    answer.refused(outcomes)
    figure.beside_the_paper(scenario, outcomes, slack)

with figures:
    answer.metrics(outcomes)

tabs.show(comparison, outcomes, slack)
