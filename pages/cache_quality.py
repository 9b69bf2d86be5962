"""What windows, sinks, heavy hitters and few bits cost a real model, measured."""

from pages.common.entry import through_app

through_app()

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvcore import recordings
from kvcore.charts.cache_quality import MEASURES
from kvcore.jobs import State
from kvcore.quality import Plan, TextError
from pages.common import query
from pages.common.jobs import Slot, progress, session_job
from pages.common.page import export_row, header, refuse, share_link, sources
from pages.quality import controls as asking
from pages.quality import results
from pages.quality.results import Outcome
from pages.quality.runs import measuring, outcome_of, recorded

RECALL, GONE, ARITHMETIC, HOW, EXPORT = TABS = (
    "Recall by place",
    "It is gone",
    "Arithmetic",
    "How it is measured",
    "Export and link",
)


@st.fragment
def controls(tab: str | None, place: DeltaGenerator | None) -> None:
    """What the next run measures and its start; moving a setting leaves the results alone.

    place: in the open tab, for what follows from the settings.
    """
    slot = session_job("cache_quality")
    name = asking.choose_model()
    title = asking.choose_text()
    plan = asking.choose_plan()
    wrong = asking.problem(title, plan)
    if wrong:
        refuse(wrong)
    buttons = st.container(horizontal=True)
    begin = buttons.button(
        "Measure here",
        type="primary",
        key="cache_quality_start",
        disabled=slot.active or wrong is not None,
    )
    if buttons.button("Stop", key="cache_quality_stop", disabled=not slot.active):
        slot.stop()
        slot.job.join(10)
        st.rerun()
    done = slot.job is not None and not slot.active
    if done and buttons.button("Back to the recorded run", key="cache_quality_recorded"):
        slot.job = None
        st.rerun()
    if begin:
        start(slot, title, name, plan)
    if tab == ARITHMETIC:
        with place:
            arithmetic(plan)
    if tab == EXPORT:
        with place:
            share_link("cache_quality")


def start(slot: Slot, title: str, name: str, plan: Plan) -> None:
    try:
        text = asking.text_of(title, plan)
    except TextError as error:
        refuse(str(error))
        return
    slot.start(measuring(name, text, asking.source(title), plan))
    st.rerun()


def watch() -> None:
    """Draws what the job has appended; hands over to the whole page when it ends."""
    job = session_job("cache_quality").job
    progress(job)
    outcome = outcome_of(job)
    if outcome.scores:
        results.picture(outcome, st.session_state.cache_quality_measure)
    if outcome.recall:
        results.recall_map(outcome)
    if not job.active:
        st.rerun()


def finished(slot: Slot) -> Outcome:
    """The session's own run if it measured anything, else the recorded one."""
    job = slot.job
    if job is None:
        return recorded()
    if job.state is State.FAILED:
        progress(job)
    outcome = outcome_of(job)
    if not outcome.scores:
        if job.state is State.STOPPED:
            st.caption("Stopped before anything was measured; the recorded run is shown.")
        return recorded()
    if job.state is State.STOPPED:
        st.caption(
            f"Stopped: {len(outcome.scores)} scores and {len(outcome.recall)} answers were "
            "measured and are kept."
        )
    return outcome


def arithmetic(plan: Plan) -> None:
    data = recordings.read("cache_quality").data
    shape = (data["layers"], data["kv_heads"], data["head_dim"])
    layers, heads, dim = shape
    st.markdown(
        f"SmolLM2 keeps {layers} layers × {heads} KV heads × {dim} numbers, for keys and for "
        f"values. After {plan.tokens:,} tokens, with the treatments chosen now:"
    )
    lines = [
        f"{each.name}: {each.kept(plan.tokens):,} positions, K as {each.key_format}, V as "
        f"{each.value_format} = {each.cache_bytes(*shape, plan.tokens):,} bytes"
        for each in plan.treatments
    ]
    st.code("\n".join(lines), language=None, wrap_lines=True)
    bits = 8 * plan.treatments[0].cache_bytes(*shape, 1) / (2 * layers * heads * dim)
    st.markdown(
        f"A number takes {bits:.0f} bits in the full cache. Scales are counted: q8_0 is 8.5 bits, "
        "q4_1 5 bits, one 4-byte scale for a head of 64 makes 4 bits 4.5. Keys per channel keep "
        "the tokens of a group of 32 that is not full in 16 bits."
    )


def how() -> None:
    sources(
        [
            "Perplexity: e to the mean surprise at the text's own next token. Divergence: "
            "Kullback-Leibler from the full cache's next-token distribution, in nats. Unchanged: "
            "share of tokens whose most likely successor stays. All on the same tokens, those past "
            "the budget, with the text given (teacher-forced).",
            "The reference is the full cache in 32 bits; everything else stores 16 bits or fewer, "
            "really rounded, with the bytes of `kvcore/formats.py`.",
            "Window, and sinks + window: Xiao et al. 2023, StreamingLLM (arXiv:2309.17453). "
            "Positions stay as they were in the text; within the trained length renumbering them "
            "makes no difference here. Heavy hitters: Zhang et al. 2023, H2O (arXiv:2306.14048), "
            "for each layer and KV head by itself. Keys per channel: Liu et al. 2024, KIVI "
            "(arXiv:2402.02750).",
            "A forgotten position is hidden from every later query rather than moved away; the "
            "project's tests hold that against a cache from which it is really taken.",
            "Recall: three facts a text, early, in the middle and late, each asked for from the "
            "same cache; the model answers greedily.",
            "The text is `pydoc_data/topics.py` of Python's standard library (PSF License), or "
            "yours. One model of 135 million parameters and a few texts show the effects; they do "
            "not settle their size for other models.",
        ]
    )


def export(outcome: Outcome) -> None:
    st.caption("Scores")
    settings = {"made": outcome.made}
    export_row("cache_quality_scores", lambda: pd.DataFrame(outcome.scores), settings)
    if outcome.recall:
        st.caption("Questions and answers")
        export_row("cache_quality_recall", lambda: pd.DataFrame(outcome.recall), settings)


query.check(
    {
        **asking.RULES,
        "cache_quality_measure": query.Named({key: key.capitalize() for key in MEASURES}),
        "cache_quality_tab": query.Choice(TABS),
    }
)
header(
    "Cache quality",
    "A cache can be made smaller by forgetting tokens or by rounding numbers. What a real model "
    "loses each way, measured.",
)
slot = session_job("cache_quality")
answer = st.container()
asked, shown = st.columns([2, 3], gap="large")
with shown:
    st.segmented_control(
        "Measure of quality",
        list(MEASURES),
        format_func=lambda key: key.capitalize(),
        default="perplexity",
        required=True,
        key="cache_quality_measure",
        bind="query-params",
        help="How far predictions move: by the text's own words, by the whole distribution, or by "
        "the most likely next token.",
    )
    if slot.active:
        with asked:
            controls(None, None)
        st.fragment(watch, run_every=0.7)()
        st.stop()
    outcome = finished(slot)
    st.caption(outcome.made)
    results.picture(outcome, st.session_state.cache_quality_measure)

with answer:
    results.metrics(outcome)

bodies = {
    RECALL: lambda: results.recall_map(outcome),
    GONE: lambda: results.gone(outcome),
    HOW: how,
    EXPORT: lambda: export(outcome),
}
tabs = st.tabs(TABS, key="cache_quality_tab", on_change="rerun", bind="query-params")
shown_name, shown_tab = next(pair for pair in zip(TABS, tabs, strict=True) if pair[1].open)
with shown_tab:
    if shown_name in bodies:
        bodies[shown_name]()
    of_settings = st.container()
with asked:
    controls(shown_name, of_settings)
