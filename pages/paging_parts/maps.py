"""Two policies at the same step: whose every slot is, what is free, who waits."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from kvcore import units
from kvcore.charts import paging as charts
from kvcore.paging import POLICIES
from kvcore.paging.fates import fate
from kvcore.paging.outcome import LABELS
from kvcore.paging.recording import Recording
from kvcore.paging.results import SimulationResult
from kvcore.paging.snapshot import PoolState, largest_for_one
from pages.common.draw import draw
from pages.common.query import Named, Number
from pages.paging_parts import player
from pages.paging_parts.comparison import Comparison, recorded

MAP_REQUESTS = 400

RULES = {
    "paging_left": Named(LABELS),
    "paging_right": Named(LABELS),
    **player.RULES,
    "paging_follow": Number(0, MAP_REQUESTS - 1),
}


def tab(comparison: Comparison) -> None:
    first = comparison.first(MAP_REQUESTS)
    st.caption(
        f"The first {units.count(first.scenario.count)} requests under two policies, at the same "
        "step. Click a request to follow it."
    )
    with st.container(horizontal=True):
        sides = [choose_policy("Left", "contiguous-oracle"), choose_policy("Right", "paged")]
        player.step_slider()
        choose_followed()
    player.play_row()
    recordings = [recorded(first, policy) for policy in sides]
    st.fragment(show_maps, run_every=player.seconds_a_frame())(recordings)


def choose_policy(side: str, default: str) -> str:
    return st.selectbox(
        side,
        POLICIES,
        POLICIES.index(default),
        format_func=LABELS.get,
        key=f"paging_{side.lower()}",
        bind="query-params",
        help=f"Policy of the map on the {side.lower()}.",
    )


def choose_followed() -> None:
    st.number_input(
        "Follow request",
        0,
        MAP_REQUESTS - 1,
        None,
        key="paging_follow",
        bind="query-params",
        help="Its slots are framed in both maps.",
    )


def show_maps(recordings: Sequence[Recording]) -> None:
    if st.session_state.pop("paging_clicked", False):
        st.rerun()
    last = min(player.LAST_STEP, max(recording.run.steps for recording in recordings))
    step = player.step_to_show(last)
    st.markdown(f"**Step {units.count(step)}** of {units.count(last)}")
    for side, (column, recording) in enumerate(zip(st.columns(2), recordings, strict=True)):
        with column:
            show_map(recording, min(step, recording.run.steps), side)
    st.caption(
        "Solid: holds a token. Faint: reserved for a token to come. Hatched: will never "
        "hold one. Empty: free. Colours only tell requests apart; hover for request, tokens and "
        "block."
    )


def show_map(recording: Recording, step: int, side: int) -> None:
    run, followed = recording.run, st.session_state.get("paging_follow")
    still = recording.still(step, followed)
    state = still.state
    st.markdown(f"**{LABELS[run.policy]}**")
    draw(
        charts.memory_map,
        still.map,
        alt=f"{len(state.running)} requests in the pool, {state.free:,.0f} slots free.",
        key=f"paging_map_{side}",
        on_select=lambda: follow_click(f"paging_map_{side}"),
    )
    if still.shown < run.num_slots:
        st.caption(f"The first {still.shown:,.0f} of {run.num_slots:,} slots.")
    st.markdown(f"{free_sentence(run, state)}\n\n{head_sentence(state)}")
    if followed is not None:
        st.markdown(fate(run, state, followed))
    draw(
        charts.free_space,
        still.free,
        alt=f"At step {step} {state.free:,.0f} slots are free, "
        f"{largest_for_one(run, state):,.0f} usable.",
    )


def follow_click(key: str) -> None:
    picked = st.session_state[key].selection.get("follow", [])
    if not picked or picked[0].get("request", -1) < 0:
        return
    st.session_state.paging_follow = int(picked[0]["request"])
    st.session_state.paging_clicked = True


def free_sentence(run: SimulationResult, state: PoolState) -> str:
    free = f"Free: **{state.free:,.0f} slots**."
    if run.policy.startswith("contiguous"):
        return f"{free} Largest chunk: **{state.largest_free:,.0f}**; nothing longer can come in."
    return (
        f"{free} Longest row of free neighbours: {state.largest_free:,.0f}, which does not matter: "
        f"any free block will do, **{state.usable:,.0f}** slots of them."
    )


def head_sentence(state: PoolState) -> str:
    if state.head is None:
        return f"{len(state.running)} run and nobody waits."
    head = state.head
    return (
        f"{len(state.running)} run, {units.count(state.num_waiting)} wait. First in line is "
        f"request **{head.index}**, for {units.count(head.waited)} steps. {head.reason}"
    )
