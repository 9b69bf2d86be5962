"""What is asked of which model, and the buttons that ask it."""

from __future__ import annotations

from datetime import datetime

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvcore.decoding.known import KNOWN, offered
from kvcore.decoding.shelf import SHELF
from kvcore.lab.player import Player, Wanted
from kvcore.lab.prompts import QUESTION, SYSTEM
from pages.common.fragments import runs_alone
from pages.common.query import Choice, Switch, Text
from pages.lab_parts import keeping
from pages.lab_parts.running import run, slot
from pages.lab_parts.tabs import EXPORT, TAB

TIMES = ("not in the prompt", "at the top", "at the end")

RULES = {
    "lab_model": Choice(tuple(KNOWN[name].title for name in offered())),
    "lab_system": Text(4_000),
    "lab_question": Text(2_000),
    "lab_time": Choice(TIMES),
    "lab_open": Switch(),
}


@st.fragment
def choose(player: Player) -> Wanted:
    """The settings beside the picture; what they say applies from the next Ask on.

    A fragment: the run on show does not depend on them, so they rerun without it.
    """
    st.subheader("Ask", divider=False)
    model = choose_model()
    system, question = choose_prompt()
    time = st.selectbox(
        "The time of day",
        TIMES,
        key="lab_time",
        bind="query-params",
        help="At the top it changes the first block, and with it the name of every block after.",
    )
    leave_open = st.toggle(
        "Leave the request before open",
        key="lab_open",
        bind="query-params",
        help="It goes on holding its blocks, and shares those with which both begin.",
    )
    asking = st.container(horizontal=True)
    policy = keeping.choose_policy(player.trace)
    settings = keeping.choose_pool()
    now = f"{datetime.now():%H:%M:%S} on {datetime.now():%Y-%m-%d}"
    wanted = Wanted(
        model,
        system,
        question,
        policy,
        settings,
        time_first=now if time == TIMES[1] else None,
        time_last=now if time == TIMES[2] else None,
        leave_open=leave_open,
    )
    ask_row(asking, player, wanted)
    if runs_alone() and st.session_state.get(TAB) == EXPORT:
        st.rerun()  # The link in that tab tells of what was just chosen.
    return wanted


def choose_model() -> str:
    return st.selectbox(
        "Model",
        offered(),
        index=offered().index("smollm2") if "smollm2" in offered() else 0,
        format_func=lambda name: KNOWN[name].title,
        key="lab_model",
        bind="query-params",
        help="SmolLM2 is at hand without a network; GPT-2 comes from the hub where there is one.",
    )


def choose_prompt() -> tuple[str, str]:
    system = st.text_area(
        "System prompt, shared by every question",
        SYSTEM,
        height=140,
        max_chars=4_000,
        key="lab_system",
        bind="query-params",
        help="It stands first, so that prompts that share it begin alike and can share blocks.",
    )
    question = st.text_area(
        "Question",
        QUESTION,
        height=80,
        max_chars=2_000,
        key="lab_question",
        bind="query-params",
        help="Ask the same twice, and all full blocks of the prompt are found in the pool.",
    )
    return system, question


def ask_row(row: DeltaGenerator, player: Player, wanted: Wanted) -> None:
    if row.button("Ask", type="primary", key="lab_ask", disabled=slot().active):
        if not wanted.question.strip():
            player.error = "The question is empty; type one, or take the one that was there."
        else:
            run(player.ask(wanted, SHELF.take))
    if player.num_open and row.button(
        f"Close {player.num_open} earlier",
        key="lab_close",
        disabled=slot().active,
        help="End the requests left open; their blocks become free and can still be found.",
    ):
        run(player.close_open())
