"""A client for any OpenAI-compatible server, on httpx2: streaming, time-outs, nothing followed.

    target = policy("", app_is_local=True).target("http://127.0.0.1:8000")
    with Client(target) as client:
        print(client.models())
        answer = client.ask("smol", "Count to ten.", max_tokens=20)

All that goes wrong is raised as a ServingError whose message is a sentence without a key in it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from kvcore.json_text import loads
from kvcore.serving.addresses import Target
from kvcore.serving.answers import Answer
from kvcore.serving.errors import (
    BadRequest,
    Dropped,
    KeyRefused,
    NoConnection,
    NoSuchModel,
    NotAnApi,
    ServerFault,
    ServingError,
    Stopped,
    TimedOut,
    TooManyRequests,
)
from kvcore.serving.metrics import EngineMetrics, read_metrics
from kvcore.serving.transport import PinnedTransport

MOST_BYTES = 10_000_000
MOST_STREAM_BYTES = 20_000_000
MOST_CONNECTIONS = 32
QUOTED = 160
EXTRAS_SECONDS = 5.0
_LIBRARY_ERRORS = (
    httpx2.HTTPError,
    httpx2.InvalidURL,
    httpx2.StreamError,
    OSError,
    UnicodeError,
)
IGNORES_EOS = ("vllm", "sglang", "llamacpp", "llama.cpp")


@dataclass(frozen=True)
class Timeouts:
    """Seconds. silence: the longest wait for the next byte, so also for the first token."""

    connect: float = 10.0
    silence: float = 120.0
    answer: float = 900.0


@dataclass(frozen=True)
class Key:
    """A key that no representation, log or error shows."""

    value: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        text = self.value.strip()
        if not text.isascii() or not text.isprintable() or " " in text:
            raise KeyRefused(
                "The key holds characters that no key has, such as a line break or a space: paste "
                "it again."
            )
        object.__setattr__(self, "value", text)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __str__(self) -> str:
        return "(a key)" if self.value else "(no key)"

    def shows_in(self, text: str) -> bool:
        """Whether a text repeats the key or a recognisable part of it."""
        if not self.value:
            return False
        size = min(6, len(self.value))
        pieces = (self.value[i : i + size] for i in range(len(self.value) - size + 1))
        return any(piece in text for piece in pieces)


@dataclass(frozen=True)
class ServedModel:
    """One entry of /v1/models. max_model_len: vLLM and SGLang give it. owner: "vllm" and so on."""

    name: str
    owner: str = ""
    max_model_len: int | None = None


class Client:
    """Talks to one target. Safe to use from several threads; `abort()` ends all of them."""

    def __init__(
        self,
        target: Target,
        key: Key | None = None,
        timeouts: Timeouts | None = None,
        transport: httpx2.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.target = target
        self._clock = clock
        self.timeouts = timeouts or Timeouts()
        self._key = key or Key()
        self._transport = transport or PinnedTransport(target, MOST_CONNECTIONS)
        self._http = httpx2.Client(
            transport=self._transport,
            follow_redirects=False,
            trust_env=False,
            timeout=httpx2.Timeout(self.timeouts.silence, connect=self.timeouts.connect),
            headers={"User-Agent": "kv-cache-workbench", "Accept-Encoding": "identity"},
        )
        self._aborted = False
        self._length_field = "max_tokens"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def abort(self) -> None:
        """End whatever is under way, from any thread: those requests raise Stopped."""
        self._aborted = True
        if hasattr(self._transport, "abort"):
            self._transport.abort()

    def models(self) -> list[ServedModel]:
        """What the server serves. Raises ServingError."""
        document = self._json(f"{self.target.base}/models")
        listed = document.get("data") if isinstance(document, Mapping) else None
        if not isinstance(listed, list):
            raise NotAnApi(
                f"{self.target.url}/models answers, but not with a list of models: is this the "
                "root of an OpenAI-compatible API?"
            )
        return [
            ServedModel(
                str(entry["id"])[:200],
                str(entry.get("owned_by") or "")[:60],
                _whole(entry.get("max_model_len")),
            )
            for entry in listed[:2_000]
            if isinstance(entry, Mapping) and entry.get("id")
        ]

    def metrics(self, model: str | None = None) -> EngineMetrics | None:
        """One reading of /metrics; None where the server has none."""
        text = self._optional_text(f"{self.target.root}/metrics")
        return None if text is None else read_metrics(text, model)

    def extra(self, path: str) -> Any:
        """A JSON document beside the API, such as /slots or /version; None where there is none."""
        text = self._optional_text(f"{self.target.root}{path}")
        try:
            return None if text is None else loads(text)
        except (ValueError, RecursionError):
            return None

    def ask(
        self,
        model: str,
        prompt: str,
        max_tokens: int,
        *,
        system: str = "",
        whole_length: bool = False,
    ) -> Answer:
        """Stream one answer, timed on this machine's monotonic clock, or the one given.

        whole_length: have it write all of max_tokens, where the server knows how to be told.
        Raises ServingError; a broken stream raises Dropped with what had come.
        """
        messages = [{"role": "system", "content": system}] if system else []
        body = {
            "model": model,
            "messages": [*messages, {"role": "user", "content": prompt}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if whole_length:
            body["ignore_eos"] = True
        try:
            return self._stream({**body, self._length_field: max_tokens}, max_tokens)
        except BadRequest as refusal:
            if self._length_field == "max_tokens" and "max_completion_tokens" in str(refusal):
                self._length_field = "max_completion_tokens"
                return self._stream({**body, self._length_field: max_tokens}, max_tokens)
            raise

    # One request

    def _stream(self, body: Mapping[str, Any], max_tokens: int) -> Answer:
        answer = Answer()
        path = f"{self.target.base}/chat/completions"
        started = self._clock()
        with (
            self._explained(answer),
            self._http.sse(
                self.target.origin + path, method="POST", json=body, headers=self._headers()
            ) as source,
        ):
            self._check(source.response, str(body["model"]))
            answer.clock_ahead_seconds = clock_ahead(source.response.headers.get("date"))
            for event in self._events(source, started):
                answer.take(event, self._clock() - started)
                if len(answer.piece_seconds) > max_tokens + 16:
                    raise ServerFault(
                        f"The server wrote more than the {max_tokens:,} tokens it was asked "
                        "for, so reading stopped."
                    )
        answer.total_seconds = self._clock() - started
        if not answer.done:
            raise Dropped(
                "The server ended the stream before the answer was whole"
                + _so_far(answer)
                + ". Its log will say why.",
                answer,
            )
        return answer

    def _events(self, source: httpx2.EventSource, started: float) -> Iterator[Mapping[str, Any]]:
        size = 0
        for event in source:
            size += len(event.data)
            if size > MOST_STREAM_BYTES:
                raise ServerFault("The stream is longer than any answer: reading stopped.")
            if self._clock() - started > self.timeouts.answer:
                raise TimedOut(
                    f"The answer took more than {self.timeouts.answer:,.0f} s in all, so reading "
                    "stopped."
                )
            if event.data.strip() == "[DONE]":
                return
            try:
                chunk = loads(event.data)
            except (ValueError, RecursionError):
                raise NotAnApi(
                    "The stream holds an event that is not JSON, so it is no OpenAI-compatible "
                    "answer."
                ) from None
            if not isinstance(chunk, Mapping):
                continue
            if chunk.get("error") and not chunk.get("choices"):
                raise ServerFault(f"The server reports an error{self._quote(chunk)}.")
            yield chunk

    def _json(self, path: str) -> Any:
        with self._explained():
            text, response = self._get(path)
            self._check_read(response, text)
        try:
            return loads(text)
        except (ValueError, RecursionError):
            raise self._not_an_api(text, response) from None

    def _optional_text(self, path: str) -> str | None:
        """Extras never fail an experiment: what cannot be had is None. Stopped is raised."""
        try:
            with self._explained():
                text, response = self._get(path, seconds=min(EXTRAS_SECONDS, self.timeouts.silence))
        except Stopped:
            raise
        except ServingError:
            return None
        return text if response.status_code == 200 else None

    def _get(self, path: str, seconds: float | None = None) -> tuple[str, httpx2.Response]:
        options = {} if seconds is None else {"timeout": httpx2.Timeout(seconds)}
        url = self.target.origin + path
        with self._http.stream("GET", url, headers=self._headers(), **options) as response:
            return self._read(response), response

    def _read(self, response: httpx2.Response) -> str:
        data = bytearray()
        started = time.monotonic()
        for chunk in response.iter_raw():
            data += chunk
            if len(data) > MOST_BYTES:
                raise NotAnApi(f"The answer is larger than {MOST_BYTES // 10**6} MB: not an API.")
            if time.monotonic() - started > self.timeouts.silence:
                raise TimedOut("The answer came too slowly, so reading stopped.")
        return data.decode(errors="replace")

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key.value}"} if self._key else {}

    # What an answer means

    def _check(self, response: httpx2.Response, model: str) -> None:
        """Raise unless the response is an event stream."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code == 200 and kind == "text/event-stream":
            return
        text = self._read(response)
        self._check_read(response, text, model)
        if kind == "application/json":
            raise NotAnApi("The server answered in one piece; it must be able to stream.")
        raise self._not_an_api(text, response)

    def _check_read(self, response: httpx2.Response, text: str, model: str = "") -> None:
        status = response.status_code
        if status == 200:
            return
        said = self._quote(_json_or_none(text))
        if 300 <= status < 400:
            raise NotAnApi(
                f"The server sends callers elsewhere ({status}); redirects are not followed. Type "
                "the address it leads to."
            )
        if status in (401, 403):
            what = "The server refused the key" if self._key else "The server wants a key"
            raise KeyRefused(f"{what} ({status}): check it, and that it may use this model.")
        if status == 429:
            raise self._too_many(response)
        if status == 404 and model:
            raise NoSuchModel(
                f"The server knows no model “{model[:100]}”, or has no chat endpoint (404){said}."
            )
        if status == 404:
            raise NotAnApi(
                f"{self.target.url} is not the root of an OpenAI-compatible API (404): most end in "
                "/v1."
            )
        if status >= 500:
            raise ServerFault(f"The server failed ({status}){said}.")
        if model and _names_missing(said, model):
            raise NoSuchModel(f"The server does not serve “{model[:100]}” ({status}){said}.")
        raise BadRequest(f"The server refused the request ({status}){said}.")

    def _too_many(self, response: httpx2.Response) -> TooManyRequests:
        headers = response.headers
        wait = retry_after(headers.get("retry-after"), headers.get("date"))
        when = "does not say for how long" if wait is None else f"asks to wait {wait:,.0f} s"
        return TooManyRequests(f"The server limits requests (429) and {when}.", wait)

    def _not_an_api(self, text: str, response: httpx2.Response) -> NotAnApi:
        kind = response.headers.get("content-type", "")
        if "html" in kind.lower() or text.lstrip()[:1] == "<":
            return NotAnApi(
                f"{self.target.origin} answers with a web page, not with an API: check port and "
                "path, and whether a login or proxy stands before it."
            )
        return NotAnApi(
            f"{self.target.origin} does not answer as an OpenAI-compatible API: check port and "
            "path."
        )

    def _quote(self, document: Any) -> str:
        """The server's own words for an error, unless they repeat the key; "" where there are
        none."""
        words = _error_words(document)
        if not words or self._key.shows_in(words):
            return ""
        return f": “{words[:QUOTED]}”"

    @contextlib.contextmanager
    def _explained(self, answer: Answer | None = None) -> Iterator[None]:
        """Turn the library's errors into sentences, and nothing of theirs with them."""
        where = self.target.origin
        try:
            yield
        except _LIBRARY_ERRORS as error:
            if answer is not None and answer.done and isinstance(error, httpx2.TransportError):
                return  # all of it had come before the connection broke
            problem = self._problem(error, where, answer)
        except RuntimeError:
            if not self._aborted:
                raise
            problem = Stopped("Stopped.")
        else:
            return
        raise problem from None

    def _problem(self, error: Exception, where: str, answer: Answer | None) -> ServingError:
        if self._aborted:
            return Stopped("Stopped.")
        if isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout):
            return TimedOut(
                f"{where} did not take the connection within {self.timeouts.connect:,.0f} s."
            )
        if isinstance(error, httpx2.ConnectError):
            return NoConnection(
                f"Nobody answers at {where}: is the server up, and is the port right?"
                if self.target.scheme == "http"
                else f"No secure connection to {where}: is the server up, and is its certificate "
                "valid for this name?"
            )
        if isinstance(error, httpx2.TimeoutException):
            got = _so_far(answer) if answer else ""
            return TimedOut(
                f"{where} sent nothing for {self.timeouts.silence:,.0f} s, so it was given up{got}."
            )
        if isinstance(error, httpx2.SSEError):
            return NotAnApi("The stream is not one of server-sent events, or an event is too long.")
        if isinstance(error, httpx2.TransportError | httpx2.StreamError | OSError):
            return Dropped(
                f"{where} broke the connection" + (_so_far(answer) if answer else "") + ".", answer
            )
        return NotAnApi(f"{where} does not answer as an HTTP server should.")


def clock_ahead(date_header: str | None, now: datetime | None = None) -> float | None:
    """Seconds by which the server's clock is ahead of this one; None without a readable Date."""
    moment = _http_date(date_header)
    if moment is None:
        return None
    return (moment - (now or datetime.now(UTC))).total_seconds()


def retry_after(header: str | None, date_header: str | None = None) -> float | None:
    """Seconds to wait (RFC 9110, 10.2.3): a number, or a date read on the server's own clock."""
    if header is None:
        return None
    text = header.strip()
    if text.isdecimal() and len(text) < 10:
        return float(text)
    until = _http_date(text)
    if until is None:
        return None
    now = _http_date(date_header) or datetime.now(UTC)
    return max(0.0, (until - now).total_seconds())


def _http_date(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _so_far(answer: Answer) -> str:
    pieces = len(answer.piece_seconds)
    return f" after {pieces:,} pieces of text" if pieces else " before any text"


def _names_missing(words: str, model: str) -> bool:
    """Whether an error says that the model is not there."""
    lower = words.lower()
    if "model" not in lower and model.lower() not in lower:
        return False
    signs = ("not found", "not exist", "unknown", "invalid model", "not available", "no such")
    return any(sign in lower for sign in (*signs, "not supported", "pinned to"))


def _json_or_none(text: str) -> Any:
    try:
        return loads(text)
    except (ValueError, RecursionError):
        return None


def _error_words(document: Any) -> str:
    """The message of an error body in any of the usual shapes, on one line."""
    seek: list[Callable[[Any], Any]] = [
        lambda d: d["error"]["message"],
        lambda d: d["error"],
        lambda d: d["message"],
        lambda d: d["detail"],
        lambda d: d["detail"][0]["msg"],
    ]
    for look in seek:
        try:
            words = look(document)
        except (KeyError, TypeError, IndexError):
            continue
        if isinstance(words, str) and words.strip():
            return " ".join(words.split()).rstrip(".")
    return ""


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
