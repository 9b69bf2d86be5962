"""The player and the job behind it: a step back, a step on, or one after the other."""

from __future__ import annotations

import streamlit as st

from kvcore.jobs import MEASUREMENTS, Work
from kvcore.lab.player import Player, recorded
from pages.common.jobs import Slot, session_job
from pages.common.query import Choice

SPEEDS = {"1 a second": 1.0, "2 a second": 2.0, "5 a second": 5.0, "as fast as it goes": 1_000.0}

RULES = {"lab_speed": Choice(tuple(SPEEDS))}


def the_player() -> Player:
    if "cache_lab_player" not in st.session_state:
        st.session_state.cache_lab_player = recorded()
    return st.session_state.cache_lab_player


def slot() -> Slot:
    return session_job("cache_lab")


def run(work: Work, wait: float = 0.6) -> None:
    """Start a job; a short one is waited for, so that its result is drawn in the same run."""
    slot().start(work, queue=None).join(wait)
    st.rerun()


def speed() -> float:
    """Steps a second while playing."""
    return SPEEDS[st.session_state.get("lab_speed") or "2 a second"]


def seconds_a_frame() -> float:
    """How often to draw while a job is running."""
    return max(0.15, min(0.5, 1 / speed()))


def player_row(player: Player) -> None:
    row = st.container(horizontal=True, vertical_alignment="bottom")
    active = slot().active
    row.button(
        "Back",
        key="lab_back",
        disabled=active or player.cursor == 0,
        on_click=player.back,
        help="Look at the step before; nothing is computed.",
    )
    if row.button(
        "Step",
        key="lab_step",
        disabled=active or (player.at_end and not player.is_live),
        help="Run the token chosen last through the model and choose the next one.",
    ):
        run(player.step())
    if active:
        if row.button("Pause", key="lab_pause", help="Stop before the next step."):
            pause()
    elif row.button("Play", key="lab_play", disabled=player.ended):
        run(player.play(speed()), wait=0)
    row.selectbox(
        "Speed",
        list(SPEEDS),
        index=1,
        key="lab_speed",
        bind="query-params",
        help="Steps a second while playing; a step takes as long as it takes.",
        width=180,
    )


def pause() -> None:
    slot().stop()
    MEASUREMENTS.wake()
    slot().job.join(2)
    st.rerun()
