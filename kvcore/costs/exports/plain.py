"""A table whose columns are the usage fields of an API, one request a row: what people keep
themselves when no tool does it for them."""

from __future__ import annotations

from collections.abc import Iterable

from kvcore.costs.exports.layout import Format, Layout, NotUsage, Record, first
from kvcore.costs.exports.responses import exclusive_counts, first_model, first_time, named_provider
from kvcore.costs.exports.text import parsed_cell

_INSIDE = ("usage", "usagemetadata")
_DETAILS = {
    "cached_tokens": ("prompt_tokens_details", "cached_tokens"),
    "cache_write_tokens": ("prompt_tokens_details", "cache_write_tokens"),
}
_CAMEL = {
    "prompttokencount": "promptTokenCount",
    "candidatestokencount": "candidatesTokenCount",
    "cachedcontenttokencount": "cachedContentTokenCount",
    "thoughtstokencount": "thoughtsTokenCount",
    "inputtokens": "inputTokens",
    "outputtokens": "outputTokens",
    "cachereadinputtokens": "cacheReadInputTokens",
    "cachewriteinputtokens": "cacheWriteInputTokens",
}
_COUNTS = (
    "input_tokens",
    "output_tokens",
    "prompt_tokens",
    "completion_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "prompt_cache_hit_tokens",
    "prompt_cache_miss_tokens",
)


def _rows(row: Record) -> Iterable[Record]:
    usage = _usage(row)
    if not usage:
        raise NotUsage("no counts in it")
    yield {
        **exclusive_counts(usage),
        "at": first_time(row),
        "model": first_model(row),
        "provider": named_provider(row),
        "service_tier": row.get("service_tier"),
        "cost": first(row, "cost", "cost_usd"),
        "identity": first(row, "id", "request_id"),
    }


def _usage(row: Record) -> dict[str, object]:
    """The flat cells put back into the shape of a usage object."""
    for name in _INSIDE:
        inside = parsed_cell(row.get(name))
        if isinstance(inside, dict):
            return inside
    usage: dict[str, object] = {}
    for name, cell in row.items():
        value = _number(cell)
        if value is None:
            continue
        if name in _COUNTS:
            usage[name] = value
        elif name in _CAMEL:
            usage[_CAMEL[name]] = value
        elif name in ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"):
            usage.setdefault("cache_creation", {})[name] = value
        elif name in _DETAILS:
            usage.setdefault(_details_key(row), {})[name] = value
    return usage


def _details_key(row: Record) -> str:
    return "prompt_tokens_details" if "prompt_tokens" in row else "input_tokens_details"


def _number(cell: object) -> object:
    """A number where the cell holds one, None where it is blank, else the cell for refusal."""
    text = str(cell or "").strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 1e18 else number


TABLE = Layout(
    Format.USAGE_TABLE,
    table_signs=(
        frozenset({"model", "input_tokens", "output_tokens"}),
        frozenset({"model", "prompt_tokens", "completion_tokens"}),
        frozenset({"model", "usage"}),
        frozenset({"prompttokencount", "candidatestokencount"}),
        frozenset({"inputtokens", "outputtokens"}),
    ),
    records=_rows,
)

LAYOUTS = (TABLE,)
