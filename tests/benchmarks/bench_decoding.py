"""Decoding on one thread: against `transformers`, against the memory's limit, sampled against full.

Everything is run step by step in turn in one process, and ratios are medians of neighbouring steps,
so that a busy machine slows both sides alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter

from kvcore.decoding import Comparison, TransformersSteps, compare, load, measure_bandwidth
from kvcore.decoding.generate import Way
from tests.benchmarks.figure import Figure

STEPS = 40
WARM_UP = 3
NEW_TOKENS = 200
PROMPT = "Once upon a time there was a library whose books were never twice the same."


def figures() -> Iterator[Figure]:
    model = load("gpt2")
    reference = TransformersSteps(model)
    for position in (64, 512):
        yield from against_transformers(model, reference, position)
    del reference
    yield sampled_against_full(model)


def against_transformers(model, reference, position: int) -> Iterator[Figure]:
    """Our step, theirs on the same text, and a pure read of the weights, in turn."""
    prompt = (model.encode(PROMPT) * position)[:position]
    way = Way(model, prompt, STEPS + WARM_UP + 1, use_cache=True, temperature=0.0, seed=0)
    way.step()
    reference.restart()
    reference.step(prompt)
    ours, ratios, shares, their_shares = [], [], [], []
    for step in range(STEPS + WARM_UP):
        mine = way.step()
        _, theirs = reference.step(way.token_ids[-2:-1])
        if step < WARM_UP:
            continue
        limit = measure_bandwidth(model, rounds=1)
        ours.append(mine.seconds)
        ratios.append(mine.seconds / theirs)
        shares.append(limit.share(model, position + step, mine.seconds))
        their_shares.append(limit.share(model, position + step, theirs))
    note = (
        f"ours {median(ours) * 1e3:.1f} ms, median of {STEPS} steps, {model.source} weights; "
        f"by the read speed measured here theirs reaches {median(their_shares):.0%} of the limit, "
        f"ours {median(shares):.0%}"
    )
    yield Figure(
        f"decode time / transformers', GPT-2, position {position}",
        median(ratios),
        0.75,
        "×",
        at_least=False,
        note=note,
    )
    yield Figure(
        f"share of the memory-bandwidth limit, position {position}", median(shares), 0.73, "×"
    )


def sampled_against_full(model) -> Figure:
    """Both ways in full, and beside it the sampled mode: how far apart are the uncached totals?"""
    prompt = model.encode(PROMPT)
    full, sampled = Comparison(len(prompt), NEW_TOKENS), Comparison(len(prompt), NEW_TOKENS, 24)
    began = perf_counter()
    pairs = zip(
        compare(model, prompt, NEW_TOKENS),
        compare(model, prompt, NEW_TOKENS, samples=sampled.samples),
        strict=True,
    )
    for in_full, in_part in pairs:
        full.add(in_full)
        sampled.add(in_part)
    estimate, total = sampled.uncached.total_seconds, full.uncached.total_seconds
    return Figure(
        f"sampled total against the full one, {NEW_TOKENS} tokens",
        abs(estimate / total - 1) * 100,
        3.0,
        "%",
        at_least=False,
        note=f"{estimate:.1f} s from {sampled.uncached.measured} steps, {total:.1f} s in full; "
        f"{full.agreement.verdict}, largest difference {full.agreement.largest_difference:.1e}; "
        f"speed-up {full.speed_up()[-1]:.1f}×; {perf_counter() - began:.0f} s",
    )
