"""A step of the lab in words: what the cache holds, how the numbers come about, what they show."""

from __future__ import annotations

from collections.abc import Sequence

from kvcore import units
from kvcore.lab.experiment import Asked
from kvcore.lab.trace import Frame, Prefill, Trace


def hit_rate(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:.1%}"


def takeaway(trace: Trace, frame: Frame) -> str:
    """The picture of the cache in one sentence."""
    gone = frame.num_tokens - frame.cached_tokens
    return (
        f"The cache of {trace.about.num_layers} layers holds {frame.cached_tokens} of "
        f"{frame.num_tokens} tokens in {frame.blocks_held} blocks; "
        f"{min(trace.prefill.cached_tokens, frame.num_tokens)} of the prompt came from the pool, "
        f"{gone} are evicted."
    )


def positions_note(trace: Trace) -> str:
    """What an eviction does to the positions of those who stay."""
    if not trace.about.renumber:
        return "Positions are kept as they were, so what stays keeps its true distance."
    if trace.about.model == "smollm2":
        return "What stays is renumbered from 0 and its keys are turned to the new places."
    return (
        "What stays is renumbered from 0. GPT-2 adds positions to its input, so keys already made "
        "keep theirs and only new tokens get the new numbers."
    )


def eviction_note(frame: Frame) -> str | None:
    """What this step evicted and gave back; None when it evicted nothing."""
    if not frame.evicted:
        return None
    gone = "1 token" if len(frame.evicted) == 1 else f"{len(frame.evicted):,} tokens"
    if not frame.freed:
        return f"This step evicted {gone} and freed no block: others in them stay."
    return f"This step evicted {gone} and gave back block {', '.join(map(str, frame.freed))}."


def times_note(rows: Sequence[Asked]) -> str | None:
    """What asking again saves and what the time at the top costs; None before both were asked."""
    if len(rows) <= 3:
        return None
    cold, again, top = (row.prefill for row in rows[:3])
    return (
        f"Asked again, {again.cached_tokens} of {again.prompt_tokens} tokens were found, and "
        f"the first token came after {units.ms(again.seconds)} instead of "
        f"{units.ms(cold.seconds)}. With the time at the top the hit rate fell to "
        f"{top.hit_rate:.0%}: {units.ms(top.seconds)}. The name of a block is a hash of its "
        "tokens and of the block before it, so a new first block renames all that follow."
    )


def arithmetic(trace: Trace, frame: Frame) -> list[str]:
    """The formulas of memory and reuse with the numbers of this step, one a line."""
    about, prefill = trace.about, trace.prefill
    reusable = (prefill.prompt_tokens - 1) // about.block_size * about.block_size
    lines = [
        "bytes a token = 2 (key, value) × layers × KV heads × head dimension × 4 (fp32)",
        f"              = 2 × {about.num_layers} × {about.num_kv_heads} × {about.head_dim} × 4 "
        f"= {about.bytes_per_token:,} B",
        f"KV memory     = {frame.cached_tokens:,} tokens × {about.bytes_per_token:,} B "
        f"= {frame.cached_tokens * about.bytes_per_token:,} B",
        f"in blocks     = {frame.blocks_held} × {about.block_size} × {about.bytes_per_token:,} B "
        f"= {trace.block_bytes(frame):,} B",
        f"most reusable = floor((prompt - 1) / block) × block = floor(({prefill.prompt_tokens} - 1)"
        f" / {about.block_size}) × {about.block_size} = {reusable} tokens",
        f"this request  = {prefill.cached_tokens} / {prefill.prompt_tokens} tokens found "
        f"= {prefill.hit_rate:.1%}",
        f"hit rate      = found / asked, each admitted request once = {hit_rate(frame.hit_rate)}; "
        f"with retries and returns counted: {hit_rate(frame.naive_hit_rate)}",
    ]
    return lines if prefill.cold_seconds is None else [*lines, _saved(prefill)]


def _saved(prefill: Prefill) -> str:
    return (
        f"prefill saved = {units.ms(prefill.cold_seconds)} cold - {units.ms(prefill.seconds)} "
        f"warm = {units.ms(prefill.saved_seconds)}; largest difference of the logits "
        f"{prefill.largest_difference:.1e}, same token: {'yes' if prefill.same_token else 'no'}"
    )
