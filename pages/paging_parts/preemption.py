"""What full memory costs: who was put out, and the work done again."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from kvcore import units
from kvcore.paging import frames
from kvcore.paging.outcome import Outcome


def tab(outcomes: Sequence[Outcome]) -> None:
    paged = next(outcome for outcome in outcomes if outcome.policy == "paged")
    if not paged.preemptions:
        st.markdown("Nobody was put out: the pool never ran full while requests grew.")
        return
    st.markdown(price(paged))
    st.caption(
        "Oldest requests are never put out, so there is always progress. Nobody new is let in "
        "while someone put out waits."
    )
    log = frames.preemption_log(paged)
    st.dataframe(log, hide_index=True, alt="Every preemption: step, victim, cause, tokens lost.")
    if paged.preemptions > len(log):
        st.caption(f"The first {len(log)} of {units.count(paged.preemptions)}.")


def price(paged: Outcome) -> str:
    swapped = units.count(paged.swapped_tokens)
    copied = f", and {swapped} copied out and back." if paged.swapped_tokens else "."
    return (
        f"{units.count(paged.preemptions)} times the latest request was put out so that an older "
        f"one could go on; the unluckiest {paged.most_preempted} times. "
        f"**{units.count(paged.recomputed_tokens)} tokens were computed again** for "
        f"{units.count(paged.generated_tokens)} generated{copied}"
    )
