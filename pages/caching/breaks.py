"""What breaks my cache: two prompts, the first place they differ, and what mending it is worth."""

from __future__ import annotations

import streamlit as st

from kvcore import units
from kvcore.costs.diagnosis import Diagnosis, diagnose, worth_a_month
from kvcore.costs.prices import PriceError
from kvcore.costs.tokens import LARGEST_TEXT, TextTooLong
from pages.caching.questions import PREFIX, Answers
from pages.common.page import refuse
from pages.common.text import as_text


def show(asked: Answers | None) -> None:
    st.markdown(
        "Paste two consecutive prompts, or the JSON bodies of two requests. They are compared "
        "here, kept in this session only, and never part of the link."
    )
    left, right = st.columns(2)
    first = _area(left, "First prompt", "first")
    second = _area(right, "Second prompt", "second")
    if not first or not second:
        st.caption("Both fields are needed; the result appears when you leave the second one.")
        return
    choice = asked.main if asked else None
    try:
        found = diagnose(
            first,
            second,
            model=choice.model if choice else None,
            provider=choice.provider if choice else None,
        )
    except TextTooLong as problem:
        refuse(str(problem))
        return
    except PriceError:
        found = diagnose(first, second)
        choice = None
    _say(found)
    _where(found)
    _fix(found, asked if choice else None)
    st.caption(as_text(found.counter.sentence, 400))


def _area(column: st.delta_generator.DeltaGenerator, label: str, name: str) -> str:
    return column.text_area(
        label,
        key=f"{PREFIX}text_{name}",
        height=220,
        max_chars=LARGEST_TEXT,
        persist_state="session",
        help="Plain text, or a request body with tools, system and messages.",
    )


def _say(found: Diagnosis) -> None:
    st.subheader(as_text(found.sentence, 600), anchor=False)
    columns = st.columns(3)
    columns[0].metric("Shared at the start", f"{found.shared_tokens:,} tokens")
    minimum = found.minimum_tokens
    columns[1].metric(
        "The provider's minimum",
        "not known" if minimum is None else f"{minimum:,} tokens",
        help="Below it nothing is cached and no error says so.",
    )
    if found.over_minimum is not None:
        columns[2].metric(
            "Of it cached",
            f"{found.cacheable_tokens:,} tokens" if found.over_minimum else "nothing",
        )


def _where(found: Diagnosis) -> None:
    if not found.breaks:
        return
    left, right = st.columns(2)
    for column, label, excerpt in (
        (left, "The first prompt, from just before the difference", found.first_excerpt),
        (right, "The second", found.second_excerpt),
    ):
        column.caption(label)
        column.code(excerpt or "(it ends here)", language=None, wrap_lines=True)


def _fix(found: Diagnosis, asked: Answers | None) -> None:
    if not found.breaks:
        return
    for cause in found.causes:
        st.markdown(f"- {as_text(cause.sentence, 400)} {as_text(cause.fix, 400)}")
    if found.fixed_tokens is None:
        return
    shared = f"Mended, {found.fixed_tokens:,} of {found.second_tokens:,} tokens would be shared"
    if asked is None:
        st.markdown(as_text(f"{shared}."))
        return
    worth = worth_a_month(found, asked.main, asked.workload, at=asked.day)
    st.markdown(
        as_text(
            f"{shared}; at {asked.workload.requests_per_hour:,g} requests an hour that is worth "
            f"{units.dollars(worth)} a month.",
            300,
        )
    )
