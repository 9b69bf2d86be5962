"""What an engine reserves, what its log says, and the reference set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from kvcore import units
from kvcore.architecture import Architecture
from kvcore.calculator import (
    Subject,
    conformance_frame,
    reconciliation_frame,
)
from kvcore.config_json import ConfigError, pack_text, unpack_text
from kvcore.engines import conformance, llamacpp, sglang, vllm
from kvcore.engines.common import PlanError
from kvcore.engines.logs import LogError, figure_lines, read_log
from kvcore.engines.reconcile import reconcile
from kvcore.formats import FORMATS, FormatError
from pages.calculator_parts.hardware import Hardware, Request
from pages.common.page import refuse
from pages.common.text import as_text

ENGINES = ("vLLM", "SGLang", "llama.cpp")
VERSIONS = ("0.33", "0.24", "0.21", "0.20", "0.10")
LOG, LOG_LINK = "calculator_log_text", "calculator_startup"
FROM_LOG = "from the log"
MOST_DRAFTS, MOST_BATCHES = 64, 64


def reserve(subject: Subject, request: Request, hardware: Hardware) -> None:
    """Two numbers side by side: what the architecture needs, what the engine reserves."""
    name = st.segmented_control(
        "Engine",
        ENGINES,
        default=ENGINES[0],
        required=True,
        key="calculator_engine",
        bind="query-params",
        help="Each reserves memory by rules of its own.",
    )
    show = {"vLLM": _vllm, "SGLang": _sglang, "llama.cpp": _llamacpp}[name]
    try:
        show(subject.architecture, request, hardware)
    except (PlanError, FormatError, ValueError) as problem:
        refuse(as_text(problem, 400))


def _room(hardware: Hardware) -> list[int]:
    """Bytes for the cache on each rank, stage by stage; 0 where the weights leave none."""
    ranks = hardware.deployment.tensor_parallel
    return [max(0, stage.free_bytes) for stage in hardware.deployment.stages for _ in range(ranks)]


def _show_stages(rows: Sequence[Mapping[str, object]], what: str, fullest: int) -> None:
    """A row for each pipeline stage; nothing where there is only one."""
    if len(rows) == 1:
        return
    st.caption(f"Stage {fullest} fills first and decides: every stage gets as many {what}.")
    st.dataframe(rows, hide_index=True)


def _two_numbers(needs: int, reserves: int, engine: str, what: str) -> None:
    columns = st.columns(3)
    columns[0].metric(
        "The architecture needs",
        units.gib(needs),
        help="Keys, values and state of one request on one rank, to the byte.",
    )
    columns[0].caption(units.gb(needs))
    columns[1].metric(f"{engine} reserves", units.gib(reserves), help=what)
    columns[1].caption(units.gb(reserves))
    columns[2].metric(
        "Ratio",
        units.times(reserves / needs) if needs else "unknown",
        help="What the engine's blocks, groups, pages and padding add.",
    )


def _vllm(architecture: Architecture, request: Request, hardware: Hardware) -> None:
    row = st.columns(3)
    version = row[0].selectbox(
        "Version",
        VERSIONS,
        key="calculator_version",
        bind="query-params",
        help="The meaning of “GPU KV cache size” changed with 0.21.",
    )
    batched = row[1].number_input(
        "Batched tokens",
        1,
        1_000_000,
        8_192,
        key="calculator_batched",
        bind="query-params",
        help="max_num_batched_tokens: they may be in flight beside each window.",
    )
    prefix = row[2].toggle(
        "Prefix caching",
        True,
        key="calculator_prefix_caching",
        bind="query-params",
        help="Hybrids keep a second state for each request with it.",
    )
    deployment = hardware.deployment
    plan = vllm.plan(
        architecture,
        _room(hardware),
        request.tokens,
        kv_format=request.kv_format,
        tensor_parallel=deployment.tensor_parallel,
        pipeline_parallel=deployment.pipeline_parallel,
        max_num_batched_tokens=int(batched),
        prefix_caching=prefix,
        version=version,
        **_more_of_vllm(),
    )
    _two_numbers(
        plan.needed_bytes,
        plan.bytes_per_request,
        "vLLM",
        f"{plan.blocks_per_request:,} blocks for one request at the full length.",
    )
    if plan.overheads:
        st.dataframe(
            [
                {"what adds to it": each.term, "size": units.gib(each.bytes)}
                for each in plan.overheads
            ],
            hide_index=True,
        )
    stages = [rank for rank in plan.ranks if rank.tensor_rank == 0]
    if hardware.weights_known:
        _show_stages(
            [
                {
                    "stage": rank.stage,
                    "layers": rank.layers,
                    "left for caches": units.gib(rank.available_bytes),
                    "a block": f"{rank.bytes_per_block:,} bytes",
                    "blocks that fit": rank.num_blocks,
                    "one request": units.gib(rank.bytes_per_request),
                }
                for rank in stages
            ],
            "blocks",
            plan.limiting_rank.stage,
        )
        room = units.gib(plan.limiting_rank.available_bytes)
        st.caption(f"What vLLM {version} would print, with {room} for caches")
        st.code("\n".join(vllm.startup_lines(plan)), language=None, wrap_lines=True)


def _more_of_vllm() -> dict[str, object]:
    """Settings that most leave alone, as `vllm.plan` takes them."""
    with st.expander("More of vLLM's settings"):
        row = st.container(horizontal=True)
        drafts = row.number_input(
            "Speculative tokens",
            0,
            MOST_DRAFTS,
            0,
            key="calculator_drafts",
            bind="query-params",
            help="Tokens drafted ahead: the model's own draft layers and further copies of "
            "recurrent states take memory.",
        )
        batches = row.number_input(
            "Batches at once",
            1,
            MOST_BATCHES,
            1,
            key="calculator_batches",
            bind="query-params",
            help="Batches under way together (asynchronous scheduling, pipeline stages): as many "
            "times the batched tokens are kept beside each window.",
        )
        cpu = st.toggle(
            f"On a CPU, in blocks of {vllm.CPU_BLOCK_SIZE} tokens",
            key="calculator_cpu",
            bind="query-params",
            help="vLLM's CPU backend. Type the memory it has above, as the GPU's.",
        )
    return {
        "speculative_tokens": int(drafts),
        "concurrent_batches": int(batches),
        "block_size": vllm.CPU_BLOCK_SIZE if cpu else vllm.DEFAULT_BLOCK_SIZE,
        "device": "CPU" if cpu else "GPU",
    }


def _sglang(architecture: Architecture, request: Request, hardware: Hardware) -> None:
    if not hardware.weights_known:
        st.info("SGLang's pool needs the size of the weights.")
        return
    stages = hardware.deployment.stages
    plans = [
        sglang.plan(
            stage.architecture,
            max(0, stage.free_bytes),
            kv_format=request.kv_format,
            tensor_parallel=hardware.deployment.tensor_parallel,
        )
        for stage in stages
    ]
    fullest = min(range(len(plans)), key=lambda i: plans[i].tokens)
    plan = plans[fullest]
    fits = plan.tokens // request.tokens
    columns = st.columns(3)
    columns[0].metric("Tokens in the pool", units.count(plan.tokens), help="max_total_num_tokens")
    columns[1].metric("Requests at this context", units.count(fits), help="Pool ÷ context.")
    columns[2].metric("Pool", units.gib(plan.pool_bytes), help="All buffers on one rank.")
    _show_stages(
        [
            {
                "stage": i,
                "layers": stage.architecture.num_layers,
                "left for caches": units.gib(max(0, stage.free_bytes)),
                "tokens that fit": each.tokens,
                "pool": units.gib(each.pool_bytes),
            }
            for i, (stage, each) in enumerate(zip(stages, plans, strict=True))
        ],
        "tokens",
        fullest,
    )
    st.caption("What SGLang would print; its “GB” are GiB")
    st.code("\n".join(sglang.startup_lines(plan)), language=None, wrap_lines=True)


def _llamacpp(architecture: Architecture, request: Request, hardware: Hardware) -> None:
    slots = st.number_input(
        "Slots",
        1,
        1_024,
        1,
        key="calculator_slots",
        bind="query-params",
        help="-np: requests at once. Each has a context of the length chosen.",
    )
    plan = llamacpp.plan(
        architecture, request.tokens * int(slots), request.kv_format, slots=int(slots)
    )
    needs = architecture.cache_bytes(request.tokens, request.kv_format) * int(slots)
    _two_numbers(needs, plan.bytes, "llama.cpp", "All caches, allocated when it starts.")
    for note in plan.notes:
        st.caption(as_text(note, 300))
    st.caption("What llama.cpp would print")
    st.code("\n".join(llamacpp.startup_lines(plan)), language=None, wrap_lines=True)


def paste_log(subject: Subject) -> None:
    """Predicted and logged, side by side, and the term that explains a difference."""
    _restore_log()
    text = st.text_area(
        "Start-up log of vLLM, SGLang or llama.cpp",
        height=160,
        key=LOG,
        persist_state="session",
        placeholder="INFO … GPU KV cache size: 31,232 tokens",
        help="Paste as much as you like; only lines with figures are read, and only those go into "
        "the link.",
    )
    settings = _settings()
    if not text.strip():
        st.caption("Paste the lines an engine prints while it starts, before it serves.")
        return
    try:
        log = read_log(text)
        result = reconcile(log, subject.architecture, settings)
    except (LogError, PlanError, ValueError) as problem:
        st.query_params.pop(LOG_LINK, None)
        refuse(as_text(problem, 400))
        return
    _keep_log(text)
    if log.model:
        st.caption(
            f"The log names {as_text(log.model)}; the figures are predicted for "
            f"{as_text(subject.name)}."
        )
    st.markdown(f"**{as_text(result.summary, 400)}**")
    if result.problem:
        refuse(as_text(result.problem, 400))
    number = st.column_config.NumberColumn(format="localized")
    st.dataframe(
        reconciliation_frame(result.rows),
        hide_index=True,
        placeholder="–",
        column_config={"predicted": number, "logged": number},
    )
    for row in result.rows:
        if row.difference is not None and not row.agrees:
            st.markdown(
                f"**{as_text(row.figure)}: {as_text(row.term)}.** {as_text(row.explanation, 600)}"
            )
    for line in result.assumed:
        st.caption(as_text(line, 300))
    if result.predicted_lines:
        st.caption("The engine's own lines, as its rules predict them")
        st.code("\n".join(result.predicted_lines), language=None, wrap_lines=True)


def _settings() -> dict[str, object]:
    with st.expander("What the log does not say"):
        kv_format = st.selectbox(
            "Cache format",
            (FROM_LOG, *FORMATS),
            key="calculator_log_format",
            bind="query-params",
            help="Many logs do not print it; BF16 is taken then.",
        )
        ranks = st.number_input(
            "Tensor-parallel ranks",
            1,
            64,
            value=None,
            placeholder=FROM_LOG,
            key="calculator_log_tp",
            bind="query-params",
            help="GPUs that share each layer.",
        )
        length = st.number_input(
            "Longest request (tokens)",
            1,
            100_000_000,
            value=None,
            placeholder=FROM_LOG,
            key="calculator_log_length",
            bind="query-params",
            help="max_model_len.",
        )
    chosen = {
        "kv_format": None if kv_format == FROM_LOG else kv_format,
        "tensor_parallel": ranks,
        "max_model_len": length,
    }
    return {key: value for key, value in chosen.items() if value is not None}


def _restore_log() -> None:
    packed = st.query_params.get(LOG_LINK)
    if packed is None or LOG in st.session_state:
        return
    try:
        st.session_state[LOG] = unpack_text(packed)
    except ConfigError as damage:
        st.session_state[LOG] = ""
        st.query_params.pop(LOG_LINK)
        refuse(str(damage))


def _keep_log(text: str) -> None:
    """Put the log into the link: whole, or the lines with figures where it is long."""
    packed = pack_text(text) or pack_text("\n".join(figure_lines(text)))
    if packed is None:
        st.query_params.pop(LOG_LINK, None)
        st.caption("This log is too long for a link; the address does not carry it.")
    elif st.query_params.get(LOG_LINK) != packed:
        st.query_params[LOG_LINK] = packed


def conformance_set() -> None:
    """The reference set, run while the page is drawn."""
    results = conformance.run()
    agree = sum(result.agrees for result in results)
    surprises = [result for result in results if not result.as_expected]
    seconds = sum(result.seconds for result in results)
    st.markdown(
        f"**{agree} of {len(results)} figures agree** with what engines printed or configs say, "
        f"computed just now in {units.ms(seconds)}. "
        + (
            "The others are known not to be reproduced and stand first, with the reason."
            if not surprises
            else f"{len(surprises)} came out other than expected."
        )
    )
    st.dataframe(conformance_frame(results), hide_index=True)
    st.caption(
        "“naive” is memory divided by bytes per token, without the engine's rules: what a simple "
        "calculator would say."
    )
