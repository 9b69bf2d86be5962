"""How fast the simulation is: it carries real block ids and still runs live on a page.

Limits and workload: the paper's ShareGPT lengths, a pool of 15,728 slots, blocks of 16, a queue
that never empties. Peers measured elsewhere on such lengths: vLLM 0.33's BlockPool with hashing
0.8 to 1.9 thousand requests a second, nano-vllm 0.6 to 0.7.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median

import numpy as np

from kvcore.paging import Request, paper_requests, simulate
from tests.benchmarks.figure import Figure

FOUR_POLICIES = ("contiguous-max", "contiguous-pow2", "contiguous-oracle", "paged")
NUM_REQUESTS = 7_200
ROUNDS = 3


def figures() -> Iterator[Figure]:
    requests = paper_requests(NUM_REQUESTS)
    hashed = with_token_ids(requests)
    runs: dict[str, Callable[[], object]] = {
        "ids": lambda: simulate(requests, "paged"),
        "hashed": lambda: simulate(hashed, "paged"),
        "four": lambda: [simulate(requests, policy) for policy in FOUR_POLICIES],
    }
    seconds = interleaved(runs)
    note = f"processor time, median of {ROUNDS} interleaved runs of {NUM_REQUESTS:,} requests"
    yield Figure(
        "paged engine with block ids, no hashing",
        NUM_REQUESTS / seconds["ids"],
        10_000,
        "req/s",
        note=note,
    )
    yield Figure(
        "paged engine with block ids and prefix hashing (sha256 chain)",
        NUM_REQUESTS / seconds["hashed"],
        2_000,
        "req/s",
        note=note,
    )
    yield Figure(
        "four policies on 7,200 requests", seconds["four"], 2, "s", at_least=False, note=note
    )


def interleaved(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median seconds of each, taken in turns so that a busy moment hits all alike.

    Processor seconds: the simulation is one thread that never waits, so on a machine that does
    nothing else they are the seconds on the clock.
    """
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.process_time()
            run()
            taken[name].append(time.process_time() - start)
    return {name: median(times) for name, times in taken.items()}


def with_token_ids(requests: list[Request]) -> list[Request]:
    """The same lengths with unique contents, so that every full block is hashed and none found."""
    rng = np.random.default_rng(0)
    return [
        replace(request, token_ids=rng.integers(0, 50_257, request.length).tolist())
        for request in requests
    ]
