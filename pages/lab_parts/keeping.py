"""What the cache keeps, and the pool its blocks come from."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvcore import eviction
from kvcore.lab.run import Policy, Settings
from kvcore.lab.trace import Trace
from pages.common.query import Choice, Number, Switch

POLICIES = {
    eviction.NONE: "Keep everything",
    eviction.WINDOW: "Sliding window",
    eviction.SINKS: "Sinks + window",
    eviction.HEAVY_HITTERS: "Heavy hitters",
}
BLOCK_SIZES = (1, 4, 8, 16, 32)

RULES = {
    "lab_policy": Choice(tuple(POLICIES.values())),
    "lab_window": Number(2, 1_024),
    "lab_sinks": Number(0, 64),
    "lab_heavy": Number(0, 512),
    "lab_renumber": Switch(),
    "lab_block": Choice(tuple(map(str, BLOCK_SIZES))),
    "lab_blocks": Number(3, 513),
}


def choose_policy(trace: Trace) -> Policy:
    """The policy of the next request; what the request on show kept is said beside it."""
    st.subheader("What the cache keeps", divider=False)
    st.caption(f"For the next request. The one on show: {describe_policy(trace)}.")
    name = st.selectbox(
        "Policy",
        list(POLICIES),
        format_func=POLICIES.get,
        key="lab_policy",
        bind="query-params",
        help="Applied to the real cache before each new token; budgets are in tokens.",
    )
    if name == eviction.NONE:
        return Policy()
    budget = choose_budget(name)
    renumber = st.toggle(
        "Renumber what stays",
        key="lab_renumber",
        bind="query-params",
        persist_state="session",
        help="Number the positions kept 0, 1, 2 … as StreamingLLM does, instead of leaving them.",
    )
    return Policy(name, budget, renumber)


def describe_policy(trace: Trace) -> str:
    """Sliding window (96 window): the policy by the name of the control, the budget in tokens."""
    parts = " + ".join(f"{count} {part}" for part, count in trace.about.budget.items())
    return POLICIES[trace.about.policy].lower() + (f" ({parts})" if parts else "")


def choose_budget(name: str) -> dict[str, int]:
    """The parts of a policy's budget, in tokens."""
    row = st.container(horizontal=True)
    latest = "The latest positions, the new one included."
    if name == eviction.HEAVY_HITTERS:
        most = "Positions that received most attention so far."
        heavy = number(row, "Heavy", "heavy", 0, 512, 88, most)
        return {"heavy": heavy, "recent": number(row, "Recent", "window", 2, 1_024, 96, latest)}
    budget = {}
    if name == eviction.SINKS:
        budget["sinks"] = number(row, "Sinks", "sinks", 0, 64, 4, "First positions that stay.")
    return budget | {"window": number(row, "Window", "window", 2, 1_024, 96, latest)}


def choose_pool() -> Settings:
    st.subheader("The pool", divider=False)
    row = st.container(horizontal=True)
    block_size = row.selectbox(
        "Tokens a block",
        BLOCK_SIZES,
        index=BLOCK_SIZES.index(16),
        key="lab_block",
        bind="query-params",
        help="Only full blocks can be found again: the block is the smallest prefix to share.",
    )
    num_blocks = number(
        row, "Blocks", "blocks", 3, 513, 33, "Block 0 is the null block and never handed out."
    )
    return Settings(block_size, num_blocks)


def number(
    place: DeltaGenerator,
    label: str,
    name: str,
    low: int,
    high: int,
    value: int,
    help: str,
) -> int:
    return place.number_input(
        label,
        low,
        high,
        value,
        key=f"lab_{name}",
        bind="query-params",
        persist_state="session",
        help=help,
    )
