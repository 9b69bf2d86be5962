"""Changes of the inputs that may explain why a vLLM log and its prediction differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvcore.architecture import WINDOWED, Architecture, LayerKind
from kvcore.engines.reconcile.vllm_inputs import Inputs, old_meaning
from kvcore.units import GB, GIB

BATCH_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
FORMATS_TRIED = ("bf16", "fp8", "fp8_per_token_head", "int4_per_token_head", "nvfp4", "fp32")


@dataclass(frozen=True)
class Guess:
    """A change of the inputs that may explain a gap, and how to say so."""

    term: str
    inputs: Inputs
    sentence: str
    scale: float = 1.0


def guesses(inputs: Inputs) -> Iterator[Guess]:
    """Changes worth trying, the likeliest first."""
    other = "0.33" if old_meaning(inputs) else "0.20"
    yield Guess(
        "version meaning",
        replace(inputs, version=other),
        "The token count has the meaning it had "
        + (
            "from 0.21 on: concurrency × length."
            if other == "0.33"
            else "up to 0.20: blocks ÷ groups × block size."
        ),
    )
    yield from _window_guesses(inputs)
    if inputs.a.is_hybrid:
        kept = "one state" if inputs.prefix_caching else "two states"
        yield Guess(
            "state copies",
            replace(inputs, prefix_caching=not inputs.prefix_caching),
            f"The log fits {kept} per request: prefix caching was "
            f"{'off' if inputs.prefix_caching else 'on'}.",
        )
        yield Guess(
            "version meaning",
            replace(inputs, version=other, prefix_caching=not inputs.prefix_caching),
            f"The log fits {kept} per request and the other meaning of the token count.",
        )
    yield from _draft_guesses(inputs)
    yield from _precision_guesses(inputs)
    yield from rank_guesses(inputs)
    for size in (16, 32, 64, 128):
        if size != inputs.block_size:
            yield Guess(
                "block size",
                replace(inputs, block_size=size),
                f"The log fits blocks of {size} tokens.",
            )
    yield Guess(
        "GB is not GiB",
        inputs,
        "The log fits if the memory is read as GB (10⁹ bytes) instead of GiB (2³⁰).",
        scale=GB / GIB,
    )


def rank_guesses(inputs: Inputs) -> Iterator[Guess]:
    """Other numbers of tensor-parallel ranks."""
    if inputs.pipeline_parallel > 1:
        return
    for ranks in (1, 2, 4, 8, 16):
        if ranks != inputs.tensor_parallel:
            yield Guess(
                "tensor parallelism",
                replace(inputs, tensor_parallel=ranks),
                f"The log fits tensor parallelism over {ranks} ranks, not "
                f"{inputs.tensor_parallel}.",
            )


def _window_guesses(inputs: Inputs) -> Iterator[Guess]:
    if not any(group.kind in WINDOWED for group in inputs.a.layers):
        return
    for size in BATCH_SIZES:
        if size != inputs.max_num_batched_tokens:
            yield Guess(
                "window in flight",
                replace(inputs, max_num_batched_tokens=size),
                f"The log fits {size:,} tokens in flight beside each window "
                f"(max_num_batched_tokens), not {inputs.max_num_batched_tokens:,}.",
            )
    for size in dict.fromkeys((inputs.max_num_batched_tokens, *BATCH_SIZES)):
        yield Guess(
            "window in flight",
            replace(inputs, max_num_batched_tokens=size, concurrent_batches=2),
            f"The log fits two batches of {size:,} tokens in flight beside each window.",
        )
    yield Guess(
        "windows kept in full",
        replace(inputs, a=_without_windows(inputs.a)),
        "The log fits windowed layers that keep the whole context: the hybrid cache manager was "
        "off.",
    )


def _without_windows(a: Architecture) -> Architecture:
    layers = tuple(
        replace(group, kind=LayerKind.FULL, window=None) if group.kind in WINDOWED else group
        for group in a.layers
    )
    return replace(a, layers=layers)


def _precision_guesses(inputs: Inputs) -> Iterator[Guess]:
    now = inputs.a.storage_format(inputs.kv_format).name
    for name in FORMATS_TRIED:
        if inputs.a.storage_format(name).name != now:
            yield Guess(
                "KV precision",
                replace(inputs, kv_format=name),
                f"The log fits a cache stored as {name}, not {now}.",
            )


def _draft_guesses(inputs: Inputs) -> Iterator[Guess]:
    if not (inputs.a.is_hybrid or inputs.a.draft_layers):
        return
    for drafts in range(6):
        if drafts != inputs.speculative_tokens:
            words = f"{drafts} speculative tokens" if drafts else "no speculative decoding"
            yield Guess(
                "speculative decoding",
                replace(inputs, speculative_tokens=drafts),
                f"The log fits {words}.",
            )
