"""Blocks that sharing saves, in closed form and by counting.

Kwon et al. (SOSP 2023), section 6.3: the saving is blocks saved by sharing over blocks without.
Beam search shares more, but how much depends on which beams survive, which no length says; it is
not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from kvcore.paging.paper import (
    ALPACA_MEAN_OUTPUT,
    ALPACA_MEAN_PROMPT,
    ALPACA_PARALLEL_SAVING,
)
from kvcore.paging.requests import Request, lognormal_requests

THESE, ALPACA_HERE, ALPACA_PAPER = (
    "These requests, computed here",
    "Alpaca's means, computed here",
    "Alpaca, the paper's Figure 15",
)


def parallel_saving(requests: Sequence[Request], samples: int, block_size: int = 16) -> float:
    """Share of blocks saved when `samples` equally long outputs share each prompt, 0 to 1.

    Full prompt blocks are shared, the half-filled one is copied at the first write. Averaged over
    decode steps: (n - 1)/n x sum(floor(p/B) o) / sum over steps of ceil((p + t)/B). Raises
    ValueError without requests or for fewer than one sample.
    """
    if not requests or samples < 1:
        raise ValueError("There must be at least one request and one sample.")
    shared = sum(request.prompt // block_size * request.output for request in requests)
    held = sum(_block_steps(request, block_size) for request in requests)
    return (samples - 1) / samples * shared / held


def prefix_saving(requests: Sequence[Request], prefix_tokens: int, block_size: int = 16) -> float:
    """Share of a lone request's blocks that a prefix already in the pool saves, 0 to 1.

    The prefix stands before each prompt; its full blocks are held once for all. Averaged over
    decode steps. Raises ValueError without requests or for a negative prefix.
    """
    if not requests or prefix_tokens < 0:
        raise ValueError("There must be at least one request, and the prefix cannot be negative.")
    shared = sum(prefix_tokens // block_size * request.output for request in requests)
    held = sum(_block_steps(request, block_size, prefix_tokens) for request in requests)
    return shared / held


def _block_steps(request: Request, block_size: int, prefix_tokens: int = 0) -> int:
    """Sum over the output's steps t = 1..o of ceil((prefix + p + t) / block_size)."""
    start = prefix_tokens + request.prompt
    return _sum_of_ceils(start + request.output, block_size) - _sum_of_ceils(start, block_size)


def _sum_of_ceils(length: int, block_size: int) -> int:
    """Sum of ceil(t / block_size) for t from 1 to `length`."""
    full, rest = divmod(length, block_size)
    return block_size * full * (full + 1) // 2 + rest * (full + 1)


def savings_table(requests: Sequence[Request], block_size: int, seed: int = 0) -> pd.DataFrame:
    """Percent of blocks saved by 2 to 6 samples: these requests, Alpaca's means, the paper.

    Columns: samples, series, percent.
    """
    alpaca = lognormal_requests(4_000, ALPACA_MEAN_PROMPT, ALPACA_MEAN_OUTPUT, 0.5, 1.0, seed)
    rows = []
    for samples in range(2, 7):
        rows.append((samples, THESE, 100 * parallel_saving(requests, samples, block_size)))
        rows.append((samples, ALPACA_HERE, 100 * parallel_saving(alpaca, samples, block_size)))
        if samples in ALPACA_PARALLEL_SAVING:
            rows.append((samples, ALPACA_PAPER, ALPACA_PARALLEL_SAVING[samples]))
    return pd.DataFrame(rows, columns=["samples", "series", "percent"])


@dataclass(frozen=True, slots=True)
class Savings:
    """Percent of blocks saved by these samples, by this prefix, and the table beside the paper."""

    by_samples: float
    by_prefix: float
    table: pd.DataFrame


def savings(
    requests: Sequence[Request], samples: int, prefix_tokens: int, block_size: int
) -> Savings:
    """All closed forms for one choice of samples and prefix."""
    return Savings(
        100 * parallel_saving(requests, samples, block_size),
        100 * prefix_saving(requests, prefix_tokens, block_size),
        savings_table(requests, block_size),
    )


def shared_runs(
    requests: Sequence[Request], samples: int, prefix_tokens: int, max_model_len: int
) -> dict[str, list[Request]]:
    """The same work with and without sharing: a common prefix before each prompt, samples of it.

    Requests that would be too long with the prefix are left out of both. Without sharing each
    sample is a request of its own.
    """
    longer = [
        replace(request, prompt=request.prompt + prefix_tokens, token_ids=None, hash_ids=None)
        for request in requests
        if request.length + prefix_tokens <= max_model_len
    ]
    shared = [
        replace(
            request,
            samples=samples,
            prefix_id="common" if prefix_tokens else None,
            prefix_tokens=prefix_tokens,
        )
        for request in longer
    ]
    return {"shared": shared, "apart": [request for request in longer for _ in range(samples)]}
