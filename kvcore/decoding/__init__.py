"""Run a real language model with and without its key-value cache.

    from kvcore.decoding import load, generate
    model = load("gpt2")
    for step in generate(model, model.encode("Once upon a time"), 48, use_cache=True):
        print(model.decode([step.token_id]), step.seconds)

Nothing here imports torch before it is called for. `KVCache` and `forward` are for code that
manages the cache itself: see `kvcore.decoding.cache`.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # must be there before torch loads OpenMP

from kvcore.decoding.errors import CacheError, DecodingError, LoadError, PromptError  # noqa: E402
from kvcore.decoding.known import KNOWN  # noqa: E402
from kvcore.decoding.load import load  # noqa: E402

__all__ = [
    "KNOWN",
    "CacheError",
    "DecodingError",
    "KVCache",
    "LoadError",
    "PromptError",
    "forward",
    "load",
]


def __getattr__(name: str) -> object:
    """`KVCache` and `forward`, whose modules import torch."""
    if name == "KVCache":
        from kvcore.decoding.cache import KVCache

        return KVCache
    if name == "forward":
        from kvcore.decoding.model import forward

        return forward
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
