"""Named models and GPUs. Every entry has a source and a date; what is unknown is None."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from importlib.resources import files

from kvcore.architecture import Architecture
from kvcore.config_json import read_config

GIB = 2**30
MIB = 2**20

UNIFIED_SHARE = 0.70
"""Of unified memory, what a GPU may use by default: 65 to 75 % (llmfit), taken in the middle."""

NOT_REFETCHED = 8
"""The number of the source that stands for a figure nobody has looked up again."""


@dataclass(frozen=True)
class Model:
    """A named model: the values of its config that memory depends on, and its parameters.

    parameters counts the weights without draft layers; active_parameters, those one token uses.
    """

    name: str
    config: Mapping[str, object] = field(hash=False, repr=False)
    source: str
    date: date
    repository: str | None = None
    parameters: int | None = None
    active_parameters: int | None = None

    @cached_property
    def architecture(self) -> Architecture:
        return read_config(self.config, name=self.name)


@dataclass(frozen=True)
class GPU:
    """A GPU as its driver and its logs describe it, not as its box does.

    driver_bytes: what nvidia-smi reports. runtime_bytes: what CUDA or HIP hands out, a little less.
    bandwidth: bytes per second. flops: dense 16-bit operations per second, FP32 accumulate.
    unverified: a figure has not been looked up again since it was written down.
    """

    name: str
    marketed_gb: int
    source: str
    date: date
    driver_bytes: int | None = None
    runtime_bytes: int | None = None
    bandwidth: int | None = None
    flops: int | None = None
    unified: bool = False
    unverified: bool = False
    notes: tuple[str, ...] = ()

    @property
    def memory_bytes(self) -> int:
        """The best known figure of what a program gets: runtime, else driver, else an estimate."""
        if self.runtime_bytes or self.driver_bytes:
            return self.runtime_bytes or self.driver_bytes or 0
        share = UNIFIED_SHARE if self.unified else 1.0
        return int(self.marketed_gb * GIB * share)

    @property
    def memory_source(self) -> str:
        """Which figure `memory_bytes` is."""
        if self.runtime_bytes:
            return "seen by the runtime, from logs"
        if self.driver_bytes:
            return "as the driver reports it; the runtime sees a little less"
        if self.unified:
            return f"{UNIFIED_SHARE:.0%} of unified memory, an assumption"
        return "as marketed, an assumption"


def _read(name: str) -> dict:
    return json.loads(files("kvcore.data").joinpath(name).read_text(encoding="utf-8"))


def _models() -> dict[str, Model]:
    return {
        entry["name"]: Model(**{**entry, "date": date.fromisoformat(entry["date"])})
        for entry in _read("models.json")["models"]
    }


def _gpus() -> dict[str, GPU]:
    data = _read("gpus.json")
    when = date.fromisoformat(data["date"])
    return {entry["name"]: _gpu(entry, data["sources"], when) for entry in data["gpus"]}


def _gpu(entry: dict, sources: Mapping[str, str], when: date) -> GPU:
    notes = [entry[key] for key in entry if key.endswith("_note")]
    if "runtime_source" in entry:
        notes.append(f"runtime memory: {entry['runtime_source']}")
    return GPU(
        name=entry["name"],
        marketed_gb=entry["marketed_gb"],
        source="; ".join(sources[str(number)] for number in entry["sources"]),
        date=when,
        driver_bytes=_scaled(entry, "driver_mib", MIB),
        runtime_bytes=_scaled(entry, "runtime_gib", GIB),
        bandwidth=_scaled(entry, "bandwidth_gbps", 10**9),
        flops=_scaled(entry, "tflops", 10**12),
        unified=entry.get("unified", False),
        unverified=NOT_REFETCHED in entry["sources"],
        notes=tuple(notes),
    )


def _scaled(entry: dict, key: str, unit: int) -> int | None:
    return int(entry[key] * unit) if key in entry else None


MODELS: Mapping[str, Model] = _models()
GPUS: Mapping[str, GPU] = _gpus()
