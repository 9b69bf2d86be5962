"""The answer in four figures, and who can never be served."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from kvcore import units
from kvcore.paging.fates import refusals
from kvcore.paging.outcome import Outcome
from pages.common.page import refuse


def metrics(outcomes: Sequence[Outcome]) -> None:
    by_policy = {outcome.policy: outcome for outcome in outcomes}
    paged, longest = by_policy["paged"], by_policy["contiguous-max"]
    if paged.runs_nothing:
        refuse("None of these requests can ever be served from this pool.")
        return
    row = st.container(horizontal=True)
    row.metric(
        "Memory that holds tokens, paged",
        f"{paged.split().token_states:.1f} %",
        help="Averaged over steps, the first and last 5 % of completions left out.",
    )
    row.metric(
        "The same, reserving the longest",
        "nothing fits" if longest.runs_nothing else f"{longest.split().token_states:.1f} %",
        help="One chunk of the longest length the model takes, for every request.",
    )
    row.metric(
        "Requests at once",
        f"{paged.batch_size:.1f}",
        None if longest.runs_nothing else f"{longest.batch_size:.1f} reserving the longest",
        delta_color="off",
        delta_arrow="off",
        help="Running per step, on average.",
    )
    row.metric(
        "Price of preemption",
        f"{paged.recomputed_per_generated:.2f} tokens",
        "computed again per token generated",
        delta_color="off",
        delta_arrow="off",
        help="When the pool is full, the request that came last is put out so that older ones can "
        "go on, and its tokens are computed again later: work done twice. Here that happened "
        f"{units.count(paged.preemptions)} times, {paged.preemptions_per_request:.2f} times a "
        "request on average.",
    )


def refused(outcomes: Sequence[Outcome]) -> None:
    for line in refusals(outcomes):
        st.caption(line)
