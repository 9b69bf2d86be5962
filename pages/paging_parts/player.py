"""The step that the maps show: chosen, or moving on by itself."""

from __future__ import annotations

import streamlit as st

from pages.common.query import Number

LAST_STEP = 4_000
SECONDS_A_FRAME = 0.6

RULES = {"paging_step": Number(0, LAST_STEP)}


def step_slider() -> None:
    if "paging_resume" in st.session_state:
        st.session_state.paging_step = st.session_state.pop("paging_resume")
    st.slider(
        "Step",
        0,
        LAST_STEP,
        500,
        key="paging_step",
        bind="query-params",
        help="Each running request gains one token a step.",
    )


def play_row() -> None:
    row = st.container(horizontal=True, vertical_alignment="bottom")
    playing = is_playing()
    row.button(
        "Pause" if playing else "Play", on_click=pause if playing else play, key="paging_play"
    )
    row.segmented_control(
        "Steps a frame",
        [1, 5, 25],
        default=5,
        required=True,
        key="paging_pace_map",
        help="How far Play moves at a time.",
    )


def is_playing() -> bool:
    return st.session_state.get("paging_playing", False)


def seconds_a_frame() -> float | None:
    """How often to draw; None while nothing moves."""
    return SECONDS_A_FRAME if is_playing() else None


def play() -> None:
    if not is_playing():
        st.session_state.paging_playing = True
        st.session_state.paging_frame = st.session_state.paging_step


def pause() -> None:
    """Stay at the frame on show. One press may arrive twice: a browser whose timer redraws the
    maps at that moment sends it with the redraw and by itself."""
    if is_playing():
        st.session_state.paging_playing = False
        st.session_state.paging_resume = st.session_state.paging_frame


def step_to_show(last: int) -> int:
    """The slider's step, or the next frame while playing; at the end playing stops."""
    if not is_playing():
        return min(st.session_state.paging_step, last)
    frame = st.session_state.paging_frame
    if frame >= last:
        pause()
        st.rerun()
    st.session_state.paging_frame = min(last, frame + st.session_state.paging_pace_map)
    return frame
