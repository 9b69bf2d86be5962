"""Which requests: their lengths, how many, when they arrive."""

from __future__ import annotations

import streamlit as st

from kvcore import units
from kvcore.paging.scenario import (
    ALPACA,
    LOGNORMAL,
    POISSON,
    QUEUE,
    RECORDED,
    SHAREGPT,
    TRACE,
)
from kvcore.paging.traces import MAX_BYTES, Trace, TraceError, read_trace
from pages.common.page import refuse
from pages.common.query import Named, Number
from pages.common.text import as_text

SOURCES = {
    SHAREGPT: "The paper's ShareGPT lengths",
    ALPACA: "Short instructions (Alpaca's means)",
    LOGNORMAL: "Lognormal lengths of my own",
    TRACE: "A trace I upload",
}
ARRIVALS = {
    QUEUE: "All wait at the start",
    POISSON: "Poisson, at a load",
    RECORDED: "As the trace recorded them",
}
COUNTS = [500, 1_000, 2_000, 4_000, 7_200, 20_000]
RULES = {
    "paging_source": Named(SOURCES),
    "paging_count": Named({count: units.count(count) for count in COUNTS}),
    "paging_mean_prompt": Number(1, 100_000),
    "paging_mean_output": Number(1, 100_000),
    "paging_variation": Number(0, 3, whole=False),
    "paging_arrivals": Named(ARRIVALS),
    "paging_load": Number(0.1, 2, whole=False),
    "paging_pace": Number(1, 1_000),
}


def choose_source() -> str:
    return st.selectbox(
        "Lengths",
        list(SOURCES),
        format_func=SOURCES.get,
        key="paging_source",
        bind="query-params",
        help="Where the lengths of prompts and outputs come from.",
    )


def upload() -> tuple[Trace | None, str]:
    file = st.file_uploader(
        "Trace",
        key="paging_trace",
        max_upload_size=MAX_BYTES // 2**20,
        help="Azure's CSV (TIMESTAMP, ContextTokens, GeneratedTokens) or Mooncake's JSON lines; "
        "either may be gzipped.",
    )
    if file is None:
        return None, ""
    if st.session_state.get("paging_read", ("",))[0] != file.file_id:
        st.session_state.paging_read = (file.file_id, *read_or_refuse(file.getvalue()))
    file_id, trace, problem = st.session_state.paging_read
    if trace is None:
        refuse(problem)
        return None, ""
    st.caption(
        f"{as_text(file.name, 60)}: {units.count(len(trace.rows))} requests in "
        f"{trace.format}'s form over {units.seconds(trace.seconds)}, the longest of "
        f"{units.count(trace.longest)} tokens."
    )
    return trace, file_id


def read_or_refuse(data: bytes) -> tuple[Trace | None, str]:
    try:
        return read_trace(data), ""
    except TraceError as problem:
        return None, str(problem)


def lognormal_lengths() -> dict[str, float]:
    numbers = {}
    for name, label, low, high, default in (
        ("mean_prompt", "Mean prompt (tokens)", 1, 100_000, 161),
        ("mean_output", "Mean output (tokens)", 1, 100_000, 338),
    ):
        numbers[name] = st.number_input(
            label,
            low,
            high,
            default,
            key=f"paging_{name}",
            bind="query-params",
            help="Lengths are cut so that a request fits the longest the model takes.",
        )
    numbers["variation"] = st.slider(
        "Coefficient of variation",
        0.0,
        3.0,
        1.0,
        0.1,
        key="paging_variation",
        bind="query-params",
        help="Standard deviation over mean, of both lengths. ShareGPT: 1.86 in, 0.84 out.",
    )
    return numbers


def choose_count(trace: Trace | None) -> int:
    count = st.select_slider(
        "How many",
        COUNTS,
        4_000,
        format_func=units.count,
        key="paging_count",
        bind="query-params",
        help="Of a trace, the first so many. Averages are steady from about 4,000.",
    )
    if trace is not None and count < len(trace.rows):
        st.caption(f"The first {units.count(count)} of the trace; move right for more.")
    return count


def choose_arrivals(source: str) -> dict[str, object]:
    arrivals = st.selectbox(
        "Arrivals",
        list(ARRIVALS),
        format_func=ARRIVALS.get,
        key="paging_arrivals",
        bind="query-params",
        help="The paper's bars need a queue that never empties.",
    )
    if arrivals == RECORDED and source != TRACE:
        st.caption("Only a trace has recorded arrivals; here all wait at the start.")
        return {"arrivals": QUEUE}
    chosen: dict[str, object] = {"arrivals": arrivals}
    if arrivals == POISSON:
        chosen["load"] = st.slider(
            "Load",
            0.1,
            2.0,
            0.9,
            0.1,
            key="paging_load",
            bind="query-params",
            help="Arrivals over what paging serves of these requests when they never run out.",
        )
    if arrivals == RECORDED:
        chosen["steps_per_second"] = st.number_input(
            "Decode steps a second",
            1,
            1_000,
            30,
            key="paging_pace",
            bind="query-params",
            help="How fast the server decodes; turns the trace's seconds into steps.",
        )
    return chosen
