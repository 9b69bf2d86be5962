"""What the log readers return: the figures of each engine, None where they were not printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import ClassVar


class LogError(ValueError):
    """The text holds nothing these readers know; the message says what to paste instead."""


@dataclass(frozen=True)
class Reading:
    """One printed figure: its value, the process that printed it and the line it stands on."""

    value: float
    rank: str
    line: int


@dataclass
class VllmLog:
    """vLLM's start-up figures. GiB as printed (two decimals), tokens and blocks as integers.

    peak_torch_gib holds the weights and the activation peak together (before 0.8); consumed_gib
    the weights and what lies outside torch (newer versions).
    """

    engine: ClassVar[str] = "vllm"

    version: str | None = None
    model: str | None = None
    device: str | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    prefix_caching: bool | None = None
    max_num_batched_tokens: int | None = None
    speculative_tokens: int | None = None
    block_size: int | None = None
    aligned_block_size: int | None = None
    padding_layers: int | None = None
    state_padding_percent: float | None = None
    total_gib: float | None = None
    utilisation: float | None = None
    weights_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    peak_torch_gib: float | None = None
    consumed_gib: float | None = None
    graphs_estimated_gib: float | None = None
    graphs_gib: float | None = None
    needed_gib: float | None = None
    needed_for_tokens: int | None = None
    longest_that_fits: int | None = None
    state_blocks: int | None = None
    requested_seqs: int | None = None
    available: list[Reading] = field(default_factory=list)
    blocks: list[Reading] = field(default_factory=list)
    tokens: list[Reading] = field(default_factory=list)
    concurrency: list[Reading] = field(default_factory=list)
    concurrency_tokens: int | None = None


@dataclass
class SglangLog:
    """SGLang's start-up figures. It prints GB and means GiB (2**30); the fields say GiB."""

    engine: ClassVar[str] = "sglang"

    version: str | None = None
    model: str | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    dp_attention: bool | None = None
    page_size: int | None = None
    mem_fraction_static: float | None = None
    swa_full_tokens_ratio: float | None = None
    context_len: int | None = None
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    full_layer_tokens: int | None = None
    swa_layer_tokens: int | None = None
    state_slots: int | None = None
    conv_state_gib: float | None = None
    ssm_state_gib: float | None = None
    swa_pool_gib: float | None = None
    free_before_load: list[Reading] = field(default_factory=list)
    free_after_load: list[Reading] = field(default_factory=list)
    weights: list[Reading] = field(default_factory=list)
    tokens: list[Reading] = field(default_factory=list)
    k_gib: list[Reading] = field(default_factory=list)
    v_gib: list[Reading] = field(default_factory=list)
    kv_gib: list[Reading] = field(default_factory=list)


@dataclass(frozen=True)
class KvBuffer:
    """One `llama_kv_cache: size = …` line: a cache over some layers, sliding or not."""

    mib: float
    cells: int | None
    layers: int | None
    slots: int | None
    streams: int | None
    k_type: str | None
    k_mib: float | None
    v_type: str | None
    v_mib: float | None
    sliding: bool
    line: int


@dataclass(frozen=True)
class StateBuffer:
    """One `llama_memory_recurrent: size = …` line: R is the convolution part, S the matrix."""

    mib: float
    slots: int | None
    layers: int | None
    r_mib: float | None
    s_mib: float | None
    line: int


@dataclass
class LlamaCppLog:
    """llama.cpp's (and so Ollama's, LM Studio's) start-up figures. MiB as printed."""

    engine: ClassVar[str] = "llama.cpp"
    next_is_sliding: ClassVar[bool] = False
    """Set while reading, by the line that announces the next cache."""

    version: str | None = None
    model: str | None = None
    architecture: str | None = None
    num_layers: int | None = None
    k_width: int | None = None
    context: int | None = None
    context_per_slot: int | None = None
    slots: int | None = None
    ubatch: int | None = None
    unified: bool | None = None
    swa_full: bool | None = None
    window: int | None = None
    caches: list[KvBuffer] = field(default_factory=list)
    states: list[StateBuffer] = field(default_factory=list)


EngineLog = VllmLog | SglangLog | LlamaCppLog


def known_figures(log: EngineLog) -> dict[str, object]:
    """The fields of a log that were printed, by name, for a table of what was understood."""
    values = ((f.name, getattr(log, f.name)) for f in fields(log))
    return {name: value for name, value in values if value not in (None, [])}


def lines_with_figures(log: EngineLog) -> Iterator[int]:
    """Numbers of the lines that gave a reading, for marking them in the pasted text."""
    for value in known_figures(log).values():
        if isinstance(value, list):
            yield from (item.line for item in value)
