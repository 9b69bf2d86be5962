"""How vLLM prints its figures when it starts."""

from __future__ import annotations

import re

from kvcore.engines.logs.figures import Reading, VllmLog
from kvcore.engines.logs.rules import (
    DECIMAL,
    GROUPED,
    INTEGER,
    integer,
    number,
    reading,
    rule,
    setting,
    switch,
    text,
    whole,
)


def _prefix_caching(log: VllmLog, match: re.Match[str], line: int, rank: str) -> None:
    log.prefix_caching = match[1] is None


def _padding(log: VllmLog, match: re.Match[str], line: int, rank: str) -> None:
    """The line comes once per kind of layer (and again while graphs are profiled)."""
    log.padding_layers = max(log.padding_layers or 0, int(match[1]))


def _total_and_share(log: VllmLog, match: re.Match[str], line: int, rank: str) -> None:
    log.total_gib, log.utilisation = float(match[1]), float(match[2])


def _device(log: VllmLog, match: re.Match[str], line: int, rank: str) -> None:
    log.total_gib = float(match[2])


def _tokens(log: VllmLog, match: re.Match[str], line: int, rank: str) -> None:
    log.device = match[1]
    log.tokens.append(Reading(integer(match[2]), rank, line))


def _concurrency(log: VllmLog, match: re.Match[str], line: int, rank: str) -> None:
    log.concurrency_tokens = integer(match[1])
    log.concurrency.append(Reading(float(match[2]), rank, line))


def _needed(log: VllmLog, match: re.Match[str], line: int, rank: str) -> None:
    log.needed_for_tokens = integer(match[1])
    log.needed_gib = float(match[2])


def _state_blocks(log: VllmLog, match: re.Match[str], line: int, rank: str) -> None:
    log.requested_seqs, log.state_blocks = int(match[1]), int(match[2])


WORDS = (
    "GiB",
    "KV cache",
    "KV Cache",
    " blocks",
    "num_gpu_blocks",
    "_len",
    "model len",
    "model length",
    "parallel_size",
    "kv_cache_dtype",
    "prefix_caching",
    "batched_tokens",
    "num_spec",
    "block_size",
    "block size",
    "padding layers",
    "Padding mamba",
    "gpu_memory",
    "model weights took",
    "LLM engine (",
    "server version",
    "Maximum concurrency",
    "--max-model-len",
    "-parallel-size",
    "--kv-cache-dtype",
    "-prefix-caching",
    "-batched-tokens",
    "--block-size",
    "--gpu-memory",
)
RULES = (
    rule(r"Initializing an? (?:V1 )?LLM engine \(v?([\w.+-]{1,40})\)", text("version")),
    rule(r"vLLM API server version v?([\w.+-]{1,40})", text("version")),
    rule(r"\bmodel='([^']{1,300})'", text("model")),
    rule(r"\bdtype=torch\.(\w{1,20})", text("dtype")),
    rule(setting("kv_cache_dtype", r"(\w{1,40})"), text("kv_cache_dtype")),
    rule(setting("max_(?:seq|model)_len", INTEGER), whole("max_model_len")),
    rule(rf"Using max model len {INTEGER}", whole("max_model_len")),
    rule(setting("tensor_parallel_size", INTEGER), whole("tensor_parallel")),
    rule(setting("pipeline_parallel_size", INTEGER), whole("pipeline_parallel")),
    rule(setting("data_parallel_size", INTEGER), whole("data_parallel")),
    rule(setting("enable_prefix_caching", "(True|False)"), switch("prefix_caching")),
    rule(r"--(no-)?enable-prefix-caching", _prefix_caching),
    rule(setting("max_num_batched_tokens", INTEGER), whole("max_num_batched_tokens")),
    rule(setting("num_spec(?:ulative)?_tokens", INTEGER), whole("speculative_tokens")),
    rule(setting("block_size", INTEGER), whole("block_size")),
    rule(
        rf"Setting attention block size to {INTEGER} tokens",
        whole("aligned_block_size"),
    ),
    rule(
        rf"Add {INTEGER} padding layers, may waste at most",
        _padding,
    ),
    rule(rf"Padding mamba page size by {DECIMAL}%", number("state_padding_percent")),
    rule(
        rf"total_gpu_memory \({DECIMAL}\s?GiB\) x gpu_memory_utilization \({DECIMAL}\)",
        _total_and_share,
    ),
    rule(rf"total_gpu_memory={DECIMAL}\s?GiB", number("total_gib")),
    rule(setting("gpu_memory_utilization", DECIMAL), number("utilisation")),
    rule(rf"model weights take {DECIMAL}\s?GiB", number("weights_gib")),
    rule(rf"Model loading took {DECIMAL} Gi?B", number("weights_gib")),
    rule(rf"Loading model weights took {DECIMAL} Gi?B", number("weights_gib")),
    rule(rf"activation peak memory takes {DECIMAL}\s?GiB", number("activation_gib")),
    rule(rf"\bnon_torch_memory(?:=| takes ){DECIMAL}\s?GiB", number("non_torch_gib")),
    rule(rf"\bpeak_torch_memory={DECIMAL}\s?GiB", number("peak_torch_gib")),
    rule(
        rf"the rest of the memory reserved for KV Cache is {DECIMAL}\s?GiB",
        reading("available"),
    ),
    rule(rf"\bkv_cache_size={DECIMAL}\s?GiB", reading("available")),
    rule(rf"Free memory on device \({DECIMAL}/{DECIMAL} GiB\)", _device),
    rule(
        rf"Desired GPU memory utilization is \({DECIMAL}, {DECIMAL} GiB\)",
        number("utilisation"),
    ),
    rule(rf"{DECIMAL} GiB for weights?\b", number("weights_gib")),
    rule(rf"{DECIMAL} GiB for consumed memory", number("consumed_gib")),
    rule(rf"{DECIMAL} GiB for peak activation", number("activation_gib")),
    rule(rf"{DECIMAL} GiB for non-torch", number("non_torch_gib")),
    rule(rf"{DECIMAL} GiB for (?:CUDA|NPU) ?[Gg]raph", number("graphs_gib")),
    rule(rf"Estimated CUDA graph memory: {DECIMAL} GiB", number("graphs_estimated_gib")),
    rule(
        rf"[Cc]urrent (?:kv|KV) cache memory(?: in use is|:) {DECIMAL} GiB",
        reading("available"),
    ),
    rule(rf"Available KV cache memory: {DECIMAL} GiB", reading("available")),
    rule(
        rf"Explicitly set \({DECIMAL}/{DECIMAL}\) GiB for KV cache",
        reading("available"),
    ),
    rule(
        rf"(?:^|[^\w-] ?)(?:GPU|cuda|CUDA|cpu|NPU|rocm) blocks: {INTEGER}",
        reading("blocks"),
    ),
    rule(rf"\bnum_gpu_blocks['\"]?[=:]\s*{INTEGER}", reading("blocks")),
    rule(rf"tokens that can be stored in KV cache \({GROUPED}\)", reading("tokens")),
    rule(rf"(GPU|CPU|XPU|NPU) KV cache size: {GROUPED} tokens", _tokens),
    rule(
        rf"Maximum concurrency for {GROUPED} tokens per request: {DECIMAL}\s?x",
        _concurrency,
    ),
    rule(
        rf"max seq len \({GROUPED}\),? \(?{DECIMAL} GiB KV cache is needed",
        _needed,
    ),
    rule(rf"available KV cache memory \({DECIMAL} GiB\)", reading("available")),
    rule(rf"estimated maximum model length is {INTEGER}", whole("longest_that_fits")),
    rule(
        rf"max_num_seqs \({INTEGER}\) exceeds available Mamba cache blocks \({INTEGER}\)",
        _state_blocks,
    ),
)
