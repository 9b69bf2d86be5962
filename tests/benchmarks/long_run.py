"""The largest run the cache lab is held to: 28 layers, 512 positions."""

from __future__ import annotations

from functools import cache

from kvcore.lab.run import Lab, Policy
from kvcore.lab.trace import Trace
from tests.small_models import deep_model

NUM_LAYERS, NUM_TOKENS = 28, 512


@cache
def long_run() -> Trace:
    """500 tokens of prompt, then 12 steps under a window, through a thin network of 28 layers."""
    lab = Lab(deep_model(NUM_LAYERS), policy=Policy("sinks", {"sinks": 4, "window": 400}))
    trace = lab.ask([7 * i % 256 for i in range(NUM_TOKENS - 12)])
    for _ in range(12):
        lab.step()
    return trace
