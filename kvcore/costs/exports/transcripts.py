"""Session files of coding assistants: Claude Code's JSONL and Codex's rollouts.

Claude Code writes one line for each block of an answer and repeats the usage on each, with the
output still growing, so a message counts once and at its largest. Codex repeats its counter when
nothing was called; the running total tells a repeat from a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvcore.costs.exports.layout import Format, Layout, NotUsage, Record, RowProblem, dig
from kvcore.costs.exports.responses import exclusive_counts


def is_transcript(record: Record) -> bool:
    return _is_claude_code(record) or _is_codex(record)


def _is_claude_code(record: Record) -> bool:
    return ("sessionId" in record or "requestId" in record or "parentUuid" in record) and (
        isinstance(record.get("message"), dict) or record.get("type") in _LINE_TYPES
    )


_LINE_TYPES = ("summary", "user", "assistant", "system", "file-history-snapshot", "queue-operation")


def _is_codex(record: Record) -> bool:
    return isinstance(record.get("payload"), dict) and "type" in record


def _reader() -> Callable[[Record], Iterable[Record]]:
    """A reader for one file: Codex names model and session on lines of their own."""
    said: dict[str, object] = {}

    def rows(record: Record) -> Iterable[Record]:
        if _is_codex(record):
            return _codex_rows(record, said)
        return _claude_code_rows(record)

    return rows


def _claude_code_rows(record: Record) -> Iterable[Record]:
    message = record.get("message")
    usage = dig(record, "message", "usage")
    if not isinstance(usage, dict) or message.get("model") == "<synthetic>":
        raise NotUsage("no call of a model")
    identity = message.get("id")
    yield {
        **exclusive_counts(usage, "anthropic"),
        "at": record.get("timestamp"),
        "model": message.get("model"),
        "provider": "anthropic",
        "service_tier": usage.get("service_tier"),
        "speed": usage.get("speed"),
        "geo": usage.get("inference_geo"),
        "identity": None if identity is None else f"{identity} {record.get('requestId') or ''}",
        "session": record.get("sessionId"),
    }


def _codex_rows(record: Record, said: dict[str, object]) -> Iterable[Record]:
    payload = record["payload"]
    kind = payload.get("type") if record["type"] == "event_msg" else record["type"]
    if kind == "session_meta":
        said.update(session=payload.get("id"), provider=payload.get("model_provider"))
    if kind == "turn_context" and payload.get("model"):
        said["model"] = payload["model"]
    usage = dig(payload, "info", "last_token_usage")
    if kind != "token_count" or not isinstance(usage, dict):
        raise NotUsage("no call of a model")
    running = dig(payload, "info", "total_token_usage")
    yield {
        **_codex_counts(usage),
        "at": record.get("timestamp"),
        "model": said.get("model"),
        "provider": said.get("provider") or "openai",
        "identity": f"{said.get('session')} {running}" if running else None,
        "session": said.get("session"),
    }


def _codex_counts(usage: Record) -> dict[str, int]:
    """`input_tokens` includes cached tokens and writes, as in the Responses API."""
    read = usage.get("cached_input_tokens") or 0
    write = usage.get("cache_write_input_tokens") or 0
    total, output = usage.get("input_tokens"), usage.get("output_tokens")
    whole = (read, write, total, output)
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in whole):
        raise RowProblem("a token count is missing, negative or not a whole number")
    if read + write > total:
        raise RowProblem(f"cache reads and writes ({read + write:,}) exceed the input ({total:,})")
    return {
        "input": total - read - write,
        "cache_read": read,
        "write_short": write,
        "output": output,
    }


TRANSCRIPT = Layout(
    Format.TRANSCRIPT,
    object_sign=is_transcript,
    lookback=_reader,
)

LAYOUTS = (TRANSCRIPT,)
