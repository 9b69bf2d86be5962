"""The plain questions of the prompt-caching page, and what the answers make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from typing import Any

import streamlit as st

from kvcore.costs.estimate import ModelChoice
from kvcore.costs.prices import Contract, PriceError, listed
from kvcore.costs.workload import (
    COMPACTION,
    MODEL_SWITCH,
    TOOLS_CHANGED,
    Event,
    Workload,
    WorkloadError,
)
from pages.common.page import refuse
from pages.common.query import Choice, Number, Rule, Switch, Text, check

PREFIX = "prompt_caching_"
MAIN = "anthropic/claude-sonnet-5"
COMPARED = ["openai/gpt-5.6-sol", "google/gemini-3.8-flash"]
PROVIDERS = (
    "anthropic",
    "openai",
    "google",
    "aws",
    "azure",
    "deepseek",
    "x-ai",
    "mistral",
    "moonshotai",
    "groq",
    "fireworks",
    "together",
    "zai",
    "minimax",
)
MOST_COMPARED = 5

ARRIVALS = {
    "At random": "poisson",
    "On a fixed schedule": "schedule",
    "As in the uploaded export": "recorded",
}
KEPT = f"{PREFIX}kept"
"""Where the session keeps what was read from an upload."""

ANYWHERE, STANDARD = "anywhere", "standard"
REGIONS = (ANYWHERE, "us", "eu", "regional")
TIERS = (STANDARD, "flex", "priority")
SPEEDS = (STANDARD, "fast")

BOUNDS: dict[str, tuple[float, float]] = {
    "prefix_tokens": (0, 2_000_000),
    "changing_tokens": (0, 1_000_000),
    "answer_tokens": (0, 200_000),
    "requests_per_hour": (0.01, 10_000_000),
    "hours_per_day": (0.25, 24),
    "days_per_month": (1, 31),
    "turns": (1, 500),
    "seconds_between_turns": (0, 86_400),
    "calls_per_turn": (1, 200),
    "seconds_between_calls": (0, 86_400),
    "prefixes": (1, 1_000_000),
    "parallel": (1, 10_000),
    "compaction_at": (0, 2_000),
    "switch_at": (0, 2_000),
    "tools_at": (0, 2_000),
}
WHOLE = {name for name in BOUNDS if not name.startswith(("requests", "hours", "seconds", "days"))}

DEFAULTS: dict[str, Any] = {
    "prefix_tokens": 6_000,
    "changing_tokens": 400,
    "answer_tokens": 500,
    "requests_per_hour": 120.0,
    "hours_per_day": 10.0,
    "days_per_month": 22.0,
    "turns": 1,
    "seconds_between_turns": 60.0,
    "calls_per_turn": 1,
    "seconds_between_calls": 8.0,
    "prefixes": 1,
    "parallel": 1,
    "compaction_at": 0,
    "switch_at": 0,
    "tools_at": 0,
    "arrivals": "At random",
    "uneven": False,
    "unstable_top": False,
    "send_one_first": False,
    "batch": False,
}

PRESETS: dict[str, dict[str, Any]] = {
    "Support assistant": {},
    "Long chats": {"prefix_tokens": 3_000, "changing_tokens": 200, "turns": 12},
    "Coding agent": {
        "prefix_tokens": 20_000,
        "changing_tokens": 1_500,
        "answer_tokens": 600,
        "requests_per_hour": 600.0,
        "turns": 5,
        "calls_per_turn": 12,
        "seconds_between_turns": 180.0,
        "prefixes": 20,
    },
    "Nightly job": {
        "prefix_tokens": 2_500,
        "changing_tokens": 800,
        "answer_tokens": 150,
        "requests_per_hour": 2_000.0,
        "hours_per_day": 2.0,
        "parallel": 50,
    },
    "One per customer": {"prefix_tokens": 8_000, "requests_per_hour": 300.0, "prefixes": 400},
    "Rare one-shots": {"prefix_tokens": 4_000, "requests_per_hour": 2.0},
}


@dataclass(frozen=True)
class Answers:
    """What was asked for: the model, those beside it, the traffic, the day of the prices."""

    main: ModelChoice
    compared: tuple[ModelChoice, ...]
    workload: Workload
    day: date | None

    @property
    def choices(self) -> tuple[ModelChoice, ...]:
        return (self.main, *self.compared)


@lru_cache(maxsize=1)
def model_names() -> tuple[str, ...]:
    """Models whose price list has a price for cached input, by provider."""
    priced = [m for m in listed() if m.has_read_price and not m.deprecated]
    return tuple(
        f"{m.provider}/{m.model}"
        for provider in PROVIDERS
        for m in priced
        if m.provider == provider
    )


@lru_cache(maxsize=512)
def choice_of(name: str) -> ModelChoice:
    """`provider/model`, or a model's name alone as someone typed it."""
    provider, slash, model = name.strip().partition("/")
    known = {m.provider for m in listed()}
    return (
        ModelChoice(model, provider) if slash and provider in known else ModelChoice(name.strip())
    )


LINK: dict[str, Rule] = {
    f"{PREFIX}{name}": rule
    for name, rule in {
        **{name: Number(low, high, whole=name in WHOLE) for name, (low, high) in BOUNDS.items()},
        **{name: Switch() for name, v in DEFAULTS.items() if v is False},
        "arrivals": Choice(tuple(ARRIVALS)),
        "model": Text(120),
        "tier": Choice(TIERS),
        "speed": Choice(SPEEDS),
        "geo": Choice(REGIONS),
    }.items()
}
"""What a setting of the link may be."""


def check_link() -> None:
    """Say which settings of the link cannot be used."""
    check(LINK)


def ask_models() -> tuple[str, list[str]]:
    """The model the page is about, and those to set beside it."""
    left, right = st.columns([2, 3])
    main = left.selectbox(
        "Model",
        model_names(),
        index=model_names().index(MAIN),
        key=f"{PREFIX}model",
        accept_new_options=True,
        persist_state="session",
        bind="query-params",
        help="As provider/model. Any model of the price list can be typed.",
    )
    compared = right.multiselect(
        "Compare with",
        model_names(),
        default=COMPARED,
        key=f"{PREFIX}compare",
        accept_new_options=True,
        max_selections=MOST_COMPARED,
        persist_state="session",
        bind="query-params",
        help="The same traffic priced on other models.",
    )
    return main or MAIN, [name for name in compared if name != main]


def ask_preset() -> None:
    st.pills(
        "Start from",
        list(PRESETS),
        key=f"{PREFIX}preset",
        on_change=_use_preset,
        persist_state="session",
        help="Fills in the questions below with the numbers of a typical use.",
    )


def _use_preset() -> None:
    preset = PRESETS.get(st.session_state.get(f"{PREFIX}preset") or "")
    if preset is None:
        return
    for name, value in {**DEFAULTS, **preset}.items():
        st.session_state[f"{PREFIX}{name}"] = value


def ask_traffic() -> dict[str, Any]:
    """The questions about requests, how often they come, and how they belong together."""
    given: dict[str, Any] = {}
    st.markdown("**What one request holds**")
    given |= _row(
        (
            "prefix_tokens",
            "Stable prefix (tokens)",
            500,
            "Instructions, tools, documents: what is the same every time and stands first.",
        ),
        ("changing_tokens", "Changing part (tokens)", 100, "The question, or a turn of the user."),
        (
            "answer_tokens",
            "Answer (tokens)",
            100,
            "What the model writes. No cache touches its price.",
        ),
    )
    st.markdown("**How often**")
    given |= _row(
        (
            "requests_per_hour",
            "Requests an hour",
            10.0,
            "All API requests in a working hour, later turns of chats included.",
        ),
        (
            "hours_per_day",
            "Hours a day",
            1.0,
            "Working hours. Each morning starts with a cold cache.",
        ),
        ("days_per_month", "Days a month", 1.0, "Working days a month."),
    )
    st.markdown("**What belongs together**")
    given |= _row(
        (
            "prefixes",
            "Different prefixes",
            1,
            "One for all, one per customer, one per user: each has a cache of its own.",
        ),
        (
            "turns",
            "Turns in a chat",
            1,
            "1 for single questions. Each turn sends everything before it again.",
        ),
        (
            "calls_per_turn",
            "Calls in a turn",
            1,
            "More than 1 for agents that call the model in a loop.",
        ),
    )
    with st.expander("Pauses, bursts and accidents"):
        given |= _row(
            (
                "seconds_between_turns",
                "Pause between turns (s)",
                10.0,
                "How long a person takes to answer.",
            ),
            (
                "seconds_between_calls",
                "Pause between calls (s)",
                1.0,
                "How long a tool takes in an agent's loop.",
            ),
            (
                "parallel",
                "Calls at once",
                1,
                "Calls that start together cannot read what the others write.",
            ),
        )
        come = st.segmented_control(
            "Requests come",
            list(ARRIVALS),
            default="At random",
            required=True,
            key=f"{PREFIX}arrivals",
            bind="query-params",
            persist_state="session",
            help="A schedule with gaps just over the lifetime never hits. Recorded arrivals are "
            "replayed from the requests of an export uploaded below.",
        )
        given["arrivals"] = ARRIVALS[come]
        given |= _ticks()
        st.caption("An event before this call of a conversation breaks its cache; 0 for never.")
        given |= _row(
            (
                "compaction_at",
                "Compaction",
                1,
                "The history is replaced by a summary of 1,000 tokens.",
            ),
            ("switch_at", "Another model", 1, "Caches belong to one model: everything is lost."),
            ("tools_at", "Other tools", 1, "Tools stand first in the prompt: everything is lost."),
        )
    return given


def _row(*questions: tuple[str, str, float, str]) -> dict[str, Any]:
    given = {}
    row = st.container(horizontal=True, gap="xsmall", vertical_alignment="bottom")
    for name, label, step, why in questions:
        kind = int if name in WHOLE else float
        low, high = BOUNDS[name]
        given[name] = row.number_input(
            label,
            min_value=kind(low),
            max_value=kind(high),
            value=kind(DEFAULTS[name]),
            step=kind(step),
            format="%d" if kind is int else "%g",
            key=f"{PREFIX}{name}",
            bind="query-params",
            persist_state="session",
            help=why,
        )
    return given


def _ticks() -> dict[str, bool]:
    questions = {
        "unstable_top": (
            "Something at the top changes every time",
            "A timestamp, an id or a name in the first lines: nothing after it can be shared.",
        ),
        "uneven": (
            "Some prefixes are used far more than others",
            "By Zipf's law instead of evenly.",
        ),
        "send_one_first": (
            "Of calls at once, one is sent first",
            "The others start once it has begun to answer, and read what it wrote.",
        ),
        "batch": (
            "Sent through the batch interface",
            "Half the price at most providers; items of one batch never read each other's writes.",
        ),
    }
    return {
        name: st.checkbox(
            label,
            key=f"{PREFIX}{name}",
            bind="query-params",
            persist_state="session",
            help=why,
        )
        for name, (label, why) in questions.items()
    }


@dataclass(frozen=True)
class Terms:
    """How the first model is called and priced, where that is not the usual way."""

    day: date | None
    contract: Contract | None
    service_tier: str | None
    speed: str | None
    geo: str | None


def ask_terms() -> Terms:
    """The day whose list prices hold, how the models are called, and negotiated prices."""
    with st.expander("Another day's prices, a region, or a contract"):
        day = st.date_input(
            "List prices of",
            value=None,
            key=f"{PREFIX}day",
            min_value=date(2023, 1, 1),
            max_value=date(2028, 12, 31),
            bind="query-params",
            persist_state="session",
            help="Past prices and announced ones count. Empty for today's.",
        )
        row = st.container(horizontal=True, gap="xsmall", vertical_alignment="bottom")
        called = [
            row.selectbox(
                label,
                options,
                key=f"{PREFIX}{name}",
                bind="query-params",
                persist_state="session",
                help=why,
            )
            for name, label, options, why in (
                ("tier", "Service tier", TIERS, "As the provider names it."),
                ("speed", "Speed", SPEEDS, "Fast modes multiply every price."),
                ("geo", "Processed in", REGIONS, "Regions may cost a tenth more."),
            )
        ]
        st.caption(
            "A contract replaces the list price of the first model. Dollars per million tokens; "
            "what is left empty costs what fresh input costs."
        )
        names = {
            "fresh": "Input",
            "output": "Output",
            "cache_read": "Read",
            "cache_write_short": "Short write",
            "cache_write_long": "Long write",
            "storage": "Held, per hour",
        }
        typed = {}
        for start in (0, 3):
            row = st.container(horizontal=True, gap="xsmall", vertical_alignment="bottom")
            for name in list(names)[start : start + 3]:
                typed[name] = row.text_input(
                    names[name],
                    key=f"{PREFIX}contract_{name}",
                    max_chars=20,
                    persist_state="session",
                    help="Dollars per million tokens, such as 2.50. Not part of the link.",
                )
        tier, speed, geo = (None if v in (STANDARD, ANYWHERE) else v for v in called)
        return Terms(day, _contract(typed), tier, speed, geo)


def _contract(typed: Mapping[str, str]) -> Contract | None:
    if not any(value.strip() for value in typed.values()):
        return None
    if not typed["fresh"].strip() or not typed["output"].strip():
        refuse("A contract needs at least the prices of input and output. The list price is used.")
        return None
    try:
        return Contract.parse(**typed)
    except PriceError as problem:
        st.error("A contract price could not be read, so the list price is used.")
        st.text(str(problem))
        return None


def answers(
    main: str,
    compared: list[str],
    given: Mapping[str, Any],
    terms: Terms,
) -> Answers | None:
    """The answers as one, or None after a sentence on what cannot be."""
    given = dict(given)
    moments = {
        COMPACTION: given.pop("compaction_at"),
        MODEL_SWITCH: given.pop("switch_at"),
        TOOLS_CHANGED: given.pop("tools_at"),
    }
    events = tuple(Event(call, kind) for kind, call in moments.items() if call)
    recorded: tuple[float, ...] = ()
    sessions: tuple[str, ...] = ()
    if given["arrivals"] == "recorded":
        kept = st.session_state.get(KEPT)
        recorded, sessions = kept.arrivals if kept is not None else ((), ())
        if len(recorded) < 2:
            refuse(
                "There are no recorded arrivals: upload an export with single requests and their "
                "times under Your own usage. Until then requests come at random."
            )
            given["arrivals"] = "poisson"
    try:
        workload = Workload(**given, events=events, recorded=recorded, recorded_prefixes=sessions)
    except WorkloadError as problem:
        refuse(str(problem))
        return None
    called = {"service_tier": terms.service_tier, "speed": terms.speed, "geo": terms.geo}
    return Answers(
        replace(choice_of(main), contract=terms.contract, **called),
        tuple(replace(choice_of(name), **called) for name in compared),
        workload,
        terms.day,
    )
