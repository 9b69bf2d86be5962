"""What is timed: prompt, model, length, and how the uncached way is measured."""

from __future__ import annotations

import os

import streamlit as st

from kvcore.decoding import KNOWN
from kvcore.decoding.compare import DEFAULT_SAMPLES
from kvcore.decoding.known import offered
from kvcore.decoding.run import Settings
from pages.common.query import Choice, Named, Number, Switch, Text

FULL, SAMPLED = "Both in full", "Uncached sampled"
TEMPERATURES = ("0", "0.7", "1")
THREADS = ("1", "2")
MAX_PROMPT = 20_000
MAX_NEW = 1_000
DEFAULT_PROMPT = (
    "The librarian never read a book twice. She wrote a card for every page, and when a visitor "
    "asked a question,"
)
PRESETS = {
    "A short reply": (48, FULL),
    "200 tokens": (200, FULL),
    "1,000 tokens, sampled": (1_000, SAMPLED),
    "1,000 tokens, in full": (1_000, FULL),
}

RULES = {
    "live_timing_prompt": Text(MAX_PROMPT),
    "live_timing_model": Named({name: KNOWN[name].title for name in offered()}),
    "live_timing_new_tokens": Number(1, MAX_NEW),
    "live_timing_mode": Choice((FULL, SAMPLED)),
    "live_timing_temperature": Choice(TEMPERATURES),
    "live_timing_seed": Number(0, 2**31 - 1),
    "live_timing_threads": Choice(THREADS),
    "live_timing_naive": Switch(),
    "live_timing_peer": Switch(),
}


def apply_preset() -> None:
    chosen = st.session_state.live_timing_preset
    if chosen:
        st.session_state.live_timing_new_tokens, st.session_state.live_timing_mode = PRESETS[chosen]


def choose() -> Settings:
    st.pills(
        "Presets",
        list(PRESETS),
        key="live_timing_preset",
        on_change=apply_preset,
        help="Sets the length of the reply and how the uncached way is measured.",
        wrap=True,
    )
    prompt = st.text_area(
        "Prompt",
        DEFAULT_PROMPT,
        max_chars=MAX_PROMPT,
        height=110,
        key="live_timing_prompt",
        help="What the model goes on from. Any language, any signs.",
        bind="query-params",
    )
    model = st.selectbox(
        "Model",
        offered(),
        format_func=lambda name: KNOWN[name].title,
        key="live_timing_model",
        help="Real weights from the Hugging Face hub, or the nearest that can be had without it.",
        bind="query-params",
    )
    new_tokens = st.slider(
        "New tokens",
        1,
        MAX_NEW,
        48,
        key="live_timing_new_tokens",
        help="Length of the reply; prompt and reply together must fit the model's context.",
        bind="query-params",
    )
    mode = st.segmented_control(
        "How the uncached way is measured",
        (FULL, SAMPLED),
        default=FULL,
        required=True,
        key="live_timing_mode",
        help=f"In full, or at {DEFAULT_SAMPLES} places spread over the reply with a line between.",
        bind="query-params",
    )
    temperature = st.segmented_control(
        "Temperature",
        TEMPERATURES,
        default="0.7",
        required=True,
        key="live_timing_temperature",
        help="0 always takes the best token; above it tokens are drawn, the same draws both ways.",
        bind="query-params",
    )
    with st.expander("More settings"):
        seed = st.number_input(
            "Seed",
            0,
            2**31 - 1,
            0,
            key="live_timing_seed",
            help="Of the draws when the temperature is above 0.",
            bind="query-params",
        )
        threads = st.segmented_control(
            "Threads",
            THREADS,
            default="1",
            required=True,
            key="live_timing_threads",
            help=f"Cores that compute; this machine has {os.cpu_count()}. One is the steadier.",
            bind="query-params",
        )
        naive = st.toggle(
            "Naive loop without a cache",
            key="live_timing_naive",
            help="Computes the logits of every token in each uncached step, not of the last alone.",
            bind="query-params",
        )
        peer = st.toggle(
            "Reference line",
            True,
            key="live_timing_peer",
            help="Times transformers' own cached step beside ours; needs the model's size again.",
            bind="query-params",
        )
    return Settings(
        model=model,
        prompt=prompt,
        new_tokens=new_tokens,
        temperature=float(temperature),
        seed=seed,
        threads=int(threads),
        samples=DEFAULT_SAMPLES if mode == SAMPLED else None,
        all_logits=naive,
        with_peer=peer,
    )
