"""Where it runs: the request, the GPU, the weights, the ranks."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from kvcore.calculator import Subject
from kvcore.capacity import WEIGHT_BITS, Deployment, weight_bytes
from kvcore.catalog import GPU, GPUS
from kvcore.formats import FORMATS
from kvcore.units import GB, GIB, gb, gib
from pages.calculator_parts.model import SLIDERS
from pages.common.fragments import folded

AS_SOLD = "80 GB, as sold"
GPU_NAMES = (AS_SOLD, *GPUS)
PRECISION = {"16 bits": "bf16", "8 bits": "fp8"}
FORMAT_NAMES = {name: kv_format.label for name, kv_format in FORMATS.items()}
WEIGHT_NAMES = {name: f"{name}, {float(bits):g} bits each" for name, bits in WEIGHT_BITS.items()}
LONGEST = 10_000_000
RANKS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Request:
    """One request: how many tokens it holds, how each is stored."""

    tokens: int
    kv_format: str


def choose_request(source: str) -> Request:
    if source == SLIDERS:
        tokens = st.slider(
            "Context (tokens)",
            1_000,
            128_000,
            8_000,
            step=1_000,
            key="calculator_context",
            bind="query-params",
            help="Prompt and reply together.",
        )
        bits = st.segmented_control(
            "Precision",
            list(PRECISION),
            default="16 bits",
            required=True,
            key="calculator_precision",
            bind="query-params",
            help="Bits for each number kept. Eight are FP8 with one scale for a whole tensor.",
        )
        return Request(tokens, PRECISION[bits])
    tokens = st.number_input(
        "Context (tokens)",
        1,
        LONGEST,
        8_192,
        step=1_024,
        key="calculator_tokens",
        bind="query-params",
        help="Prompt and reply together.",
    )
    kv_format = st.selectbox(
        "Storage format of the cache",
        list(FORMATS),
        format_func=FORMAT_NAMES.get,
        key="calculator_format",
        bind="query-params",
        help="Scales are counted: an int4 cache takes more than half a byte a number.",
    )
    return Request(int(tokens), kv_format)


@dataclass(frozen=True)
class Use:
    """A typical request: its prompt, its reply, and the part of the prompt that all share."""

    prompt: int
    reply: int
    shared_prefix: int

    @property
    def tokens(self) -> int:
        return self.prompt + self.reply


def choose_use() -> Use:
    usual = Use(prompt=2_000, reply=500, shared_prefix=1_000)
    box, shown = folded(
        "A typical request", ("calculator_prompt", "calculator_reply", "calculator_prefix")
    )
    if not shown:
        return usual
    with box:
        prompt = st.number_input(
            "Prompt (tokens)",
            1,
            LONGEST,
            usual.prompt,
            step=500,
            key="calculator_prompt",
            bind="query-params",
            help="What most requests bring, not the longest one allowed.",
        )
        reply = st.number_input(
            "Reply (tokens)",
            1,
            LONGEST,
            usual.reply,
            step=100,
            key="calculator_reply",
            bind="query-params",
            help="What the model writes back.",
        )
        prefix = st.number_input(
            "Shared prefix (tokens)",
            0,
            LONGEST,
            usual.shared_prefix,
            step=500,
            key="calculator_prefix",
            bind="query-params",
            help="The start of the prompt that all requests have in common, stored once.",
        )
    if prefix > prompt:
        st.warning("The shared prefix is longer than the prompt; the whole prompt is taken.")
    return Use(int(prompt), int(reply), int(min(prefix, prompt)))


@dataclass(frozen=True)
class Hardware:
    """The GPU chosen (None: a box's sticker) and the deployment on it; weights_known says whether
    the weights are more than a blank."""

    gpu: GPU | None
    deployment: Deployment
    weights_known: bool
    weights_note: str


def choose_hardware(subject: Subject, request: Request, source: str) -> Hardware:
    name = st.selectbox(
        "GPU",
        GPU_NAMES,
        key="calculator_gpu",
        bind="query-params",
        help="Memory is what the driver or the runtime reports, not what the box says.",
    )
    gpu = GPUS.get(name)
    usual = gpu.memory_bytes if gpu else 80 * GB
    memory = _bytes_or(
        usual,
        st.number_input(
            "GPU memory (GiB)",
            0.0,
            10_000.0,
            value=None,
            step=1.0,
            format="%.2f",
            placeholder=f"{usual / GIB:.2f}",
            key="calculator_memory",
            bind="query-params",
            help="Leave empty for the figure of the GPU above.",
        ),
    )
    st.caption(_gpu_caption(gpu))
    weights, known, note = _choose_weights(subject, source)
    overhead = st.number_input(
        "Overhead (GiB on each GPU)",
        0.0,
        1_000.0,
        0.0,
        step=0.5,
        key="calculator_overhead",
        bind="query-params",
        help="Activations, graphs, the runtime. Real logs show from 1 to 7.5 GiB "
        "(gpt-oss-120b on an H100: 7.48, vllm-project/vllm#27508).",
    )
    tensor, pipeline, data = _choose_ranks(subject)
    deployment = Deployment(
        subject.architecture,
        memory,
        weights,
        overhead_bytes=int(overhead * GIB),
        kv_format=request.kv_format,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        data_parallel=data,
    )
    return Hardware(gpu, deployment, known, note)


def _bytes_or(usual: int, typed: float | None) -> int:
    return usual if typed is None else int(typed * GIB)


def _gpu_caption(gpu: GPU | None) -> str:
    if gpu is None:
        return f"80 GB on the box are {80 * GB / GIB:.2f} GiB."
    flag = " Not looked up again since it was noted." if gpu.unverified else ""
    return f"{gib(gpu.memory_bytes)} ({gb(gpu.memory_bytes)}), {gpu.memory_source}.{flag}"


def _choose_weights(subject: Subject, source: str) -> tuple[int, bool, str]:
    """Bytes of the weights, whether they are known, and where the figure comes from."""
    if source == SLIDERS:
        size = st.number_input(
            "Weights (GB)",
            0.0,
            10_000.0,
            16.0,
            step=1.0,
            key="calculator_weights",
            bind="query-params",
            help="Decimal gigabytes: 8 billion weights of 2 bytes are 16 GB.",
        )
        return int(size * GB), True, "your figure"
    dtype = st.selectbox(
        "Weights stored in",
        list(WEIGHT_BITS),
        index=list(WEIGHT_BITS).index("bf16"),
        format_func=WEIGHT_NAMES.get,
        key="calculator_weights_dtype",
        bind="query-params",
        help="All weights in this format. Real checkpoints leave some layers in 16 bits.",
    )
    counted = weight_bytes(subject.parameters, dtype) if subject.parameters else None
    typed = st.number_input(
        "Weights (GiB)",
        0.0,
        100_000.0,
        value=None,
        step=1.0,
        placeholder=f"{counted / GIB:.2f}" if counted else "unknown",
        key="calculator_weights_gib",
        bind="query-params",
        help="Leave empty to count them from the model; type the checkpoint's size if you know it.",
    )
    if typed is not None:
        return int(typed * GIB), True, "your figure"
    if counted is None:
        return 0, False, "unknown"
    return counted, True, f"{subject.parameters:,} weights in {dtype}"


def _choose_ranks(subject: Subject) -> tuple[int, int, int]:
    box, shown = folded("More than one GPU", ("calculator_tp", "calculator_pp", "calculator_dp"))
    if not shown:
        return RANKS[0], 1, 1
    with box:
        tensor = st.selectbox(
            "Tensor parallel",
            RANKS,
            key="calculator_tp",
            bind="query-params",
            help="GPUs that share each layer. KV heads are divided; a latent is copied to all.",
        )
        pipeline = st.number_input(
            "Pipeline stages",
            1,
            64,
            1,
            key="calculator_pp",
            bind="query-params",
            help="GPUs that hold different layers.",
        )
        data = st.number_input(
            "Copies side by side",
            1,
            1_024,
            1,
            key="calculator_dp",
            bind="query-params",
            help="Data parallel: whole copies of the model, each with users of its own.",
        )
    layers = subject.architecture.num_layers
    if pipeline > layers:
        st.warning(f"{layers} layers cannot fill {pipeline} stages; {layers} are used.")
    return tensor, min(int(pipeline), layers), int(data)
