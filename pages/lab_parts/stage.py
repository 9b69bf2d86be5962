"""Everything that moves with a step, drawn again and again while a job runs."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvcore import eviction, units
from kvcore.charts import cache_lab as charts
from kvcore.decoding.known import KNOWN
from kvcore.lab import explain, frames
from kvcore.lab.player import Player
from kvcore.lab.rack import rack_data
from kvcore.lab.trace import Frame, Trace
from pages.common.draw import draw
from pages.common.page import refuse
from pages.common.rack import rack
from pages.common.text import as_text
from pages.lab_parts import six_ways
from pages.lab_parts.keeping import describe_policy
from pages.lab_parts.running import slot, the_player


def live(figures: DeltaGenerator, compared: DeltaGenerator, was_active: bool) -> None:
    """The one fragment of the page; hands over to the whole page when the job ends."""
    player = the_player()
    trace, frame = player.trace, player.frame
    with figures.container():
        metrics(trace, frame)
    said(player)
    cache(trace, frame)
    blocks(trace, frame)
    draw(
        charts.latency,
        frames.steps(trace, player.cursor + 1),
        alt=f"Step {player.cursor} took {units.ms(frame.seconds)}; "
        f"the prefill took {units.ms(trace.frames[0].seconds)}.",
    )
    with compared.container():
        six_ways.result(player)
    if was_active and not slot().active:
        st.rerun()


def metrics(trace: Trace, frame: Frame) -> None:
    prefill, saved = trace.prefill, trace.prefill.saved_seconds
    row = st.container(horizontal=True)
    row.metric(
        "Cached tokens",
        f"{frame.cached_tokens:,} of {frame.num_tokens:,}",
        help="Tokens whose key and value the cache holds, of those in the text so far.",
        border=True,
    )
    row.metric(
        "KV memory",
        units.gib(trace.kv_bytes(frame)),
        help=f"Keys and values held, fp32. The {frame.blocks_held} blocks they lie in take "
        f"{units.gib(trace.block_bytes(frame))}.",
        border=True,
    )
    row.metric(
        "Prefill saved",
        "nothing" if saved is None else f"{units.ms(saved)}, {prefill.cached_tokens} tokens",
        help="Time to the first token without the pool less the time with it, both measured on "
        "this prompt; and the tokens that were not computed.",
        border=True,
    )
    row.metric(
        "Prefix hit rate",
        explain.hit_rate(frame.hit_rate),
        help="Prompt tokens found in the pool over prompt tokens asked for, since this pool began: "
        "earlier requests count too, each once, when it is admitted.",
        border=True,
    )


def said(player: Player) -> None:
    """What the model wrote so far, whose run this is, and what is being done."""
    if player.error:
        refuse(player.error)
    trace, frame = player.trace, player.frame
    title = KNOWN[trace.about.model].title if trace.about.model in KNOWN else trace.about.model
    st.markdown(f"**{title}:** {as_text(trace.text(frame), 3_000)}")
    st.caption(doing(player))
    evicts = trace.about.policy != eviction.NONE
    st.caption(
        f"{trace.name.capitalize()}, step {player.cursor} of {len(trace.frames) - 1}; its cache: "
        f"{describe_policy(trace)}. "
        + (f"{explain.positions_note(trace)} " if evicts else "")
        + "The hit rate is that of all prompts since the pool began."
    )


def doing(player: Player) -> str:
    if slot().active:
        queued = f"Waiting, {player.ahead} ahead: one measurement runs at a time"
        return f"{queued if player.ahead else player.doing or 'Playing'} …"
    if player.label:
        return (
            f"A prepared run, nothing was loaded: {player.label} "
            f"Step through it, or press Ask to run your own."
        )
    return f"Running here. {as_text(player.notice or '', 400)}"


def cache(trace: Trace, frame: Frame) -> None:
    """The rack, and the same flat."""
    takeaway = explain.takeaway(trace, frame)
    rack(rack_data(trace, frame), label=takeaway, key="cache_lab_rack")
    st.caption(
        "Shelves are layers, block numbers stand below, positions run to the right, height is the "
        "norm. Drag or use the arrow keys to turn the rack; Home turns it back."
    )
    draw(
        charts.heat_map,
        frames.heat_map(trace, frame),
        alt=f"The same as a flat map: {takeaway}",
        colour_by=st.session_state.get("lab_colour", "state"),
    )
    st.caption(f"The same picture flat. {charts.SIGN_LEGEND}.")


def blocks(trace: Trace, frame: Frame) -> None:
    st.subheader("Blocks")
    evicted = explain.eviction_note(frame)
    if evicted:
        st.markdown(evicted)
    slots = frames.block_slots(trace, frame)
    draw(
        charts.block_map, slots, alt=f"{frame.blocks_held} blocks of the request and their tokens."
    )
    st.caption(
        f"The free list, {len(frame.free_list)} of {trace.about.num_blocks - 1} blocks, next to be "
        "taken first. Bold: old contents that can still be found. Ring: freed in this step."
    )
    free = frames.free_list(frame.free_list, set(frame.free_findable), set(frame.freed))
    if free.num_rows:
        draw(charts.free_list, free, alt=f"Next to be taken: {frame.free_list[:8]}.")
