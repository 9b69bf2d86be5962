"""One streamed answer: when its pieces came, and what the server said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvcore.costs.usage import TokenCounts, UsageError, normalise

_READ_FIELDS = (
    "cached_tokens",
    "cache_read_input_tokens",
    "prompt_cache_hit_tokens",
    "cacheReadInputTokens",
    "cachedContentTokenCount",
)
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")


@dataclass(frozen=True)
class EngineTimings:
    """llama.cpp's own account of a request: tokens computed and reused, and milliseconds.

    prompt_tokens were computed, cached_tokens reused; source: `timings` of its server's answers.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_ms: float | None = None
    predicted_tokens: int | None = None
    predicted_ms: float | None = None


@dataclass
class Answer:
    """What came of one request. Times in seconds since it was sent, on this machine's clock.

    piece_seconds: when each piece with text came; a piece is one token at most servers, more at
    some. usage: None where the server sent none. cached_tokens: None where it does not say, which
    is not the same as 0.
    """

    first_token_seconds: float | None = None
    total_seconds: float | None = None
    piece_seconds: list[float] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    usage: TokenCounts | None = None
    usage_problem: str = ""
    cached_tokens: int | None = None
    timings: EngineTimings | None = None
    clock_ahead_seconds: float | None = None
    done: bool = False

    @property
    def prompt_tokens(self) -> int | None:
        return self.usage.input if self.usage else None

    @property
    def output_tokens(self) -> int:
        """As the server counts them, else one for each piece."""
        if self.usage is not None and self.usage.output:
            return self.usage.output
        return len(self.piece_seconds)

    @property
    def seconds_per_token(self) -> float | None:
        """Mean time between output tokens after the first; None with fewer than two."""
        if len(self.piece_seconds) < 2 or self.output_tokens < 2:
            return None
        return (self.piece_seconds[-1] - self.piece_seconds[0]) / (self.output_tokens - 1)

    def take(self, chunk: Mapping[str, Any], at: float) -> None:
        """Add one event of the stream, which came `at` seconds after the request was sent."""
        self._take_usage(chunk)
        timings = chunk.get("timings")
        if isinstance(timings, Mapping):
            self._take_timings(timings)
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
            return
        piece = _piece(choices[0])
        reason = choices[0].get("finish_reason")
        if piece:
            self.piece_seconds.append(at)
            self.text += piece
        if self.first_token_seconds is None and (piece or reason):
            self.first_token_seconds = at
        if isinstance(reason, str):
            self.finish_reason = reason
            self.done = True

    def _take_usage(self, chunk: Mapping[str, Any]) -> None:
        usage = chunk.get("usage")
        if not isinstance(usage, Mapping) or not usage:
            return
        try:
            self.usage = normalise(usage)
        except UsageError as problem:
            self.usage_problem = str(problem)
            return
        self.cached_tokens = self.usage.cache_read if says_cached(usage) else self.cached_tokens

    def _take_timings(self, timings: Mapping[str, Any]) -> None:
        self.timings = EngineTimings(
            prompt_tokens=_whole(timings.get("prompt_n")),
            cached_tokens=_whole(timings.get("cache_n")),
            prompt_ms=_number(timings.get("prompt_ms")),
            predicted_tokens=_whole(timings.get("predicted_n")),
            predicted_ms=_number(timings.get("predicted_ms")),
        )
        if self.cached_tokens is None:
            self.cached_tokens = self.timings.cached_tokens


def says_cached(usage: Mapping[str, Any]) -> bool:
    """Whether a usage object has a count of cached tokens at all, be it 0."""
    layers = [usage, *(usage.get(name) for name in _DETAILS)]
    return any(
        isinstance(layer, Mapping) and layer.get(name) is not None
        for layer in layers
        for name in _READ_FIELDS
    )


def _piece(choice: Mapping[str, Any]) -> str:
    """The text of a chat or completion chunk, thinking included."""
    delta = choice.get("delta")
    layers = [delta if isinstance(delta, Mapping) else {}, choice]
    for layer in layers:
        for name in ("content", "reasoning_content", "reasoning", "text"):
            if isinstance(layer.get(name), str) and layer[name]:
                return layer[name]
    return ""


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
