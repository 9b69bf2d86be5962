"""Figure 2: what each policy's memory holds, here and in the paper."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from kvcore.charts import paging as charts
from kvcore.paging import frames
from kvcore.paging.explain import alpaca_note, paper_notes
from kvcore.paging.outcome import Outcome
from kvcore.paging.scenario import Scenario
from pages.common.draw import draw
from pages.paging_parts.policies import Slack


def bars(outcomes: Sequence[Outcome], slack: Slack, with_paper: bool) -> None:
    if not outcomes:
        return
    shares = ", ".join(f"{o.system} {o.split().token_states:.0f} %" for o in outcomes)
    draw(
        charts.figure_2,
        frames.bars_table(outcomes, with_paper, *slack),
        alt=f"Share of the pool that holds tokens: {shares}.",
    )
    st.caption(
        "Tokens: keys and values. Reserved: for tokens that will come. Internal: given to a "
        "request and never used. External: between requests, free or lost in rounding up. Right "
        "of each bar: requests that run at once.\n\n"
        "Orca (Max), Orca (Pow2) and Orca (Oracle) are the paper's names for three ways to give a "
        "request one chunk when it comes. Max: as long as the model allows. Pow2: its output "
        "rounded up to a power of two. Oracle: exactly what it will need, as if that were known."
    )


def beside_the_paper(scenario: Scenario, outcomes: Sequence[Outcome], slack: Slack) -> None:
    """How far these runs are from the paper's figures, where both describe the same."""
    if scenario.is_the_papers:
        gaps(outcomes, slack)
    if scenario.is_figure_13:
        st.caption(alpaca_note(outcomes))


def gaps(outcomes: Sequence[Outcome], slack: Slack) -> None:
    st.markdown("**Here minus the paper**, in points; requests at once in percent")
    st.dataframe(
        frames.gaps_table(outcomes, *slack),
        hide_index=True,
        alt="Gap between simulation and paper for each labelled segment of Figure 2.",
    )
    st.caption("\n\n".join(paper_notes()))
