"""The example of the page: all experiments on one engine, recorded with a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from kvcore import recordings
from kvcore.architecture import Architecture
from kvcore.catalog import MODELS
from kvcore.decoding.known import SMOLLM2
from kvcore.serving.frames import from_records, to_records
from kvcore.serving.reserved import Fact
from kvcore.serving.run import Sample

RECORDING = "server"
FIRST_TOKEN, EARLY_CHANGE, TOKEN_TIME, RESERVED = (
    "First token",
    "One early character",
    "Time per token",
    "What it reserved",
)
TIMED = (FIRST_TOKEN, EARLY_CHANGE, TOKEN_TIME)
SMOLLM2_NAME = "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class EngineRun:
    """All experiments on an engine as it was started once.

    title: what sets this run apart. architecture: the model by its name here. log: the lines of
    its start-up log that hold figures. samples: by experiment.
    """

    title: str
    engine: str
    architecture: str
    command: str
    samples: Mapping[str, Sequence[Sample]]
    facts: Sequence[Fact] = ()
    log: str = ""

    def as_data(self) -> dict[str, Any]:
        samples = {name: to_records(each) for name, each in self.samples.items()}
        return {**asdict(self), "samples": samples, "facts": [asdict(fact) for fact in self.facts]}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> EngineRun:
        samples = {name: from_records(each) for name, each in data["samples"].items()}
        facts = tuple(Fact(**fact) for fact in data["facts"])
        return cls(**{**data, "samples": samples, "facts": facts})


@lru_cache
def recorded() -> tuple[recordings.Label, tuple[EngineRun, ...]]:
    """The recorded runs and their label. Raises FileNotFoundError where there is no recording."""
    found = recordings.read(RECORDING)
    return found.label, tuple(EngineRun.from_data(each) for each in found.data["runs"])


def architecture(name: str) -> Architecture:
    """A model by its name in the catalogue, or SmolLM2. Raises KeyError."""
    if name != SMOLLM2_NAME:
        return MODELS[name].architecture
    shape = {
        "model_type": "llama",
        "_name_or_path": SMOLLM2_NAME,
        "num_hidden_layers": SMOLLM2.num_layers,
        "num_attention_heads": SMOLLM2.num_heads,
        "num_key_value_heads": SMOLLM2.num_kv_heads,
        "head_dim": SMOLLM2.head_dim,
        "hidden_size": SMOLLM2.hidden_size,
        "max_position_embeddings": SMOLLM2.context_length,
        "vocab_size": SMOLLM2.vocab_size,
    }
    return Architecture.from_config(shape)


def architecture_names() -> tuple[str, ...]:
    return (SMOLLM2_NAME, *MODELS)


def likely_architecture(served: str) -> str | None:
    """The name here that a served model's id points at: the longest that stands in it."""
    plain = _plain(served)
    fitting = [name for name in architecture_names() if _plain(name) in plain]
    if "smollm2135m" in plain:
        return SMOLLM2_NAME
    return max(fitting, key=len, default=None)


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
