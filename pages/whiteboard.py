"""Questions to answer with a marker, the checklist, words and sources."""

from pages.common.entry import through_app

through_app()

import streamlit as st

from kvcore import units
from kvcore.quantity import EXAMPLES, QuantityError
from kvcore.whiteboard import CHECKLIST, GLOSSARY, QUESTIONS, SOURCES, Check, Question
from pages.common.links import lab
from pages.common.page import header, share_link
from pages.common.query import Choice, Rule, Switch, Text, check

MARKS = ("Got it", "Partly", "Missed")
CITED = "\n\n".join(
    f"**{source.who}.** {source.title}. {source.where}. Cited for {source.cited_for}."
    for source in SOURCES
)


def rules() -> dict[str, Rule]:
    marks = {f"whiteboard_mark_{question.key}": Choice(MARKS) for question in QUESTIONS}
    typed = {f"whiteboard_typed_{question.key}": Text(60) for question in QUESTIONS}
    ticks = {f"whiteboard_tick_{each.key}": Switch() for each in CHECKLIST}
    return {**marks, **typed, **ticks}


def ask(number: int, question: Question) -> None:
    with st.container(border=True):
        st.markdown(f"**{number}. {question.asks}**")
        if question.answer is not None:
            judge_typed(question)
        if st.toggle(
            "Show what a good answer says",
            key=f"whiteboard_reveal_{question.key}",
            persist_state="session",
        ):
            st.markdown("\n".join(f"- {point}" for point in question.points))
            if question.arithmetic:
                st.code(question.arithmetic, language=None, wrap_lines=True)
            lab(question.page)
        st.segmented_control(
            "How did you do?",
            MARKS,
            key=f"whiteboard_mark_{question.key}",
            help="Your own verdict; it is kept in this session and in the address of the page.",
            bind="query-params",
            persist_state="session",
        )


@st.fragment
def judge_typed(question: Question) -> None:
    """A fragment: nothing else on the page depends on what is typed here."""
    typed = st.text_input(
        "Your number, with its unit",
        max_chars=60,
        key=f"whiteboard_typed_{question.key}",
        placeholder=f"for example {EXAMPLES[question.answer.kind]}",
        help="Checked as you press Enter; anything close enough counts.",
        bind="query-params",
        persist_state="session",
    )
    if not typed:
        return
    try:
        right = question.answer.accepts(typed)
    except QuantityError as error:
        st.warning(str(error))
        return
    if right:
        st.success(f"Right. {question.arithmetic}", icon=":material/check:")
    else:
        st.error("Not yet. Write the product down factor by factor.", icon=":material/close:")


def tick(each: Check) -> None:
    with st.container(border=True):
        st.checkbox(
            each.do,
            key=f"whiteboard_tick_{each.key}",
            help=each.because,
            bind="query-params",
            persist_state="session",
        )
        st.caption(each.because)
        lab(each.page)


def words() -> None:
    st.dataframe(
        {"Word": [term.name for term in GLOSSARY], "Meaning": [term.means for term in GLOSSARY]},
        hide_index=True,
        row_height=70,
        height=len(GLOSSARY) * 70 + 40,
        column_config={
            "Word": st.column_config.TextColumn(width="small"),
            "Meaning": st.column_config.TextColumn(width="large"),
        },
    )


def count_of(prefix: str, wanted: object) -> int:
    return sum(
        value == wanted for key, value in st.session_state.items() if str(key).startswith(prefix)
    )


header(
    "Whiteboard",
    "Take a marker and answer aloud. Then reveal what a good answer says, and mark yourself.",
)
check(rules())

score = st.container(horizontal=True)
questions, checklist, glossary, sources = st.tabs(
    ["Questions", "Checklist", "Glossary", "Sources"],
    key="whiteboard_tab",
    bind="query-params",
    on_change="rerun",
)

with questions:
    for number, question in enumerate(QUESTIONS, start=1):
        ask(number, question)

with checklist:
    st.markdown("What to do before a model serves people, each with the page that measures it.")
    for each in CHECKLIST:
        tick(each)

if glossary.open:
    with glossary:
        words()

if sources.open:
    with sources:
        st.markdown(CITED)
        share_link("whiteboard")

got = count_of("whiteboard_mark_", "Got it")
partly = count_of("whiteboard_mark_", "Partly")
ticked = count_of("whiteboard_tick_", True)
score.metric("Questions you have down", f"{got} of {len(QUESTIONS)}", border=True)
score.metric("Half-way", units.count(partly), border=True)
score.metric("Checklist done", f"{ticked} of {len(CHECKLIST)}", border=True)
