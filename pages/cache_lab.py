"""The cache of a real model, one token at a time: memory, latency, prefix reuse, eviction."""

from pages.common.entry import through_app

through_app()

import streamlit as st

from pages.common.page import header
from pages.common.query import check
from pages.lab_parts import asking, keeping, running, six_ways, stage, tabs

header(
    "Cache lab",
    "A real model answers one token at a time, and you see what its cache holds, what it was "
    "spared and what it lets go.",
)
check(asking.RULES | keeping.RULES | running.RULES | tabs.RULES)
player = running.the_player()
was_active = running.slot().active

figures = st.empty()
asked, shown = st.columns([1, 2.6], gap="medium")

with asked:
    wanted = asking.choose(player)

with shown:
    running.player_row(player)
    picture = st.container()

compared = six_ways.ask(player, wanted)

with picture:
    every = running.seconds_a_frame() if was_active else None
    st.fragment(stage.live, run_every=every)(figures, compared, was_active)

tabs.show(player)
