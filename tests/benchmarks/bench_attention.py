"""Decode attention with shared heads, against torch's own `enable_gqa`, in one process."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from kvcore.attention import (
    ENABLE_GQA,
    PACKED,
    Sample,
    Shape,
    Sharing,
    Variant,
    measure,
    timings,
    variants,
)
from tests.benchmarks.figure import Figure

AT_LEAST = {1024: 1.3, 2048: 1.3, 4096: 1.3, 8192: 2.0}
ROUNDS = 21


def figures() -> Iterator[Figure]:
    for context, limit in AT_LEAST.items():
        shape = Shape(batch=4, num_query_heads=32, head_dim=128, context=context)
        chosen = variants(32, [8, 1], [PACKED, ENABLE_GQA])
        samples = list(measure(shape, chosen, rounds=ROUNDS))
        packed, switch = (Variant(Sharing(32, 8), form) for form in (PACKED, ENABLE_GQA))
        lines = {line.variant: line for line in timings(samples)}
        yield Figure(
            f"GQA-8 packed against SDPA enable_gqa=True, {context:,} tokens",
            paired(samples, switch, packed),
            limit,
            "x",
        )
        yield Figure(
            f"MHA to GQA-8 (ideal 4), {context:,} tokens",
            lines[packed].speed_up,
            3.0,
            "x",
            note=f"bandwidth reached: MHA {lines[chosen[0]].share_of_bandwidth:.0%}, "
            f"GQA-8 {lines[packed].share_of_bandwidth:.0%}",
        )
        yield Figure(
            f"MHA to MQA (ideal 32), {context:,} tokens",
            lines[Variant(Sharing(32, 1), PACKED)].speed_up,
            6.0,
            "x",
        )


def paired(samples: list[Sample], slow: Variant, fast: Variant) -> float:
    """Median over rounds of one variant's time over another's."""
    seconds = {(s.variant, s.round): s.seconds for s in samples if s.variant is not None}
    rounds = {index for variant, index in seconds if variant == slow}
    return statistics.median(seconds[slow, index] / seconds[fast, index] for index in rounds)
