"""What lies behind the answer, a tab each; only the open one runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from kvcore import units
from kvcore.calculator import (
    Subject,
    arithmetic,
    layers_frame,
    memory_frame,
    ranks_frame,
    sources_frame,
    stages_frame,
    users_arithmetic,
)
from kvcore.capacity import Users, Work, ceilings, state_slots_that_fit, users_with_prefix
from kvcore.catalog import GPU
from pages.calculator_parts import engine
from pages.calculator_parts.hardware import RANKS, Hardware, Request, Use
from pages.common.page import export_row, share_link, sources

TABS = (
    "Users",
    "Layers",
    "Engine",
    "Paste a log",
    "Speed limits",
    "Arithmetic",
    "Conformance",
    "Sources",
    "Export and link",
)


@dataclass(frozen=True)
class Shown:
    """All that the page has settled by the time it draws its tabs."""

    subject: Subject
    subjects: Sequence[Subject]
    request: Request
    hardware: Hardware
    use: Use
    users: Users
    longest: int


def show(shown: Shown) -> None:
    bodies: tuple[Callable[[Shown], None], ...] = (
        _users,
        _layers,
        lambda each: engine.reserve(each.subject, each.request, each.hardware),
        lambda each: engine.paste_log(each.subject),
        _speed,
        _arithmetic,
        lambda each: engine.conformance_set(),
        _sources,
        _export,
    )
    tabs = st.tabs(TABS, key="calculator_tab", on_change="rerun", bind="query-params")
    for tab, body in zip(tabs, bodies, strict=True):
        if tab.open:
            with tab:
                body(shown)


def _users(shown: Shown) -> None:
    if not shown.hardware.weights_known:
        st.info("The number of users needs the size of the weights.")
        return
    deployment, use = shown.hardware.deployment, shown.use
    typical = users_with_prefix(deployment, use.tokens, 0)
    shared = users_with_prefix(deployment, use.tokens, use.shared_prefix)
    row = st.container(horizontal=True)
    row.metric(
        f"All at {shown.request.tokens:,} tokens",
        units.count(shown.users.total),
        help="The worst case: every request at the full context.",
    )
    row.metric(
        f"Typical, {use.tokens:,} tokens",
        units.count(typical.total),
        help="Prompt and reply of a typical request, nothing shared.",
    )
    row.metric(
        f"Typical, {use.shared_prefix:,} of them shared",
        units.count(shared.total),
        help="The shared prefix is stored once; windows and recurrent state are not shared.",
    )
    st.text("\n".join(users_arithmetic(shared, deployment)))
    _state_slots(shown)
    if deployment.pipeline_parallel > 1:
        st.subheader("Pipeline stages")
        st.dataframe(stages_frame(deployment, shown.request.tokens), hide_index=True)
    if deployment.tensor_parallel > 1:
        _ranks(shown)


def _state_slots(shown: Shown) -> None:
    slots = state_slots_that_fit(shown.hardware.deployment)
    if slots is None:
        return
    state = shown.subject.architecture.state_bytes(shown.hardware.deployment.tensor_parallel)
    st.markdown(
        f"Recurrent layers keep {units.gib(state)} for each request, however short it is: "
        f"at most {slots:,} requests even with empty contexts. An engine sets these slots aside "
        "when it starts and refuses users beyond them."
    )


def _ranks(shown: Shown) -> None:
    st.subheader("Tensor parallel")
    frame = ranks_frame(
        shown.subject.architecture, shown.request.tokens, shown.request.kv_format, RANKS
    )
    st.dataframe(frame, hide_index=True)
    st.caption(
        "KV heads are divided over ranks until each has one; beyond that they are copied, and more "
        "ranks buy no cache. A latent vector is copied to every rank from the start."
    )


def _layers(shown: Shown) -> None:
    architecture, request = shown.subject.architecture, shown.request
    ranks = shown.hardware.deployment.tensor_parallel
    frame = layers_frame(architecture, request.tokens, request.kv_format, ranks)
    whole = st.column_config.NumberColumn(format="localized")
    st.dataframe(
        frame,
        hide_index=True,
        placeholder="–",
        column_config=dict.fromkeys(frame.select_dtypes("Int64").columns, whole),
    )
    fields = sources_frame(architecture)
    if len(fields):
        st.subheader("Where each number comes from")
        st.dataframe(fields, hide_index=True)
    st.caption(
        "config: a key of the file. class default: what the model's own configuration class takes "
        "when the key is left out (transformers 5.24.0). assumption: neither says."
    )


def _speed(shown: Shown) -> None:
    gpu, use = shown.hardware.gpu, shown.use
    if gpu is None:
        st.info("Choose a GPU by name: a sticker says nothing of bandwidth or compute.")
        return
    subject, deployment = shown.subject, shown.hardware.deployment
    work = Work(gpu.bandwidth, gpu.flops, subject.parameters, subject.active_parameters)
    st.markdown(
        "Ceilings: what the memory and the arithmetic units cannot pass. An engine stays below."
    )
    full = max(1, shown.users.per_copy)
    rows = [
        _speed_row(f"{count:,} at {tokens:,} tokens", deployment, count, tokens, use.prompt, work)
        for count, tokens in ((1, shown.request.tokens), (full, shown.request.tokens))
    ]
    st.dataframe(pd.DataFrame(rows), hide_index=True)
    found = ceilings(deployment, 1, shown.request.tokens, use.prompt, work)
    _speed_words(found, use, gpu)


def _speed_row(
    label: str, deployment: object, users: int, tokens: int, prompt: int, work: Work
) -> dict[str, object]:
    found = ceilings(deployment, users, tokens, prompt, work)
    return {
        "users": label,
        "read in a step": units.gib(found.bytes_per_step),
        "of it weights": units.gib(found.weights_read),
        "of it caches": units.gib(found.cache_read),
        "step": units.ms(found.decode_seconds) if found.decode_seconds else "unknown",
        "tokens/s each": _rate(found.tokens_per_second_per_user),
        "tokens/s in all": _rate(found.tokens_per_second_total),
        "waits for": str(found.decode_bound or "unknown"),
    }


def _rate(value: float | None) -> str:
    return "unknown" if value is None else units.sig3(value)


def _speed_words(found: object, use: Use, gpu: GPU) -> None:
    if found.bandwidth_bound_from:
        st.markdown(
            f"From {found.bandwidth_bound_from:,} users at this context, reading caches takes "
            "longer than reading weights."
        )
    if found.prefill_seconds is None:
        st.markdown(
            "Time to first token: unknown, because a figure of the GPU or model is missing."
        )
    else:
        st.markdown(
            f"Time to first token of a {use.prompt:,}-token prompt: at least "
            f"{units.seconds(found.prefill_seconds)}, with nothing else running."
        )
    flops = f"{gpu.flops / 1e12:,.0f} TFLOPS dense 16-bit" if gpu.flops else "compute unknown"
    st.caption(f"{gpu.bandwidth / 1e9:,.0f} GB/s, {flops}. {gpu.source}.")


def _arithmetic(shown: Shown) -> None:
    ranks = shown.hardware.deployment.tensor_parallel
    for subject in shown.subjects:
        st.subheader(subject.name, anchor=False)
        lines = arithmetic(
            subject.architecture, shown.request.tokens, shown.request.kv_format, ranks
        )
        st.code("\n".join(lines), language=None, wrap_lines=True)
    if shown.hardware.weights_known:
        st.subheader("Users", anchor=False)
        lines = users_arithmetic(shown.users, shown.hardware.deployment)
        st.code("\n".join(lines), language=None, wrap_lines=True)


def _sources(shown: Shown) -> None:
    gpu = shown.hardware.gpu
    lines = [f"{subject.name}: {subject.origin}" for subject in shown.subjects if subject.origin]
    if gpu:
        lines.append(f"{gpu.name}: {gpu.source} ({gpu.date:%d %B %Y}).")
        lines += [f"{gpu.name}, {note}." for note in gpu.notes]
    lines += [
        "Class defaults and layer schedules: configuration classes of transformers 5.24.0.",
        "Storage formats and their scales: vLLM 0.33.0 and llama.cpp's ggml block layouts.",
        "Weights of named models: counted from each config with transformers 5.24.0.",
        "Ceilings: the roofline; Pope et al. 2022, “Efficiently Scaling Transformer Inference”.",
    ]
    sources(lines)


def _export(shown: Shown) -> None:
    request, deployment = shown.request, shown.hardware.deployment
    frame = memory_frame(
        shown.subjects,
        shown.longest,
        request.tokens,
        request.kv_format,
        deployment.tensor_parallel,
    )
    settings = {
        "models": [subject.name for subject in shown.subjects],
        "tokens": request.tokens,
        "kv_format": request.kv_format,
        "gpu": shown.hardware.gpu.name if shown.hardware.gpu else None,
        "memory_bytes": deployment.memory_bytes,
        "weights_bytes": deployment.weights_bytes if shown.hardware.weights_known else None,
        "overhead_bytes": deployment.overhead_bytes,
        "tensor_parallel": deployment.tensor_parallel,
        "pipeline_parallel": deployment.pipeline_parallel,
        "data_parallel": deployment.data_parallel,
        "cache_bytes": shown.subject.architecture.cache_bytes(
            request.tokens, request.kv_format, deployment.tensor_parallel
        ),
        "users": shown.users.total if shown.hardware.weights_known else None,
    }
    export_row("calculator", frame, settings)
    share_link("calculator_")
