"""Everything a vLLM plan needs: from what the user says, what the log prints, and defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kvcore.architecture import WINDOWED, Architecture
from kvcore.engines import vllm
from kvcore.engines.common import PlanError, version_tuple
from kvcore.engines.logs import Reading, VllmLog
from kvcore.engines.reconcile.rows import Settings
from kvcore.formats import FormatError, find_format
from kvcore.units import GIB

CURRENT_VERSION = "0.33"
EARLY_VERSION = "0.6"
"""Stands for the versions that print `# GPU blocks`."""


@dataclass(frozen=True)
class Inputs:
    """Everything a plan needs, settled from the settings, the log and defaults."""

    a: Architecture
    max_model_len: int
    kv_format: str
    tensor_parallel: int
    pipeline_parallel: int
    block_size: int
    max_num_batched_tokens: int
    concurrent_batches: int
    prefix_caching: bool
    speculative_tokens: int
    version: str
    layers_per_stage: tuple[int, ...] | None = None

    def settings(self) -> dict[str, Any]:
        """Everything but the model, the memory and the length, as vllm.plan takes it."""
        return {
            "kv_format": self.kv_format,
            "tensor_parallel": self.tensor_parallel,
            "block_size": self.block_size,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "prefix_caching": self.prefix_caching,
            "speculative_tokens": self.speculative_tokens,
            "version": self.version,
            "pipeline_parallel": self.pipeline_parallel,
            "layers_per_stage": self.layers_per_stage,
            "concurrent_batches": self.concurrent_batches,
        }

    def plan(self, available: list[int] | None, num_blocks: int | None = None) -> vllm.Plan:
        return vllm.plan(
            self.a, available, self.max_model_len, num_blocks=num_blocks, **self.settings()
        )


def settle(log: VllmLog, a: Architecture, settings: Settings) -> tuple[Inputs, list[str]]:
    """The inputs of the plan, and a sentence for each that had to be assumed and matters."""
    assumed: list[str] = []

    def choose(name: str, logged: object, default: object, why: str, matters: bool = True) -> Any:
        given = getattr(settings, name)
        if given is not None:
            return given
        if logged is not None:
            return logged
        if matters:
            assumed.append(f"{name} is {default}: {why}.")
        return default

    length = choose(
        "max_model_len",
        log.max_model_len or log.concurrency_tokens or log.needed_for_tokens,
        a.max_context or 8192,
        "the model's longest context; the log does not print a length",
    )
    assumed += [f"the larger reading of {each.key}: {each.reason}." for each in a.uncertain]
    windowed = any(group.kind in WINDOWED for group in a.layers)
    silent = "the log does not print it"
    return (
        Inputs(
            a=a,
            max_model_len=max(1, int(length)),
            kv_format=_kv_format(log, a, settings, assumed),
            tensor_parallel=max(1, choose("tensor_parallel", log.tensor_parallel, 1, silent)),
            pipeline_parallel=max(
                1, choose("pipeline_parallel", log.pipeline_parallel, 1, silent, matters=False)
            ),
            block_size=max(1, _block_size(log, settings)),
            max_num_batched_tokens=max(
                1,
                choose(
                    "max_num_batched_tokens",
                    log.max_num_batched_tokens,
                    8192,
                    "vLLM's usual default on large GPUs",
                    matters=windowed,
                ),
            ),
            concurrent_batches=max(1, settings.concurrent_batches or 1),
            prefix_caching=bool(
                choose(
                    "prefix_caching",
                    log.prefix_caching,
                    not a.is_hybrid,
                    "vLLM's default for this kind of model",
                    matters=a.is_hybrid,
                )
            ),
            speculative_tokens=max(
                0,
                choose(
                    "speculative_tokens",
                    log.speculative_tokens,
                    0,
                    silent,
                    matters=a.is_hybrid or bool(a.draft_layers),
                ),
            ),
            version=_version(log, settings, assumed),
            layers_per_stage=tuple(settings.layers_per_stage)
            if settings.layers_per_stage
            else None,
        ),
        assumed,
    )


def _version(log: VllmLog, settings: Settings, assumed: list[str]) -> str:
    early = bool(log.blocks) or log.peak_torch_gib is not None
    fallback = EARLY_VERSION if early else CURRENT_VERSION
    why = "the log has the form of early versions" if early else "the log does not print it"
    for version in (settings.version, log.version):
        if version is None:
            continue
        try:
            version_tuple(version)
        except PlanError:
            why = f"“{version}” is not a version"
            continue
        return str(version)
    assumed.append(f"version is {fallback}: {why}.")
    return fallback


def _kv_format(log: VllmLog, a: Architecture, settings: Settings, assumed: list[str]) -> str:
    for name in (settings.kv_format, log.kv_cache_dtype):
        if name is None:
            continue
        if name == "auto":
            return a.kv_dtype or log.dtype or a.model_dtype or "bf16"
        try:
            return find_format(name).name
        except FormatError:
            assumed.append(f"kv_format is bf16: “{name}” is not a format known here.")
            return "bf16"
    fallback = a.kv_dtype or log.dtype or a.model_dtype or "bf16"
    assumed.append(f"kv_format is {fallback}: the log does not print kv_cache_dtype.")
    return fallback


def _block_size(log: VllmLog, settings: Settings) -> int:
    """The block size asked for. A hybrid's printed block size is the raised one, so not that."""
    if settings.block_size:
        return settings.block_size
    if log.block_size and log.block_size != log.aligned_block_size and log.block_size <= 256:
        return log.block_size
    return vllm.CPU_BLOCK_SIZE if log.device == "CPU" else vllm.DEFAULT_BLOCK_SIZE


def memory_of_ranks(log: VllmLog, settings: Settings, inputs: Inputs) -> list[float] | None:
    """GiB on each rank, in rank order, or None where neither log nor user gives any."""
    given = settings.available_gib
    if isinstance(given, (int, float)):
        return [float(given)]
    if given:
        return [float(each) for each in given]
    last = _last_of_each_rank(log.available)
    if not last:
        return None
    ranks = inputs.tensor_parallel * inputs.pipeline_parallel
    ordered = sorted(last, key=lambda reading: _rank_order(reading.rank))
    if len(ordered) == ranks and inputs.pipeline_parallel > 1:
        return [reading.value for reading in ordered]
    return [min(reading.value for reading in last)]


def _last_of_each_rank(readings: list[Reading]) -> list[Reading]:
    """One reading per rank; of several data-parallel engines only the first."""
    last = {reading.rank: reading for reading in readings}
    engines = {match[0] for rank in last if (match := re.search(r"DP\d+", rank))}
    if len(engines) > 1:
        first = min(engines, key=lambda name: int(name[2:]))
        last = {rank: each for rank, each in last.items() if first in re.split(r"[_ ]", rank)}
    return list(last.values())


def _rank_order(rank: str) -> tuple[int, int, str]:
    def number(axis: str) -> int:
        match = re.search(rf"{axis}(\d+)", rank)
        return int(match[1]) if match else 0

    return number("PP"), number("TP") or number("rank="), rank


def rank_bytes(
    memory: list[float], inputs: Inputs, shift: float = 0.0, scale: float = 1.0
) -> list[int]:
    """Bytes on each rank; `shift` GiB more or less, `scale` where a unit was misread."""
    ranks = min(inputs.tensor_parallel * inputs.pipeline_parallel, vllm.MOST_RANKS + 1)
    values = memory if len(memory) == ranks else [min(memory)] * ranks
    return [int((gib + shift) * scale * GIB) for gib in values]


def old_meaning(inputs: Inputs) -> bool:
    """Whether this version counts tokens as blocks ÷ groups × block size."""
    return version_tuple(inputs.version) < vllm.CONCURRENCY_TOKENS_SINCE


def used(inputs: Inputs, memory: list[float] | None) -> dict[str, object]:
    """What the prediction was made with, for the page and the export."""
    return {
        "max_model_len": inputs.max_model_len,
        **inputs.settings(),
        "available_gib": memory,
    }
