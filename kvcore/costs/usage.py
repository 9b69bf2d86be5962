"""One usage record of any provider into typed token classes.

Every API counts differently (reference: the providers' API docs and SDK docstrings, November
2026). The trap is whether a total *includes* the tokens read from and written to the cache:
OpenAI's and Gemini's do, Anthropic's and Bedrock's do not. `normalise` tells the formats apart
by their own field names, never by the provider alone, and refuses counts that cannot be true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from genai_prices.types import Usage

LARGEST_COUNT = 10**15


class UsageError(ValueError):
    """The record cannot be true or holds no token counts; the message says which, in a sentence."""


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of one request, or of several requests summed, each token in one class.

    `fresh`: input neither read from nor written to a cache. `cache_write_short` and `_long`: the
    provider's shorter and longer lifetime (5 min and 1 h at Anthropic, 30 min and 12 h at
    OpenAI). `details` holds what has a price of its own inside or beside these classes, by
    genai-prices' usage keys: modalities, reasoning, searches. `prompt_tokens` is the length of
    one prompt where the record sums several; long-context prices go by it.
    """

    fresh: int
    cache_read: int = 0
    cache_write_short: int = 0
    cache_write_long: int = 0
    output: int = 0
    details: Mapping[str, int] = field(default_factory=dict)
    requests: int | None = 1
    prompt_tokens: int | None = None
    format: str = ""
    notes: tuple[str, ...] = ()

    @property
    def cache_write(self) -> int:
        return self.cache_write_short + self.cache_write_long

    @property
    def input(self) -> int:
        """All input tokens: fresh, read and written."""
        return self.fresh + self.cache_read + self.cache_write

    @property
    def tier_tokens(self) -> int:
        """The prompt length that chooses the long-context price: of one request, never a sum.

        Zero (the short price) where a sum says neither how many requests it holds nor their
        context window.
        """
        if self.prompt_tokens is not None:
            return self.prompt_tokens
        return self.input // self.requests if self.requests else 0

    @property
    def hit_rate(self) -> float | None:
        """Share of the input that was read from the cache; None without input."""
        return self.cache_read / self.input if self.input else None

    def usage(self, cached: bool = True) -> Usage:
        """As genai-prices counts it: input includes reads and writes.

        With `cached=False` the same tokens as they would be billed without any caching.
        """
        values = {"input_tokens": self.input, "output_tokens": self.output}
        values |= {
            key: value
            for key, value in self.details.items()
            if cached or not key.startswith("cache_")
        }
        if cached:
            values["cache_read_tokens"] = self.cache_read
            values["cache_write_tokens"] = self.cache_write
            values["cache_write_1h_tokens"] = self.cache_write_long
        return Usage(
            **{key: value for key, value in values.items() if value or key in self.details}
        )


@dataclass(frozen=True)
class Circumstances:
    """What a record says about how it was called: all of it changes the price."""

    model: str | None = None
    provider: str | None = None
    at: datetime | None = None
    batch: bool = False
    service_tier: str | None = None
    speed: str | None = None
    geo: str | None = None


def normalise(
    record: Mapping[str, Any], *, provider: str | None = None, model: str | None = None
) -> TokenCounts:
    """The token classes of a usage object, or of a whole response that holds one.

    Raises UsageError for a record without counts, for negative or fractional counts, for more
    cached than input tokens, and for exclusive counts in an inclusive field.
    """
    usage = usage_object(record)
    for name, recognises, read in _FORMATS:
        if recognises(usage):
            counts = read(usage, _Hints(provider, model or _text(record, "model")))
            return replace(counts, format=counts.format or name)
    raise UsageError(
        "No token counts were found: a usage record needs fields such as input_tokens, "
        "prompt_tokens, promptTokenCount or inputTokens."
    )


def circumstances(record: Mapping[str, Any]) -> Circumstances:
    """Model, time, tier, speed and region, from the usage object and from what encloses it."""
    usage = usage_object(record)
    layers = [usage, *_enclosing(record)]

    def text(*names: str) -> str | None:
        return next((t for layer in layers for n in names if (t := _text(layer, n))), None)

    tier = text("service_tier", "serviceTier")
    batch = any(layer.get("batch") is True for layer in layers) or tier == "batch"
    return Circumstances(
        model=text("model", "modelVersion", "model_version", "modelId", "model_permaslug"),
        provider=text("provider", "custom_llm_provider"),
        at=next((t for layer in layers if (t := _moment(layer))), None),
        batch=batch or text("processing") == "batch",
        service_tier=None if batch else tier,
        speed=text("speed"),
        geo=text("inference_geo", "geo"),
    )


@dataclass(frozen=True)
class _Hints:
    provider: str | None
    model: str | None


_WRAPPERS = ("usage", "usageMetadata", "usage_metadata", "usageDetails")
_ENVELOPES = ("message", "response", "body", "response_body", "responseBody", "data", "result")


def _enclosing(record: Mapping[str, Any], depth: int = 4) -> list[Mapping[str, Any]]:
    layers = [record]
    for name in _ENVELOPES:
        inner = record.get(name)
        if depth and isinstance(inner, Mapping):
            layers = [*_enclosing(inner, depth - 1), *layers]
    return layers


def usage_object(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The usage object inside a response, a transcript line or an envelope; else the record."""
    if not isinstance(record, Mapping):
        raise UsageError(f"A usage record is a JSON object, not {_kind(record)}.")
    for layer in _enclosing(record):
        for name in _WRAPPERS:
            if isinstance(layer.get(name), Mapping):
                return layer[name]
    return record


def _kind(value: Any) -> str:
    names = {list: "a list", str: "text", type(None): "nothing", int: "a number"}
    return names.get(type(value), f"a {type(value).__name__}")


def _text(layer: Mapping[str, Any], name: str) -> str | None:
    value = layer.get(name)
    return value.strip() or None if isinstance(value, str) else None


def _moment(layer: Mapping[str, Any]) -> datetime | None:
    for name in ("timestamp", "created_at", "created", "start_time", "startTime"):
        value = layer.get(name)
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, datetime):
            return value
        try:
            if isinstance(value, int | float):
                seconds = value / 1000 if value > 10**11 else value
                return datetime.fromtimestamp(seconds, tz=UTC)
            return datetime.fromisoformat(str(value))
        except (ValueError, OverflowError, OSError):
            continue
    return None


def whole(value: Any, name: str) -> int:
    """A count as an int; None and empty text are 0. Raises UsageError naming the field."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return 0
    number = _number(value)
    if number is None:
        raise UsageError(f"{name} must be a whole number of tokens, not {_shown(value)}.")
    if number < 0:
        raise UsageError(f"{name} is {number:,}: a token count cannot be negative.")
    if number > LARGEST_COUNT:
        raise UsageError(f"{name} is over 10**15 tokens, more than anyone has sent.")
    return number


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        text = value.strip()
        try:
            value = Decimal(text)
        except ArithmeticError:
            return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Decimal) and (not value.is_finite() or value.adjusted() > 30):
        return None
    if isinstance(value, float | Decimal) and value == int(value):
        return int(value)
    return None


def _shown(value: Any) -> str:
    """What kind of value stood there: never the value itself, which may be private text."""
    return "text" if isinstance(value, str) else f"a value of type {type(value).__name__}"


def _at(usage: Mapping[str, Any], *path: str) -> Any:
    value: Any = usage
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def _tokens(usage: Mapping[str, Any], *paths: str) -> int:
    """The count at the first dotted path that is there, else 0."""
    for path in paths:
        value = _at(usage, *path.split("."))
        if value is not None:
            return whole(value, path)
    return 0


def _has(usage: Mapping[str, Any], *names: str) -> bool:
    return any(usage.get(name) is not None for name in names)


def exclusive(
    fresh: int, read: int, short: int, long: int, output: int, **more: Any
) -> TokenCounts:
    """Classes that are already apart: the input is their sum."""
    return TokenCounts(fresh, read, short, long, output, **more)


def inclusive(
    total: int, read: int, short: int, long: int, output: int, **more: Any
) -> TokenCounts:
    """Split a total that includes what was read and written. Raises UsageError if it cannot."""
    if read > total:
        raise UsageError(
            f"{read:,} tokens are said to come from the cache, but the whole prompt is given as "
            f"{total:,}: either the counts are wrong or the total leaves cached tokens out "
            "(exclusive counts) in a format whose total includes them."
        )
    if read + short + long > total:
        raise UsageError(
            f"{read:,} tokens read and {short + long:,} written are more than the whole prompt of "
            f"{total:,}: the total seems to leave cached tokens out (exclusive counts) in a "
            "format whose total includes them."
        )
    return TokenCounts(total - read - short - long, read, short, long, output, **more)


def split_writes(total: int, short: int, long: int, name: str) -> tuple[int, int]:
    """Writes by lifetime from a total and its parts: the part without a lifetime is short.

    A total is never added to its parts. Raises UsageError where the parts exceed the total.
    """
    if total == 0:
        return short, long
    if short + long > total:
        raise UsageError(
            f"{name} says {total:,} tokens were written to the cache, but its parts by lifetime "
            f"add up to {short + long:,}."
        )
    return total - long, long


def _details(**values: int) -> dict[str, int]:
    return {key: value for key, value in values.items() if value}


# Anthropic Messages: three disjoint counts; the same fields on Vertex and in Claude Code.


def _is_anthropic(usage: Mapping[str, Any]) -> bool:
    own = ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")
    foreign = ("prompt_tokens", "input_tokens_details", "uncached_input_tokens")
    return _has(usage, "input_tokens") and _has(usage, *own) and not _has(usage, *foreign)


def _anthropic(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    fresh, read, short, long, output = _anthropic_counts(usage)
    notes = []
    for entry in _compactions(usage):
        extra = _anthropic_counts(entry)
        fresh, read, short, long, output = (
            a + b for a, b in zip((fresh, read, short, long, output), extra, strict=True)
        )
        notes.append("A compaction step was added: the top-level totals leave it out.")
    return exclusive(
        fresh,
        read,
        short,
        long,
        output,
        details=_details(web_searches=_tokens(usage, "server_tool_use.web_search_requests")),
        notes=tuple(dict.fromkeys(notes)),
    )


def _anthropic_counts(usage: Mapping[str, Any]) -> tuple[int, int, int, int, int]:
    short, long = split_writes(
        _tokens(usage, "cache_creation_input_tokens"),
        _tokens(usage, "cache_creation.ephemeral_5m_input_tokens"),
        _tokens(usage, "cache_creation.ephemeral_1h_input_tokens"),
        "cache_creation_input_tokens",
    )
    return (
        _tokens(usage, "input_tokens"),
        _tokens(usage, "cache_read_input_tokens"),
        short,
        long,
        _tokens(usage, "output_tokens"),
    )


def _compactions(usage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = usage.get("iterations")
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return []
    return [e for e in entries if isinstance(e, Mapping) and e.get("type") == "compaction"]


# Anthropic's usage report and the rows of the Claude console's usage CSV: sums over many requests.


def _is_anthropic_report(usage: Mapping[str, Any]) -> bool:
    return _has(usage, "uncached_input_tokens")


def _anthropic_report(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    _, read, short, long, output = _anthropic_counts({**usage, "input_tokens": 0})
    return exclusive(
        _tokens(usage, "uncached_input_tokens"),
        read,
        short,
        long,
        output,
        requests=None,
        prompt_tokens=context_window_tokens(usage.get("context_window")),
    )


def _is_claude_console(usage: Mapping[str, Any]) -> bool:
    return _has(usage, "usage_input_tokens_no_cache")


def _claude_console(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    return exclusive(
        _tokens(usage, "usage_input_tokens_no_cache"),
        _tokens(usage, "usage_input_tokens_cache_read"),
        _tokens(usage, "usage_input_tokens_cache_write_5m"),
        _tokens(usage, "usage_input_tokens_cache_write_1h"),
        _tokens(usage, "usage_output_tokens"),
        details=_details(web_searches=_tokens(usage, "web_search_count")),
        requests=None,
        prompt_tokens=context_window_tokens(usage.get("context_window")),
    )


def context_window_tokens(column: Any) -> int | None:
    """A prompt length that lies in an export's context-window column, such as "0-200k".

    The upper end of a first bracket and just above the lower end of a later one, so that prices
    which step at the bracket's edge fall on the right side. None where it says nothing.
    """
    if not isinstance(column, str):
        return None
    text = column.strip().lower().replace(",", "").replace("≤", "0-").replace("<=", "0-")
    text = text.replace(">", "").replace("–", "-").replace("+", "-")
    low, dash, high = (part.strip() for part in text.partition("-"))
    start = _with_suffix(low)
    if start is None:
        return None
    if start == 0 and dash:
        return _with_suffix(high)
    return start + 1 if dash or ">" in column else start


def _with_suffix(text: str) -> int | None:
    scale = {"k": 1000, "m": 1_000_000}.get(text[-1:], 1)
    digits = text.rstrip("km")
    return int(digits) * scale if digits.isdecimal() and len(digits) < 12 else None


# OpenAI: the total includes reads and writes.


def _is_responses(usage: Mapping[str, Any]) -> bool:
    names = (
        "input_tokens_details",
        "input_token_details",
        "output_tokens_details",
        "cached_tokens",
    )
    return _has(usage, "input_tokens") and _has(usage, *names)


def _responses(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    inside = _at(usage, "input_tokens_details") or _at(usage, "input_token_details") or {}
    outside = _at(usage, "output_tokens_details") or _at(usage, "output_token_details") or {}
    short, long = _openai_writes(usage, inside)
    return inclusive(
        _tokens(usage, "input_tokens"),
        _tokens(inside, "cached_tokens")
        or _tokens(usage, "cached_tokens", "cache_read_input_tokens"),
        short,
        long,
        _tokens(usage, "output_tokens"),
        details=_openai_details(inside, outside),
    )


def _openai_writes(usage: Mapping[str, Any], inside: Mapping[str, Any]) -> tuple[int, int]:
    total = _tokens(
        inside, "cache_write_tokens", "cache_creation_input_tokens", "cache_creation_tokens"
    ) or _tokens(usage, "cache_creation_input_tokens", "cache_write_tokens")
    parts = _at(inside, "cache_write_tokens_details") or _at(usage, "cache_write_tokens_details")
    parts = parts or _at(inside, "cache_creation_token_details") or usage.get("cache_creation")
    return split_writes(
        total,
        _tokens(parts or {}, "ttl_30m_tokens", "ephemeral_5m_input_tokens"),
        _tokens(parts or {}, "ttl_12h_tokens", "ephemeral_1h_input_tokens"),
        "cache_write_tokens",
    )


def _openai_details(inside: Mapping[str, Any], outside: Mapping[str, Any]) -> dict[str, int]:
    cached = _at(inside, "cached_tokens_details")
    details = _details(
        input_audio_tokens=_tokens(inside, "audio_tokens"),
        input_image_tokens=_tokens(inside, "image_tokens"),
        output_audio_tokens=_tokens(outside, "audio_tokens"),
        output_image_tokens=_tokens(outside, "image_tokens"),
        output_reasoning_tokens=_tokens(outside, "reasoning_tokens"),
    )
    if isinstance(cached, Mapping):
        details["cache_audio_read_tokens"] = _tokens(cached, "audio_tokens")
        details["cache_image_read_tokens"] = _tokens(cached, "image_tokens")
    return details


def _is_chat(usage: Mapping[str, Any]) -> bool:
    return _has(usage, "prompt_tokens")


def _chat(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    inside = _at(usage, "prompt_tokens_details") or {}
    outside = _at(usage, "completion_tokens_details") or {}
    short, long = _openai_writes(usage, inside)
    total = _tokens(usage, "prompt_tokens")
    output, notes = _chat_output(usage, outside, hints)
    _check_hit_and_miss(usage, total)
    read = _tokens(inside, "cached_tokens") or _tokens(
        usage,
        "prompt_cache_hit_tokens",
        "cached_tokens",
        "cache_read_input_tokens",
        "cached_prompt_text_tokens",
    )
    return inclusive(
        total,
        read,
        short,
        long,
        output,
        details=_openai_details(inside, outside),
        notes=notes,
        format=_chat_format(usage),
    )


def _chat_format(usage: Mapping[str, Any]) -> str:
    if _has(usage, "prompt_cache_hit_tokens"):
        return "DeepSeek"
    if _has(usage, "cache_read_input_tokens", "cache_creation_input_tokens"):
        return "LiteLLM"
    if _has(usage, "cached_tokens"):
        return "Moonshot"
    return "OpenAI Chat"


def _check_hit_and_miss(usage: Mapping[str, Any], total: int) -> None:
    if not _has(usage, "prompt_cache_miss_tokens"):
        return
    parts = _tokens(usage, "prompt_cache_hit_tokens") + _tokens(usage, "prompt_cache_miss_tokens")
    if parts != total:
        raise UsageError(
            f"Cache hits and misses add up to {parts:,} tokens, but the prompt has {total:,}."
        )


def _chat_output(
    usage: Mapping[str, Any], outside: Mapping[str, Any], hints: _Hints
) -> tuple[int, tuple[str, ...]]:
    """xAI counts reasoning beside the completion, everyone else inside it; a total decides."""
    completion = _tokens(usage, "completion_tokens")
    reasoning = _tokens(outside, "reasoning_tokens") or _tokens(usage, "reasoning_tokens")
    if not reasoning:
        return completion, ()
    total, prompt = _tokens(usage, "total_tokens"), _tokens(usage, "prompt_tokens")
    is_xai = hints.provider == "x-ai" or (hints.model or "").lower().startswith("grok")
    beside = total == prompt + completion + reasoning if total else is_xai
    if not beside:
        return completion, ()
    return completion + reasoning, ("Reasoning tokens stood beside the completion: added.",)


# OpenAI's usage export: sums over many requests, written out by class.


def _is_openai_report(usage: Mapping[str, Any]) -> bool:
    names = ("input_cached_tokens", "input_uncached_tokens", "num_model_requests")
    return _has(usage, "input_tokens") and _has(usage, *names)


def _openai_report(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    short, long = _report_writes(usage)
    requests = _tokens(usage, "num_model_requests") or None
    return inclusive(
        _tokens(usage, "input_tokens"),
        _tokens(usage, "input_cached_tokens"),
        short,
        long,
        _tokens(usage, "output_tokens"),
        details=_openai_report_details(usage),
        requests=requests,
    )


def _openai_report_details(usage: Mapping[str, Any]) -> dict[str, int]:
    details = _details(
        input_audio_tokens=_tokens(usage, "input_audio_tokens"),
        input_image_tokens=_tokens(usage, "input_image_tokens"),
        output_audio_tokens=_tokens(usage, "output_audio_tokens"),
        output_image_tokens=_tokens(usage, "output_image_tokens"),
    )
    for kind in ("audio", "image"):
        if _has(usage, f"input_cached_{kind}_tokens"):
            tokens = _tokens(usage, f"input_cached_{kind}_tokens")
            details[f"cache_{kind}_read_tokens"] = tokens
    return details


def _report_writes(usage: Mapping[str, Any]) -> tuple[int, int]:
    """`input_cache_write_tokens` was once the 30-minute writes alone and is now the total."""
    named = _tokens(usage, "input_cache_write_tokens")
    short = _tokens(usage, "input_cache_write_30m_tokens")
    long = _tokens(usage, "input_cache_write_12h_tokens")
    if named < short + long:
        return max(short, named), long
    return named - long, long


# Gemini: the prompt count includes what came from the cache; tool prompts stand beside it.


def _is_gemini(usage: Mapping[str, Any]) -> bool:
    return _has(usage, "promptTokenCount", "prompt_token_count", "totalTokenCount")


def _gemini(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    usage = {_camel(key): value for key, value in usage.items()}
    thoughts = _tokens(usage, "thoughtsTokenCount")
    tool = _tokens(usage, "toolUsePromptTokenCount")
    prompt = _tokens(usage, "promptTokenCount")
    read = _tokens(usage, "cachedContentTokenCount")
    if read > prompt:
        inclusive(prompt, read, 0, 0, 0)
    return inclusive(
        prompt + tool,
        read,
        0,
        0,
        _tokens(usage, "candidatesTokenCount") + thoughts,
        details={
            **_modalities(usage.get("promptTokensDetails"), "input_{}_tokens"),
            **_cached_modalities(usage.get("cacheTokensDetails")),
            **_modalities(usage.get("candidatesTokensDetails"), "output_{}_tokens"),
            **_details(output_reasoning_tokens=thoughts, input_tool_tokens=tool),
        },
        notes=("Gemini's usage never shows what holding an explicit cache costs.",) if read else (),
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


_MODALITIES = {"AUDIO": "audio", "IMAGE": "image", "DOCUMENT": "image", "VIDEO": "video"}


def _modalities(entries: Any, key: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in entries if isinstance(entries, list | tuple) else ():
        if not isinstance(entry, Mapping):
            continue
        name = _MODALITIES.get(str(entry.get("modality")).upper())
        if name:
            tokens = whole(entry.get("tokenCount", entry.get("token_count")), "tokenCount")
            counts[key.format(name)] = counts.get(key.format(name), 0) + tokens
    return {name: value for name, value in counts.items() if value}


def _cached_modalities(entries: Any) -> dict[str, int]:
    """What was cached by kind; a kind that a given list leaves out was not cached."""
    if not isinstance(entries, list | tuple) or not entries:
        return {}
    none = {f"cache_{kind}_read_tokens": 0 for kind in ("audio", "image", "video")}
    return none | _modalities(entries, "cache_{}_read_tokens")


# Bedrock Converse: disjoint counts, except that OpenAI models have been seen to include.


def _is_bedrock(usage: Mapping[str, Any]) -> bool:
    return _has(usage, "inputTokens") and not _has(usage, "cachedInputTokens")


def _bedrock(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    tokens = _tokens(usage, "inputTokens")
    read = _tokens(usage, "cacheReadInputTokens", "cacheReadInputTokenCount")
    short, long = _bedrock_writes(usage)
    output = _tokens(usage, "outputTokens")
    cached = read + short + long
    is_openai = "openai." in (hints.model or "")
    total = _tokens(usage, "totalTokens")
    includes = is_openai and cached and (total == tokens + output if total else cached <= tokens)
    if includes:
        note = "OpenAI models on Bedrock have been seen to count cached tokens into inputTokens."
        return inclusive(tokens, read, short, long, output, notes=(note,))
    return exclusive(tokens, read, short, long, output)


def _bedrock_writes(usage: Mapping[str, Any]) -> tuple[int, int]:
    total = _tokens(usage, "cacheWriteInputTokens", "cacheWriteInputTokenCount")
    by_ttl: dict[str, int] = {}
    entries = usage.get("cacheDetails")
    for entry in entries if isinstance(entries, list | tuple) else ():
        if isinstance(entry, Mapping):
            ttl = str(entry.get("ttl"))
            by_ttl[ttl] = by_ttl.get(ttl, 0) + whole(entry.get("inputTokens"), "cacheDetails")
    long = by_ttl.pop("1h", 0) + by_ttl.pop("12h", 0)
    return split_writes(total, sum(by_ttl.values()), long, "cacheWriteInputTokens")


# Vercel's AI SDK: camel case like Bedrock, but the total includes.


def _is_ai_sdk(usage: Mapping[str, Any]) -> bool:
    return _has(usage, "inputTokens") and _has(usage, "cachedInputTokens")


def _ai_sdk(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    read = _tokens(usage, "cachedInputTokens")
    output = _tokens(usage, "outputTokens")
    return inclusive(_tokens(usage, "inputTokens"), read, 0, 0, output)


# OpenRouter's activity export.


def _is_openrouter(usage: Mapping[str, Any]) -> bool:
    return _has(usage, "tokens_prompt")


def _openrouter(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    return inclusive(
        _tokens(usage, "tokens_prompt"),
        _tokens(usage, "tokens_cached"),
        _tokens(usage, "tokens_cache_write"),
        0,
        _tokens(usage, "tokens_completion"),
        details=_details(output_reasoning_tokens=_tokens(usage, "tokens_reasoning")),
    )


# Langfuse: free-form keys whose costs are added up, so they are meant to be disjoint.

_LANGFUSE_READ = (
    "cache_read_input_tokens",
    "input_cached_tokens",
    "input_cache_read",
    "input_cached",
    "cached_tokens",
    "cache_read_tokens",
)
_LANGFUSE_WRITE = (
    "cache_creation_input_tokens",
    "input_cache_creation",
    "input_cache_write",
    "cache_write_tokens",
    "cache_write_input_tokens",
)
_LANGFUSE_SHORT = ("input_cache_creation_5m", "ephemeral_5m_input_tokens")
_LANGFUSE_LONG = ("input_cache_creation_1h", "ephemeral_1h_input_tokens")


def _is_langfuse(usage: Mapping[str, Any]) -> bool:
    return _has(usage, "input") and not isinstance(usage.get("input"), str | Mapping | list)


def _langfuse(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    given, output = _tokens(usage, "input"), _tokens(usage, "output")
    read = _tokens(usage, *_LANGFUSE_READ)
    short, long = split_writes(
        _tokens(usage, *_LANGFUSE_WRITE),
        _tokens(usage, *_LANGFUSE_SHORT),
        _tokens(usage, *_LANGFUSE_LONG),
        "cache_creation_input_tokens",
    )
    total, written = _tokens(usage, "total"), short + long
    if total == given + output and read + written and read + written <= given:
        note = "By its total, Langfuse's input still held the cached tokens: taken out."
        return inclusive(given, read, short, long, output, notes=(note,))
    if written and total == given + read + output and written <= given:
        note = "By its total, Langfuse's input still held the written tokens: taken out."
        return replace(inclusive(given, 0, short, long, output, notes=(note,)), cache_read=read)
    return exclusive(given, read, short, long, output)


# genai-prices' own names, and ours.


def _is_genai_prices(usage: Mapping[str, Any]) -> bool:
    names = ("cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
    return _has(usage, "input_tokens") and _has(usage, *names)


def _genai_prices(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    short, long = split_writes(
        _tokens(usage, "cache_write_tokens"),
        _tokens(usage, "cache_write_5m_tokens"),
        _tokens(usage, "cache_write_1h_tokens"),
        "cache_write_tokens",
    )
    details = {
        key: _tokens(usage, key)
        for key in usage
        if key.endswith(("_audio_tokens", "_image_tokens", "_video_tokens", "_reasoning_tokens"))
        or key in ("cache_audio_read_tokens", "cache_image_read_tokens", "web_searches")
    }
    return inclusive(
        _tokens(usage, "input_tokens"),
        _tokens(usage, "cache_read_tokens"),
        short,
        long,
        _tokens(usage, "output_tokens"),
        details=_details(**details),
    )


def _is_canonical(usage: Mapping[str, Any]) -> bool:
    return _has(usage, "fresh")


def _canonical(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    return exclusive(
        _tokens(usage, "fresh"),
        _tokens(usage, "cache_read", "read"),
        _tokens(usage, "cache_write_short", "write_short", "cache_write"),
        _tokens(usage, "cache_write_long", "write_long"),
        _tokens(usage, "output", "out"),
    )


def _is_plain(usage: Mapping[str, Any]) -> bool:
    return _has(usage, "input_tokens")


def _plain(usage: Mapping[str, Any], hints: _Hints) -> TokenCounts:
    """No cache field at all: inclusive and exclusive are the same.

    A cache count under a name that no API uses is refused: priced as nothing it would be wrong.
    """
    for key, value in usage.items():
        if "cach" in str(key).lower() and isinstance(value, int | float) and value > 0:
            if isinstance(value, bool):
                continue
            raise UsageError(
                "The record holds a count of cached tokens under a name that no known API uses, "
                "so it cannot be told whether the input includes it."
            )
    return exclusive(_tokens(usage, "input_tokens"), 0, 0, 0, _tokens(usage, "output_tokens"))


_Reader = Callable[[Mapping[str, Any], _Hints], TokenCounts]

# In this order: the particular before the general.
_FORMATS: tuple[tuple[str, Callable[[Mapping[str, Any]], bool], _Reader], ...] = (
    ("Claude console", _is_claude_console, _claude_console),
    ("Anthropic usage report", _is_anthropic_report, _anthropic_report),
    ("OpenAI usage", _is_openai_report, _openai_report),
    ("OpenRouter activity", _is_openrouter, _openrouter),
    ("OpenAI Chat", _is_chat, _chat),
    ("Anthropic Messages", _is_anthropic, _anthropic),
    ("OpenAI Responses", _is_responses, _responses),
    ("Gemini", _is_gemini, _gemini),
    ("AI SDK", _is_ai_sdk, _ai_sdk),
    ("Bedrock Converse", _is_bedrock, _bedrock),
    ("genai-prices", _is_genai_prices, _genai_prices),
    ("canonical", _is_canonical, _canonical),
    ("Langfuse", _is_langfuse, _langfuse),
    ("plain counts", _is_plain, _plain),
)
