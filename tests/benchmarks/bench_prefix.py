"""Time to the first token with a reused prefix, and the block pool's bookkeeping."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from kvcore.decoding import load
from kvcore.lab.run import Lab, Settings
from kvcore.prefix import BlockPool, replay
from tests.benchmarks.figure import Figure
from tests.shared_data import FOLDER

CAPACITIES = (None, 1_000, 3_000, 10_000, 30_000, 50_000, 100_000)
SUFFIX = 20
LIMITS = {200: 3.5, 500: 7.0, 900: 12.0}
ROUNDS = 5


def figures() -> Iterator[Figure]:
    yield from first_tokens()
    yield from bookkeeping()
    yield from trace_replay()


def trace_replay() -> Iterator[Figure]:
    """Mooncake's conversation trace without limit and at six capacities, where it is at hand."""
    path = FOLDER / "mooncake_fast25_conversation.jsonl.gz"
    if not path.exists():
        print(f"# prefix: {path.name} is not beside this checkout, the replay is not timed")
        return
    with gzip.open(path, "rt") as lines:
        hashes = [json.loads(line)["hash_ids"] for line in lines]
    start = time.perf_counter()
    rates = [replay(hashes, capacity).block_hit_rate for capacity in CAPACITIES]
    seconds = time.perf_counter() - start
    note = f"{len(hashes):,} requests, hit rates {', '.join(f'{rate:.3f}' for rate in rates)}"
    yield Figure("conversation trace replayed at seven capacities", seconds, 60, "s", False, note)


def first_tokens() -> Iterator[Figure]:
    """Cold against warm on GPT-2, in turn, each through the lab: look-up, copying, forward pass.

    Blocks hold 20 tokens, so that the prefixes are whole blocks and exactly the suffix is left.
    """
    model = load("gpt2", sources=("cache", "random"))
    for prefix, limit in LIMITS.items():
        cold, warm = zip(
            *(cold_and_warm(model, prefix, seed) for seed in range(ROUNDS)), strict=True
        )
        note = (
            f"cold {median(cold) * 1000:.0f} ms, warm {median(warm) * 1000:.0f} ms, {model.source}"
        )
        name = f"first token, prefix of {prefix} reused, cold over warm"
        ratio = median(c / w for c, w in zip(cold, warm, strict=True))
        yield Figure(name, ratio, limit, "×", note=note)


def cold_and_warm(model: Any, prefix: int, seed: int) -> tuple[float, float]:
    """Seconds to the first token of a prompt whose prefix is new, then of one that shares it."""
    draw = random.Random(1_000 * prefix + seed)
    shared, first, second = (
        draw.choices(range(model.vocab_size), k=count) for count in (prefix, SUFFIX, SUFFIX)
    )
    lab = Lab(model, Settings(block_size=SUFFIX, num_blocks=60))
    cold = lab.ask(shared + first, compare=False).prefill
    warm = lab.ask(shared + second, compare=False).prefill
    assert (cold.cached_tokens, warm.cached_tokens) == (0, prefix)
    return cold.seconds, warm.seconds


def bookkeeping() -> Iterator[Figure]:
    """Requests (161 + 338 tokens, ShareGPT's means) in a second of processor time.

    The limit is what vLLM's own BlockPool did on such a load, hashing included.
    """
    name = "block pool, admit, grow by a block at a time, hash and free"
    yield Figure(name, median(requests_per_second() for _ in range(3)), 1_900, "req/s")


def requests_per_second(count: int = 300, batch: int = 32) -> float:
    draw = random.Random(0)
    requests = [draw.choices(range(50_000), k=499) for _ in range(count)]
    pool = BlockPool(1_600)
    running = []
    start = time.thread_time()
    for request in requests:
        if len(running) == batch:
            pool.free(running.pop(0))
        table = pool.allocate(request[:161])
        for first in range(161, 499, 16):
            pool.append(table, request[first : first + 16])
        running.append(table)
    return count / (time.thread_time() - start)
