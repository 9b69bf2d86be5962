"""What the server reserved for its cache, beside what the calculator predicts."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from kvcore import units
from kvcore.architecture import Architecture
from kvcore.calculator import reconciliation_frame
from kvcore.config_json import ConfigError
from kvcore.engines.common import PlanError
from kvcore.engines.logs import EngineLog, LogError, read_log
from kvcore.engines.reconcile import Reconciliation, reconcile
from kvcore.serving.recorded import architecture, architecture_names
from kvcore.serving.reserved import Fact
from pages.common.links import lab
from pages.common.page import export_row, refuse, share_link, sources
from pages.common.text import as_text


def controls(likely: str | None) -> tuple[str, float | None, str]:
    """The model to predict for, the memory it was given, and the log."""
    if likely is not None and "server_architecture" not in st.session_state:
        st.session_state.server_architecture = likely
    name = st.selectbox(
        "Predict for",
        architecture_names(),
        key="server_architecture",
        bind="query-params",
        help="The model the server runs. For any other, the memory calculator reads its "
        "config.json and the same logs.",
    )
    memory = st.number_input(
        "Memory for the cache (GiB)",
        0.0,
        10_000.0,
        value=None,
        placeholder="from the log",
        key="server_memory",
        help="For each rank, where neither log nor metrics say it.",
    )
    log = st.text_area(
        "Start-up log (optional)",
        height=140,
        key="server_log",
        max_chars=200_000,
        help="Of vLLM, SGLang or llama.cpp: more exact than what they tell over the network. It is "
        "neither stored nor sent anywhere.",
    )
    return name, memory, log


def show_reserved(
    facts: Sequence[Fact], told: EngineLog | None, log_text: str, name: str, memory: float | None
) -> None:
    """Predicted and said, side by side."""
    log = told
    if log_text.strip():
        try:
            log = read_log(log_text)
        except LogError as problem:
            refuse(as_text(problem, 400))
    if log is None:
        st.info(
            "This server does not say what it reserved: it may grow its cache with each request, "
            "or keep that to itself. Paste its start-up log, if it prints one."
        )
        st.metric(
            f"One token of {name} keeps",
            units.gib(architecture(name).growth_bytes()),
            help="Keys and values of all layers in the model's usual 16 bits, as the memory "
            "calculator computes it.",
        )
    else:
        _compare(log, architecture(name), name, memory)
    if facts:
        st.markdown("**What the server says over the network**")
        st.dataframe(
            [{"what": f.name, "value": f.value, "where": f.where} for f in facts], hide_index=True
        )


def _compare(log: EngineLog, model: Architecture, name: str, memory: float | None) -> None:
    settings = {} if not memory else {"available_gib": memory}
    try:
        result = reconcile(log, model, settings)
    except (PlanError, ConfigError, ValueError) as problem:
        refuse(as_text(problem, 400))
        return
    _answer(result)
    if result.predicted_lines:
        st.caption("The engine's own lines, as its rules predict them")
        st.code("\n".join(result.predicted_lines), language=None, wrap_lines=True)
    how, where, export = st.tabs(["Assumed", "Sources", "Export"])
    with how:
        for sentence in result.assumed or ("Nothing had to be assumed.",):
            st.markdown(as_text(sentence, 300))
        lab("calculator", "The same for any config.json, in the memory calculator")
    with where:
        sources(
            [
                "Predicted: by the engine's own rules for blocks, groups and padding, as in the "
                "memory calculator.",
                "Said: the engine's start-up log, or /metrics, /server_info, /props and /slots.",
            ]
        )
    with export:
        export_row("server", reconciliation_frame(result.rows), {"model": name, **settings})
        share_link("server_")


def _answer(result: Reconciliation) -> None:
    compared = [row for row in result.rows if row.difference is not None]
    agreeing, total = st.columns(2)
    agreeing.metric(
        "Figures that agree",
        f"{sum(row.agrees for row in compared)} of {len(compared)}",
        help="Predicted and said by the server, to the digit it prints.",
    )
    first = next((row for row in compared if row.unit == "tokens"), None)
    if first is not None:
        total.metric(
            "KV cache",
            f"{first.logged:,.0f} tokens",
            f"{first.predicted:,.0f} predicted",
            delta_color="off",
            delta_arrow="off",
            help=as_text(first.explanation or first.figure, 300),
        )
    st.markdown(as_text(result.summary, 400))
    if result.problem and result.problem != result.summary:
        refuse(as_text(result.problem, 400))
    st.dataframe(reconciliation_frame(result.rows), hide_index=True)
