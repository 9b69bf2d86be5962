"""OpenRouter's activity CSV: one row a request, so times between requests are real.

`tokens_prompt` includes cached tokens. `cost_total` is what was charged, `cost_cache` the discount
of reads or the surcharge of writes; writes have no count of their own in older files.
"""

from __future__ import annotations

from kvcore.costs.exports.layout import Format, Layout

ACTIVITY = Layout(
    Format.OPENROUTER,
    names={
        "at": ("created_at",),
        "model": ("model_permaslug", "model"),
        "input": ("tokens_prompt", "native_tokens_prompt"),
        "cache_read": ("tokens_cached", "native_tokens_cached"),
        "write": ("tokens_cache_write", "tokens_cached_write"),
        "output": ("tokens_completion", "native_tokens_completion"),
        "cost": ("cost_total",),
        "identity": ("generation_id",),
        "session": ("session_id", "user"),
    },
    table_signs=(
        frozenset({"generation_id", "tokens_prompt"}),
        frozenset({"model_permaslug", "tokens_prompt"}),
        frozenset({"generation_id", "model_permaslug"}),
    ),
    inclusive=True,
    provider="openrouter",
)

LAYOUTS = (ACTIVITY,)
