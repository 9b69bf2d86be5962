"""Helicone's request export, JSON, JSONL or CSV; the body of the response is optional.

Where the body is there its usage is taken, because it keeps lifetimes apart. Without it the
columns are: `prompt_tokens` is exclusive for Anthropic and inclusive for others, as their APIs are.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvcore.costs.exports.layout import Format, Layout, NotUsage, Record, RowProblem, first
from kvcore.costs.exports.responses import exclusive_counts, find_usage
from kvcore.costs.exports.text import parsed_cell

_EXCLUSIVE = ("anthropic", "aws", "bedrock")


def _rows(record: Record) -> Iterable[Record]:
    row = {str(name).lower(): value for name, value in record.items()}
    status = first(row, "response_status", "status")
    if status is not None and str(status) not in ("200", "200.0", "success", "0", "201"):
        raise NotUsage("a request that failed")
    provider = str(first(row, "provider") or "").lower()
    model = first(row, "response_model", "model", "request_model", "model_override")
    yield {
        **_counts(row, provider, str(model or "")),
        "at": first(row, "request_created_at", "created_at", "response_created_at"),
        "model": model,
        "provider": None if provider in ("custom", "helicone") else provider or None,
        "cost": first(row, "cost", "costusd", "cost_usd"),
        "identity": first(row, "request_id", "response_id"),
        "session": first(row, "helicone-session-id", "session_id"),
    }


def _counts(row: Record, provider: str, model: str) -> dict[str, object]:
    body = parsed_cell(first(row, "response_body", "response", "body"))
    found = find_usage(body) if isinstance(body, dict) else None
    if found is not None:
        return exclusive_counts(found[1])
    counts = {
        "input": first(row, "prompt_tokens", "request_tokens"),
        "output": first(row, "completion_tokens", "response_tokens"),
        "cache_read": row.get("prompt_cache_read_tokens"),
        "write_short": row.get("prompt_cache_write_tokens"),
        "write_long": row.get("prompt_cache_write_1h"),
    }
    exclusive = provider in _EXCLUSIVE or "claude" in model.lower()
    return counts if exclusive else _without_cached(counts)


def _without_cached(counts: dict[str, object]) -> dict[str, object]:
    try:
        cached = [
            int(float(str(counts[name] or 0)))
            for name in ("cache_read", "write_short", "write_long")
        ]
        total = int(float(str(counts["input"])))
    except (ValueError, OverflowError):
        return counts
    if min(total, *cached) >= 0 and sum(cached) > total:
        raise RowProblem(f"cache reads and writes ({sum(cached):,}) exceed the input ({total:,})")
    return {**counts, "input": total - sum(cached) if min(total, *cached) >= 0 else counts["input"]}


REQUESTS = Layout(
    Format.HELICONE,
    table_signs=(
        frozenset({"request_created_at"}),
        frozenset({"request_id", "response_status"}),
        frozenset({"prompt_cache_read_tokens", "completion_tokens"}),
    ),
    object_sign=lambda row: "request_created_at" in row or "prompt_cache_read_tokens" in row,
    records=_rows,
    array="data",
)

LAYOUTS = (REQUESTS,)
