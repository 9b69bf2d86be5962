"""The controls from top to bottom; together they say what is compared."""

from __future__ import annotations

import streamlit as st

from kvcore.paging.scenario import LOGNORMAL, TRACE, Scenario
from pages.paging_parts import policies, pool, requests
from pages.paging_parts.comparison import Comparison

RULES = requests.RULES | pool.RULES | policies.RULES


def choose() -> Comparison:
    st.markdown("**Requests**")
    source = requests.choose_source()
    trace, file_id = requests.upload() if source == TRACE else (None, "")
    choices = requests.lognormal_lengths() if source == LOGNORMAL else {}
    choices["count"] = requests.choose_count(trace)
    choices |= requests.choose_arrivals(source)
    st.markdown("**Pool**")
    choices |= pool.choose_pool()
    with st.expander("Policies", key="paging_rules"):
        choices |= policies.choose_rules()
        choices["seed"] = policies.choose_seed()
    return Comparison(Scenario(source=source, **choices), trace, file_id)
