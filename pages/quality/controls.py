"""What to measure: model, text, budget, treatments."""

from __future__ import annotations

import streamlit as st

from kvcore.decoding.known import KNOWN, offered
from kvcore.quality import (
    FULL,
    PYTHON_TOPICS,
    Plan,
    TextError,
    check_pasted,
    python_text,
    source_of,
    standard_treatments,
)
from pages.common import query

PASTED = "Pasted text"
TITLES = (*PYTHON_TOPICS, PASTED)
MODELS = offered(("smollm2", "gpt2", "distilgpt2"))
BUDGETS = (64, 128, 256, 512)
TOKENS = (512, 768, 1000, 1536, 2000)
RECALL_TOKENS = (400, 800)

KINDS = (
    "Window",
    "Sinks + window",
    "Heavy hitters",
    "8 bits",
    "K 8 bits, V 4 bits",
    "K 4 bits, V 8 bits",
    "4 bits in groups of 32",
    "4 bits, keys per channel",
    "4 bits, one scale per head",
)
"""The standard treatments after the full cache, in order, by names that no budget changes."""

DEFAULT_KINDS = (
    "Window",
    "Sinks + window",
    "Heavy hitters",
    "8 bits",
    "4 bits in groups of 32",
    "4 bits, one scale per head",
)

RULES = {
    "cache_quality_model": query.Named({name: KNOWN[name].title for name in MODELS}),
    "cache_quality_text": query.Choice(TITLES),
    "cache_quality_budget": query.Choice(tuple(str(budget) for budget in BUDGETS)),
    "cache_quality_sinks": query.Number(1, 16),
    "cache_quality_kinds": query.Several(KINDS),
    "cache_quality_tokens": query.Choice(tuple(str(count) for count in TOKENS)),
    "cache_quality_recall": query.Choice(tuple(str(count) for count in RECALL_TOKENS)),
    "cache_quality_texts": query.Number(1, 4),
}


def choose_model() -> str:
    return st.selectbox(
        "Model",
        MODELS,
        format_func=lambda name: KNOWN[name].title,
        key="cache_quality_model",
        bind="query-params",
        help="SmolLM2 works without a network where its package is installed; GPT-2 comes from "
        "the hub.",
    )


def choose_text() -> str:
    """The title of the text; a box for pasting appears with the last one."""
    title = st.selectbox(
        "Text",
        TITLES,
        key="cache_quality_text",
        bind="query-params",
        help="Pages of the Python reference that ship with Python, or a text of your own.",
    )
    if title == PASTED:
        st.text_area(
            "Your text",
            key="cache_quality_pasted",
            height=180,
            persist_state="session",
            help="A few pages of English. It stays on this server and is not part of the link.",
        )
    return title


def choose_plan() -> Plan:
    row = st.columns(2)
    budget = row[0].selectbox(
        "Budget (tokens)",
        BUDGETS,
        BUDGETS.index(256),
        key="cache_quality_budget",
        bind="query-params",
        help="What a cache that forgets may hold: the window, sinks and window, or heavy hitters "
        "and recent ones, together.",
    )
    sinks = row[1].number_input(
        "Sinks among them",
        1,
        16,
        4,
        key="cache_quality_sinks",
        bind="query-params",
        help="First tokens that always stay; StreamingLLM keeps 4.",
    )
    kinds = st.multiselect(
        "Measure, beside the full cache",
        KINDS,
        default=list(DEFAULT_KINDS),
        key="cache_quality_kinds",
        bind="query-params",
        help="Each costs one pass over the text and one over each text with hidden facts.",
    )
    row = st.columns(3)
    tokens = row[0].selectbox(
        "Tokens scored",
        TOKENS,
        TOKENS.index(1000),
        key="cache_quality_tokens",
        bind="query-params",
        help="Length of the text for perplexity. Only tokens past the budget count.",
    )
    recall_tokens = row[1].selectbox(
        "Tokens for recall",
        RECALL_TOKENS,
        RECALL_TOKENS.index(800),
        key="cache_quality_recall",
        bind="query-params",
        help="Length of each text in which facts are hidden.",
    )
    texts = row[2].number_input(
        "Texts for recall",
        1,
        4,
        1,
        key="cache_quality_texts",
        bind="query-params",
        help="Each has its seed: other facts, other filler, three questions.",
    )
    return Plan(names_of(kinds, budget, sinks), budget, sinks, tokens, recall_tokens, texts)


def names_of(kinds: list[str], budget: int, sinks: int) -> tuple[str, ...]:
    """The names of the chosen treatments under this budget."""
    named = dict(zip(KINDS, standard_treatments(budget, sinks)[1:], strict=True))
    return (FULL.name, *(named[kind].name for kind in KINDS if kind in kinds))


def text_of(title: str, plan: Plan) -> str:
    """The text to measure on. Raises TextError, in one sentence, where there is none."""
    if title == PASTED:
        return check_pasted(st.session_state.get("cache_quality_pasted", ""), plan.least_tokens)
    return python_text(title)


def source(title: str) -> str:
    return "a pasted text" if title == PASTED else source_of(title)


def problem(title: str, plan: Plan) -> str | None:
    """What is wrong with the choice, or None. An empty box says nothing until Start."""
    if plan.tokens < plan.least_tokens:
        return (
            f"{plan.tokens:,} tokens are too few beside a budget of {plan.budget}; at least "
            f"{plan.least_tokens} are needed. Score more tokens or lower the budget."
        )
    if title == PASTED and not st.session_state.get("cache_quality_pasted", "").strip():
        return None
    try:
        text_of(title, plan)
    except TextError as error:
        return str(error)
    return None
