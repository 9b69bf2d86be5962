"""A real model with and without its cache, timed live on this machine."""

from pages.common.entry import through_app

through_app()

import streamlit as st

from kvcore import recordings
from kvcore.decoding.run import RECORDING, recorded
from pages.common.page import header, refuse, share_link
from pages.common.query import check
from pages.timing_parts import results, running, settings


@st.fragment
def controls() -> None:
    """The settings of the next run, and its start: moving them leaves the results alone."""
    slot = running.slot()
    chosen = settings.choose()
    buttons = st.container(horizontal=True)
    if buttons.button("Start", type="primary", disabled=slot.active, key="live_timing_start"):
        if chosen.prompt:
            running.start(chosen)
            st.rerun()
        refuse("The prompt is empty: type at least one character to go on from.")
    if buttons.button("Stop", disabled=not slot.active, key="live_timing_stop"):
        slot.stop()
    with st.expander("Link to these settings"):
        share_link("live_timing")


header(
    "Live timing",
    "The same model writes the same reply twice, step by step in turn: once with its KV cache, "
    "once without. Until you press Start you see a recorded run; after that, everything is "
    "measured on the machine that serves this page.",
)
check(settings.RULES)
slot = running.slot()
side, main = st.columns([1, 2.4], gap="large")

with side:
    controls()
    st.toggle(
        "Logarithmic time axis",
        True,
        key="live_timing_log",
        help="Shows both ways on one chart, though one is many times slower.",
    )

with main:
    if slot.active:
        running.watch()
        st.stop()
    if slot.job is not None:
        running.tell(slot.job)
        results.whole(slot.job.about)
    if slot.job is None or not slot.job.about.pairs:
        st.caption(
            f"A recorded example of {recorded().settings.new_tokens:,} tokens; the settings beside "
            f"it apply when you press Start. {recordings.read(RECORDING).label}"
        )
        running.tell_disturbance(recorded())
        results.whole(recorded())
