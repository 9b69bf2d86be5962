"""Responses of model APIs as they came, one JSON object a line, bare or inside a log's envelope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvcore.costs.exports.layout import Format, Layout, NotUsage, Record, RowProblem, dig, first
from kvcore.costs.usage import UsageError, normalise

_ENVELOPES: tuple[tuple[str, ...], ...] = (
    (),
    ("response", "body"),
    ("result", "message"),
    ("response",),
    ("body",),
    ("message",),
    ("data",),
    ("output",),
    ("response_body",),
)
_USAGE_KEYS = ("usage", "usageMetadata", "usage_metadata")


def find_usage(record: Record) -> tuple[Record, Mapping[str, Any], tuple[str, ...]] | None:
    """The response within a record, its usage object, and the envelope they were found in."""
    for path in _ENVELOPES:
        response = dig(record, *path) if path else record
        if not isinstance(response, Mapping):
            continue
        for key in _USAGE_KEYS:
            usage = response.get(key)
            if isinstance(usage, Mapping) and usage:
                return response, usage, path
    return None


def exclusive_counts(
    usage: Mapping[str, Any], provider: str | None = None, model: str | None = None
) -> dict[str, Any]:
    """Counts of a usage object of any API, cached tokens taken out of the input.

    Raises RowProblem with the reason where the counts contradict each other.
    """
    try:
        counts = normalise(usage, provider=provider, model=model)
    except UsageError as problem:
        raise RowProblem(str(problem)) from None
    return {
        "input": counts.fresh,
        "cache_read": counts.cache_read,
        "write_short": counts.cache_write_short,
        "write_long": counts.cache_write_long,
        "output": counts.output,
        "web_searches": counts.details.get("web_searches"),
        "details": {k: v for k, v in counts.details.items() if k != "web_searches"} or None,
    }


def provider_of(response: Record, usage: Mapping[str, Any], model: str) -> str | None:
    """Who sent a response, by marks only its API leaves; None leaves it to the model's name."""
    if "promptTokenCount" in usage or "prompt_token_count" in usage:
        return "google"
    if "inputTokens" in usage and "outputTokens" in usage:
        return "aws"
    identity = str(response.get("id") or "")
    if identity.startswith("gen-") and "provider" in response:
        return "openrouter"
    if model.startswith(("anthropic.", "us.anthropic.", "eu.anthropic.", "global.anthropic.")):
        return "aws"
    if response.get("type") == "message" or identity.startswith("msg_"):
        return "anthropic"
    if "prompt_cache_hit_tokens" in usage:
        return "deepseek"
    return None


def _rows(record: Record) -> Iterable[Record]:
    found = find_usage(record)
    if found is None:
        if record.get("error") is not None:
            raise NotUsage("a call that failed")
        if str(record.get("object", "")).endswith(".chunk") or "delta" in record:
            raise NotUsage("a part of a streamed answer")
        raise RowProblem("there is no usage in this response")
    response, usage, envelope = found
    model = first_model(response, record)
    provider = provider_of(response, usage, model)
    yield {
        **exclusive_counts(usage, provider, model),
        "at": first_time(response, record),
        "model": model,
        "provider": provider or named_provider(record),
        "batch": bool(record.get("custom_id")) and envelope in _BATCH_ENVELOPES,
        "service_tier": first(usage, "service_tier") or response.get("service_tier"),
        "speed": usage.get("speed"),
        "geo": usage.get("inference_geo"),
        "identity": first(response, "id", "responseId", "response_id"),
        "session": first(record, "session_id", "sessionId", "conversation_id"),
    }


_BATCH_ENVELOPES = (("response", "body"), ("result", "message"))


def first_model(*records: Record) -> str:
    for record in records:
        name = first(record, "model", "modelVersion", "model_version", "modelId", "model_id")
        if isinstance(name, str):
            return name.removeprefix("models/")
    return ""


def named_provider(record: Record) -> str | None:
    name = first(record, "provider", "custom_llm_provider")
    return name if isinstance(name, str) else None


def first_time(*records: Record) -> object:
    names = ("created", "created_at", "createTime", "timestamp", "time", "at", "date")
    for record in records:
        value = first(record, *names)
        if isinstance(value, str | int | float):
            return value
    return None


RESPONSES = Layout(
    Format.API_RESPONSES,
    object_sign=lambda record: find_usage(record) is not None,
    records=_rows,
    array="data",
)

LAYOUTS = (RESPONSES,)
