"""How much memory a KV cache takes, and how many users fit beside a model's weights."""

from pages.common.entry import through_app

through_app()

import streamlit as st

from kvcore.catalog import MODELS
from pages.calculator_parts import answer, engine, hardware, model, tabs
from pages.common import query
from pages.common.page import header


@st.fragment
def calculator() -> None:
    """All that is asked and answered: a fragment, so that a slider leaves the menu alone."""
    figures = st.container()
    asked, shown = st.columns([2, 3], gap="large")

    with asked:
        source = model.choose_source()
        subject = model.choose_subject(source)
        if subject is None:
            return
        request = hardware.choose_request(source)
        place = hardware.choose_hardware(subject, request, source)
        use = hardware.choose_use()

    with figures:
        users = answer.metrics(subject, request, place)
        answer.notes(subject.architecture)

    with shown:
        compared = st.multiselect(
            "Compare with",
            list(MODELS),
            max_selections=3,
            key="calculator_compare",
            bind="query-params",
            help="Up to three more models in the same picture.",
        )
        others = [model.named(name) for name in compared if name != subject.name]
        subjects = [subject, *others]
        longest = max(128_000, request.tokens)
        answer.pictures(subjects, request, place, users, longest, use.shared_prefix)

    tabs.show(tabs.Shown(subject, subjects, request, place, use, users, longest))


query.check(
    {
        "calculator_source": query.Choice(model.SOURCES),
        "calculator_layers": query.Number(8, 128),
        "calculator_kv_heads": query.Number(1, 64),
        "calculator_head_dim": query.Number(32, 256),
        "calculator_context": query.Number(1_000, 128_000),
        "calculator_precision": query.Choice(tuple(hardware.PRECISION)),
        "calculator_model": query.Choice(tuple(MODELS)),
        "calculator_tokens": query.Number(1, hardware.LONGEST),
        "calculator_format": query.Named(hardware.FORMAT_NAMES),
        "calculator_gpu": query.Choice(hardware.GPU_NAMES),
        "calculator_memory": query.Number(0, 10_000, whole=False),
        "calculator_weights": query.Number(0, 10_000, whole=False),
        "calculator_weights_dtype": query.Named(hardware.WEIGHT_NAMES),
        "calculator_weights_gib": query.Number(0, 100_000, whole=False),
        "calculator_overhead": query.Number(0, 1_000, whole=False),
        "calculator_tp": query.Choice(tuple(str(ranks) for ranks in hardware.RANKS)),
        "calculator_pp": query.Number(1, 64),
        "calculator_dp": query.Number(1, 1_024),
        "calculator_compare": query.Several(tuple(MODELS)),
        "calculator_engine": query.Choice(engine.ENGINES),
        "calculator_version": query.Choice(engine.VERSIONS),
        "calculator_batched": query.Number(1, 1_000_000),
        "calculator_drafts": query.Number(0, engine.MOST_DRAFTS),
        "calculator_batches": query.Number(1, engine.MOST_BATCHES),
        "calculator_slots": query.Number(1, 1_024),
        "calculator_prompt": query.Number(1, hardware.LONGEST),
        "calculator_reply": query.Number(1, hardware.LONGEST),
        "calculator_prefix": query.Number(0, hardware.LONGEST),
        "calculator_state_slots": query.Number(1, 1_000_000),
        "calculator_tab": query.Choice(tabs.TABS),
        "calculator_log": query.Switch(),
        "calculator_assume": query.Switch(),
        "calculator_prefix_caching": query.Switch(),
    }
)

header(
    "Memory calculator",
    "How much memory a model's KV cache takes, and how many users fit beside the weights.",
)

calculator()
