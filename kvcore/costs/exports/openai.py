"""Exports of the OpenAI usage and cost pages, as CSV, TSV or the JSON of the API.

`input_tokens` includes cached tokens and cache writes. `input_cache_write_tokens` is a total beside
its two lifetimes (in older exports the short one alone), so it is never added to them.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvcore.costs.exports.layout import Format, Layout, Record, dig, first

_NAMES = {
    "at": ("start_time_iso", "start_time", "date"),
    "model": ("model",),
    "input": ("input_tokens",),
    "cache_read": ("input_cached_tokens",),
    "write": ("input_cache_write_tokens",),
    "write_short": ("input_cache_write_30m_tokens",),
    "write_long": ("input_cache_write_12h_tokens",),
    "output": ("output_tokens",),
    "requests": ("num_model_requests", "num_requests"),
    "batch": ("batch",),
    "service_tier": ("service_tier",),
}

_KINDS = {
    "input_audio_tokens": ("input_audio_tokens",),
    "input_image_tokens": ("input_image_tokens",),
    "cache_audio_read_tokens": ("input_cached_audio_tokens",),
    "cache_image_read_tokens": ("input_cached_image_tokens",),
    "output_audio_tokens": ("output_audio_tokens",),
    "output_image_tokens": ("output_image_tokens",),
}


def _usage_rows(row: Record) -> Iterable[Record]:
    kinds = {key: value for key, names in _KINDS.items() if (value := first(row, *names))}
    yield {column: first(row, *names) for column, names in _NAMES.items()} | {
        "details": kinds or None
    }


def _cost_rows(row: Record) -> Iterable[Record]:
    yield {
        "at": row.get("start_time"),
        "model": row.get("line_item"),
        "cost": dig(row, "amount", "value"),
    }


def _is_usage(row: Record) -> bool:
    kind = str(row.get("object", ""))
    return kind.startswith("organization.usage.completions") or (
        "num_model_requests" in row and "input_tokens" in row
    )


USAGE = Layout(
    Format.OPENAI_USAGE,
    names=_NAMES,
    kinds=_KINDS,
    table_signs=(
        frozenset({"input_tokens", "output_tokens", "num_model_requests"}),
        frozenset({"input_tokens", "input_cached_tokens"}),
        frozenset({"num_model_requests"}),
    ),
    needs=("input", "output"),
    inclusive=True,
    aggregated=True,
    provider="openai",
)

USAGE_PAGES = Layout(
    Format.OPENAI_USAGE,
    object_sign=_is_usage,
    inclusive=True,
    aggregated=True,
    provider="openai",
    records=_usage_rows,
    array="data",
    inner="results",
)

COST = Layout(
    Format.OPENAI_COST,
    names={
        "at": ("start_time_iso", "start_time"),
        "model": ("line_item",),
        "cost": ("amount_value", "amount"),
    },
    table_signs=(frozenset({"amount_value"}), frozenset({"line_item", "amount"})),
    needs=("cost",),
    aggregated=True,
    provider="openai",
)

COST_PAGES = Layout(
    Format.OPENAI_COST,
    object_sign=lambda row: isinstance(row.get("amount"), dict),
    needs=("cost",),
    aggregated=True,
    provider="openai",
    records=_cost_rows,
    array="data",
    inner="results",
)

LAYOUTS = (USAGE, USAGE_PAGES, COST, COST_PAGES)
