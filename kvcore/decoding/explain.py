"""A timing run in words: are the replies the same, what was reached, how the numbers come about."""

from __future__ import annotations

from kvcore import units
from kvcore.decoding.compare import Agreement
from kvcore.decoding.run import Run

QUOTED_FACTOR = 16
"""The speed-up that introductory articles on the KV cache quote; it is marked, not promised."""


def verdict(agreement: Agreement) -> str:
    """Whether both ways gave the same reply, and the differences that show it."""
    if agreement.verdict is None:
        return "Nothing has been compared yet."
    numbers = (
        f"{agreement.compared:,} steps compared, all logits of each: the largest difference is "
        f"{agreement.largest_difference:.1e}, and the closest any runner-up came to being chosen "
        f"was {agreement.narrowest_gap:.1e}."
    )
    if agreement.verdict == "identical":
        return f"Token for token the same. {numbers}"
    at = f"They part at token {agreement.first_difference + 1:,}." if agreement.gap_there else ""
    if agreement.verdict == "rounding":
        return (
            f"{at} There the two best tokens were {agreement.gap_there:.1e} apart, closer than "
            "the order of arithmetic can tell. That is rounding, not approximation: neither reply "
            f"is the wrong one. {numbers}"
        )
    return (
        f"Something is wrong. {at} The difference is more than rounding can explain, so one of "
        f"the two ways computed something else. {numbers}"
    )


def disturbance(run: Run) -> str | None:
    """That other work took the processor; None where it did not."""
    if not run.was_disturbed:
        return None
    return (
        f"Other work took the processor for {units.percent(1 - run.cpu_share)} of the time, so "
        "the milliseconds are too high. Both ways were hit alike; the ratio still holds."
    )


def times_per_token(run: Run) -> str:
    """What a token takes each way, in the median."""
    cached, uncached = run.comparison.cached.per_token, run.comparison.uncached.per_token
    if not cached or not uncached:
        return "Time for each new token, with the cache and without."
    return (
        f"With the cache a token takes {units.ms(cached.median)}; without, "
        f"{units.ms(uncached.median)} in the median, and more the longer the text."
    )


def quoted_factor_reached(run: Run) -> str:
    """After how many tokens the cache was `QUOTED_FACTOR` times faster, if it was."""
    reached = run.comparison.tokens_until(QUOTED_FACTOR)
    if reached:
        return f"{QUOTED_FACTOR}× was reached after {reached:,} tokens on this machine."
    tokens = len(run.comparison.speed_up())
    return f"{QUOTED_FACTOR}× lies beyond these {tokens:,} tokens on this machine."


def text_without_cache(run: Run) -> str:
    """The reply of the uncached way, or where a sampled run computed it."""
    if not run.comparison.is_sampled:
        return run.settings.prompt + run.uncached_text
    places = f"Computed at {run.comparison.uncached.measured} places of the reply on the left"
    if run.comparison.agreement.verdict == "identical":
        return f"{places}; each gave the token that stands there."
    return f"{places}."


def arithmetic(run: Run) -> list[str]:
    """Tokens run, the cache and the floor of the last step, with the numbers of the run."""
    facts, last = run.facts, run.comparison.cached.steps[-1]
    n, prompt = run.comparison.cached.measured, facts.prompt_tokens
    held = last.cache_bytes // facts.cache_bytes_per_token
    lines = [
        f"tokens run without a cache: {prompt:,} + … + {prompt + n - 1:,} "
        f"= {sum(range(prompt, prompt + n)):,}",
        f"tokens run with it:         {prompt:,} + {n - 1:,} × 1 = {prompt + n - 1:,}",
        f"cache:                      {held:,} tokens × {facts.cache_bytes_per_token:,} B "
        f"= {last.cache_bytes:,} B (32 bits a number)",
    ]
    floor = run.floor_seconds(last.index)
    if floor is None:
        return lines
    read = facts.bytes_read + held * facts.cache_bytes_per_token
    return [
        *lines,
        f"read by the last step:      {facts.bytes_read:,} B of weights + "
        f"{held * facts.cache_bytes_per_token:,} B of cache = {read:,} B",
        f"floor:                      {read:,} B ÷ {run.bytes_per_second:,.0f} B/s "
        f"= {units.ms(floor)}; taken: {units.ms(last.seconds)}",
    ]
