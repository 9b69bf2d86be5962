"""The same question asked in six ways: twice, with the time at either end."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvcore.charts import cache_lab as charts
from kvcore.decoding.shelf import SHELF
from kvcore.lab import explain, frames
from kvcore.lab.player import Player, Wanted
from pages.common.draw import draw
from pages.lab_parts.running import run, slot


def ask(player: Player, wanted: Wanted) -> DeltaGenerator:
    """The button that asks; gives the place for what comes of it."""
    st.subheader("Ask twice, then with the time in the prompt")
    if st.button("Ask in six ways", key="lab_try", disabled=slot().active):
        run(player.try_times(wanted, SHELF.take), wait=0)
    return st.empty()


def result(player: Player) -> None:
    rows = player.experiment
    if player.experiment_label:
        st.caption(player.experiment_label)
    if not rows:
        return
    draw(
        charts.experiment,
        frames.experiment(rows),
        alt="; ".join(f"{row.how}: {row.prefill.hit_rate:.0%} found" for row in rows) + ".",
    )
    shown = explain.times_note(rows)
    if shown:
        st.markdown(shown)
