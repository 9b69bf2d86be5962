"""What to measure, and what that will send."""

from __future__ import annotations

import streamlit as st

from kvcore import units
from kvcore.serving import (
    EarlyChange,
    ExperimentError,
    FirstToken,
    Plan,
    ServedModel,
    TokenTime,
    plan,
)
from kvcore.serving.experiments import Experiment
from kvcore.serving.recorded import EARLY_CHANGE, FIRST_TOKEN
from pages.common.page import refuse
from pages.common.query import Named, Number, Several
from pages.common.text import as_text
from pages.serving.connect import Found

LENGTHS = [100, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000]
LEVELS = [1, 2, 4, 8, 16, 32]
PRESETS = {
    "Quick": ([250, 500, 1_000], 2, 500, [250, 500], [1, 2, 4], 16),
    "Usual": ([250, 500, 1_000, 2_000], 3, 1_000, [250, 1_000, 2_000], [1, 2, 4, 8], 32),
    "Long": ([1_000, 4_000, 16_000], 3, 8_000, [1_000, 8_000], [1, 4, 16], 64),
}
RULES = {
    "server_repeats": Number(1, 20),
    "server_length": Named({length: units.count(length) for length in LENGTHS}),
    "server_output": Number(4, 1_024),
    "server_patience": Number(5, 1_800),
    "server_lengths": Several(tuple(units.count(length) for length in LENGTHS)),
    "server_contexts": Several(tuple(units.count(length) for length in LENGTHS)),
    "server_levels": Several(tuple(str(level) for level in LEVELS)),
}


def apply_preset() -> None:
    chosen = st.session_state.server_preset
    if not chosen:
        return
    lengths, repeats, length, contexts, levels, output = PRESETS[chosen]
    st.session_state.server_lengths = lengths
    st.session_state.server_repeats = repeats
    st.session_state.server_length = length
    st.session_state.server_contexts = contexts
    st.session_state.server_levels = levels
    st.session_state.server_output = output


def choose(kind: str) -> Experiment:
    """The controls of one experiment, presets first."""
    st.pills(
        "Presets",
        list(PRESETS),
        key="server_preset",
        on_change=apply_preset,
        help="Sets lengths, repeats and load of all experiments.",
    )
    if kind == FIRST_TOKEN:
        lengths = _lengths("Prompt lengths (tokens)", "server_lengths", PRESETS["Usual"][0])
        return FirstToken(tuple(lengths), _repeats())
    if kind == EARLY_CHANGE:
        length = st.select_slider(
            "Length of the prefix (tokens)",
            LENGTHS,
            1_000,
            format_func=units.count,
            key="server_length",
            bind="query-params",
            help="The longer, the more is lost with one early character.",
        )
        return EarlyChange(length, _repeats())
    contexts = _lengths("Context lengths (tokens)", "server_contexts", PRESETS["Usual"][3])
    levels = st.multiselect(
        "Requests at once",
        LEVELS,
        PRESETS["Usual"][4],
        key="server_levels",
        bind="query-params",
        help="Sent together, each with a prompt of its own, as many as chosen.",
    )
    output = st.number_input(
        "Output tokens of each",
        4,
        1_024,
        32,
        key="server_output",
        bind="query-params",
        help="More make the time per token steadier, and cost more.",
    )
    return TokenTime(tuple(contexts), tuple(levels), int(output), _repeats(2))


def patience() -> float:
    """The longest silence that is waited for."""
    return st.number_input(
        "Longest wait for a token (s)",
        5,
        1_800,
        120,
        key="server_patience",
        bind="query-params",
        help="A request that stays silent for longer is given up.",
    )


def tell_plan(
    experiment: Experiment, found: Found | None, model: ServedModel | None
) -> Plan | None:
    """What will be sent, in a sentence; None where it cannot be."""
    public = found is not None and found.target.is_public
    try:
        priced = (model.name, found.target.url) if public and model else (None, "")
        agreed = plan(experiment, *priced)
    except ExperimentError as problem:
        refuse(as_text(problem, 300))
        return None
    st.markdown(
        f"**{agreed.requests:,} requests, about {agreed.prompt_tokens:,} tokens in and "
        f"{agreed.output_tokens:,} out.** It ends at {agreed.most_requests:,} requests or "
        f"{agreed.most_tokens:,} tokens, whatever happens."
    )
    st.markdown(_price(agreed, found, public))
    return agreed


def _price(agreed: Plan, found: Found | None, public: bool) -> str:
    if found is None:
        return "What it costs is said once a server is connected."
    if not public:
        return "On your own network: no price a token is charged for."
    if agreed.dollars is None:
        return "No list price is known for this model: look it up before you start."
    return (
        f"About {units.dollars(agreed.dollars)} at list prices without caching "
        f"({as_text(agreed.priced_as)}), at most {units.dollars(agreed.most_dollars)}."
    )


def _lengths(label: str, key: str, default: list[int]) -> list[int]:
    return st.multiselect(
        label,
        LENGTHS,
        default,
        format_func=units.count,
        key=key,
        bind="query-params",
        help="Aimed at in words; the pictures use what the server counts.",
    )


def _repeats(default: int = 3) -> int:
    number = st.number_input(
        "Repeats",
        1,
        20,
        default,
        key="server_repeats",
        bind="query-params",
        help="Each repeat uses prefixes never seen before; the spread comes from them.",
    )
    return int(number)
