"""Exports of the Claude Console and of Anthropic's usage and cost report API.

Counts are exclusive: cache reads and writes stand beside the uncached input. Rows sum a period and
carry no number of requests, so `context_window` alone says which long-context price applies.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvcore.costs.exports.layout import Format, Layout, Record, dig, first


def _report_rows(row: Record) -> Iterable[Record]:
    yield {
        "at": row.get("starting_at"),
        "model": row.get("model"),
        "input": row.get("uncached_input_tokens"),
        "write": row.get("cache_creation_input_tokens"),
        "write_short": _write_count(row, "ephemeral_5m_input_tokens"),
        "write_long": _write_count(row, "ephemeral_1h_input_tokens"),
        "cache_read": row.get("cache_read_input_tokens"),
        "output": row.get("output_tokens"),
        "context": row.get("context_window"),
        "service_tier": row.get("service_tier"),
        "geo": row.get("inference_geo"),
        "speed": row.get("speed"),
        "web_searches": dig(row, "server_tool_use", "web_search_requests"),
    }


def _write_count(row: Record, name: str) -> object:
    """A count of `cache_creation`, nested as in JSON or flattened as in a table."""
    nested = dig(row, "cache_creation", name)
    return nested if nested is not None else first(row, f"cache_creation.{name}", name)


def _cost_rows(row: Record) -> Iterable[Record]:
    """Amounts are in cents, as decimal text."""
    amount = row.get("amount")
    try:
        dollars = float(amount) / 100
    except (TypeError, ValueError):
        dollars = amount
    yield {
        "at": row.get("starting_at"),
        "model": first(row, "model", "description"),
        "cost": dollars,
    }


CONSOLE_USAGE = Layout(
    Format.CLAUDE_CONSOLE_USAGE,
    names={
        "at": ("usage_date_utc",),
        "model": ("model_version", "model"),
        "input": ("usage_input_tokens_no_cache",),
        "write_short": ("usage_input_tokens_cache_write_5m",),
        "write_long": ("usage_input_tokens_cache_write_1h",),
        "cache_read": ("usage_input_tokens_cache_read",),
        "output": ("usage_output_tokens",),
        "context": ("context_window",),
        "service_tier": ("usage_type",),
        "geo": ("inference_geo",),
        "speed": ("speed",),
        "web_searches": ("web_search_count",),
    },
    table_signs=(
        frozenset({"usage_date_utc", "model_version"}),
        frozenset({"usage_input_tokens_no_cache"}),
    ),
    needs=("input", "cache_read", "write_short", "output"),
    aggregated=True,
    provider="anthropic",
)

CONSOLE_COST = Layout(
    Format.CLAUDE_CONSOLE_COST,
    names={"at": ("usage_date_utc",), "model": ("model",), "cost": ("cost_usd",)},
    table_signs=(frozenset({"cost_usd", "token_type"}), frozenset({"usage_date_utc", "cost_usd"})),
    needs=("cost",),
    aggregated=True,
    provider="anthropic",
)

USAGE_REPORT = Layout(
    Format.ANTHROPIC_USAGE_REPORT,
    names={"input": ("uncached_input_tokens",), "output": ("output_tokens",)},
    table_signs=(frozenset({"uncached_input_tokens", "output_tokens"}),),
    object_sign=lambda row: "uncached_input_tokens" in row,
    needs=("input", "cache_read", "output"),
    aggregated=True,
    provider="anthropic",
    records=_report_rows,
    array="data",
    inner="results",
)

COST_REPORT = Layout(
    Format.ANTHROPIC_COST_REPORT,
    object_sign=lambda row: "starting_at" in row and isinstance(row.get("amount"), str | float),
    needs=("cost",),
    aggregated=True,
    provider="anthropic",
    records=_cost_rows,
    array="data",
    inner="results",
)

LAYOUTS = (CONSOLE_USAGE, CONSOLE_COST, USAGE_REPORT, COST_REPORT)
