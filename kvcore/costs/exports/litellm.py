"""LiteLLM's spend logs (one row a request) and daily totals, as CSV, JSON or JSONL.

`prompt_tokens` includes cache reads and writes. In spend logs the counts of the prompt cache hide
in `metadata` or in the response; the column `cache_hit` is about LiteLLM's own cache of whole
responses, where no provider was called and nothing was charged.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvcore.costs.exports.layout import Format, Layout, NotUsage, Record, dig, first
from kvcore.costs.exports.text import parsed_cell

_USAGE_PATHS = (
    ("metadata", "usage_object"),
    ("response", "usage"),
    ("metadata", "additional_usage_values"),
)


def _spend_log_rows(row: Record) -> Iterable[Record]:
    if str(row.get("cache_hit", "")).strip().lower() in ("true", "1"):
        raise NotUsage("answered from LiteLLM's cache of responses, nothing was charged")
    lowered = {str(name).lower(): value for name, value in row.items()}
    parts = {
        name: parsed_cell(lowered.get(name))
        for name in ("metadata", "response")
    }  # fmt: skip
    usages = [usage for path in _USAGE_PATHS if isinstance(usage := dig(parts, *path), dict)]
    yield {
        "at": first(lowered, "starttime", "start_time"),
        "model": first(lowered, "model"),
        "provider": first(lowered, "custom_llm_provider"),
        "input": lowered.get("prompt_tokens"),
        "output": lowered.get("completion_tokens"),
        "cache_read": _first_count(
            usages, ("cache_read_input_tokens",), ("prompt_tokens_details", "cached_tokens")
        ),
        "write": _first_count(
            usages,
            ("cache_creation_input_tokens",),
            ("prompt_tokens_details", "cache_creation_tokens"),
            ("prompt_tokens_details", "cache_write_tokens"),
        ),
        "write_long": _first_count(usages, *_LONG_PATHS),
        "cost": lowered.get("spend"),
        "identity": lowered.get("request_id"),
        "session": lowered.get("session_id"),
    }


_LONG_PATHS = (
    ("cache_creation", "ephemeral_1h_input_tokens"),
    (
        "prompt_tokens_details",
        "cache_creation_token_details",
        "ephemeral_1h_input_tokens",
    ),
)


def _first_count(usages: list[Record], *paths: tuple[str, ...]) -> object:
    for usage in usages:
        for path in paths:
            value = dig(usage, *path)
            if value is not None:
                return value
    return None


_DAILY = {
    "at": ("date",),
    "model": ("model",),
    "provider": ("custom_llm_provider",),
    "input": ("prompt_tokens",),
    "cache_read": ("cache_read_input_tokens",),
    "write": ("cache_creation_input_tokens",),
    "output": ("completion_tokens",),
    "requests": ("api_requests", "successful_requests"),
    "cost": ("spend",),
}


def _daily_rows(row: Record) -> Iterable[Record]:
    """A row of the table, or a day of `/user/daily/activity` with its models inside."""
    models = dig(row, "breakdown", "models")
    if not isinstance(models, dict):
        yield {column: first(row, *names) for column, names in _DAILY.items()}
        return
    for model, entry in models.items():
        metrics = dig(entry, "metrics")
        if not isinstance(metrics, dict):
            metrics = entry if isinstance(entry, dict) else {}
        yield {column: first(metrics, *names) for column, names in _DAILY.items()} | {
            "at": row.get("date"),
            "model": model,
        }


SPEND_LOGS = Layout(
    Format.LITELLM_SPEND_LOGS,
    table_signs=(
        frozenset({"spend", "prompt_tokens", "starttime"}),
        frozenset({"prompt_tokens", "completion_tokens", "starttime"}),
    ),
    object_sign=lambda row: "prompt_tokens" in row and "startTime" in row,
    inclusive=True,
    records=_spend_log_rows,
    array="data",
)

DAILY = Layout(
    Format.LITELLM_DAILY,
    names=_DAILY,
    table_signs=(
        frozenset({"cache_read_input_tokens", "prompt_tokens", "date"}),
        frozenset({"prompt_caching_savings_spend", "prompt_tokens"}),
        frozenset({"api_requests", "prompt_tokens", "spend"}),
    ),
    inclusive=True,
    aggregated=True,
)

DAILY_PAGES = Layout(
    Format.LITELLM_DAILY,
    object_sign=lambda row: (
        ("prompt_tokens" in row and "api_requests" in row and "date" in row)
        or isinstance(dig(row, "breakdown", "models"), dict)
    ),
    inclusive=True,
    aggregated=True,
    records=_daily_rows,
    array="results",
)


LAYOUTS = (SPEND_LOGS, DAILY, DAILY_PAGES)
