"""Run a real language model with and without its key-value cache.

    from kvcore.decoding import load, generate
    model = load("gpt2")
    for step in generate(model, model.encode("Once upon a time"), 48, use_cache=True):
        print(model.decode([step.token_id]), step.seconds)

Nothing here imports torch before it is called for. `compare` runs both ways in turn and
`Comparison` says what came of it. `KVCache` and `forward` are for code that manages the cache
itself: see `kvcore.decoding.cache`.
"""

import os
from importlib import import_module

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # must be there before torch loads OpenMP

from kvcore.decoding.compare import Agreement, Comparison, Pair, compare  # noqa: E402
from kvcore.decoding.errors import (  # noqa: E402
    CacheError,
    DecodingError,
    LoadError,
    PromptError,
    SettingsError,
)
from kvcore.decoding.generate import Step, check_run, generate  # noqa: E402
from kvcore.decoding.known import KNOWN  # noqa: E402
from kvcore.decoding.load import load  # noqa: E402
from kvcore.decoding.timeline import Timeline  # noqa: E402

_IMPORT_TORCH = {
    "KVCache": "kvcore.decoding.cache",
    "TransformersSteps": "kvcore.decoding.reference",
    "forward": "kvcore.decoding.model",
    "measure_bandwidth": "kvcore.decoding.bandwidth",
}

__all__ = [
    "KNOWN",
    "Agreement",
    "CacheError",
    "Comparison",
    "DecodingError",
    "KVCache",
    "LoadError",
    "Pair",
    "PromptError",
    "SettingsError",
    "Step",
    "Timeline",
    "TransformersSteps",
    "check_run",
    "compare",
    "forward",
    "generate",
    "load",
    "measure_bandwidth",
]


def __getattr__(name: str) -> object:
    """The names whose modules import torch."""
    if name not in _IMPORT_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_IMPORT_TORCH[name]), name)
