"""Recorded traffic: arrivals and lengths from Azure's CSV or Mooncake's JSON lines.

Azure: `TIMESTAMP,ContextTokens,GeneratedTokens` (Azure/AzurePublicDataset, LLM inference traces).
Mooncake: `timestamp` in ms, `input_length`, `output_length` and `hash_ids`, one for each 512
tokens of the input (kvcache-ai/Mooncake, FAST'25 release). Either may be gzipped.
"""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from kvcore.paging.requests import Request

MAX_BYTES = 64 * 2**20
MAX_ROWS = 100_000
MAX_TOKENS = 10_000_000
MOONCAKE_BLOCK_SIZE = 512

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE_KEYS = ("timestamp", "input_length", "output_length")


class TraceError(ValueError):
    """A file that cannot be used as a trace; the message is one sentence for the user."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a trace; `seconds` count from its first."""

    seconds: float
    prompt: int
    output: int
    hash_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace as read: `format` is "Azure" or "Mooncake", `num_empty` rows generated nothing."""

    format: str
    rows: list[Row]
    num_empty: int

    @property
    def seconds(self) -> float:
        """From the first arrival to the last."""
        return self.rows[-1].seconds

    @property
    def longest(self) -> int:
        """Tokens of the longest request, output included."""
        return max(row.prompt + row.output for row in self.rows)

    def requests(self, steps_per_second: float | None = None) -> list[Request]:
        """The rows as requests; without a pace of decoding all wait at step 0.

        Raises ValueError for a pace that is not positive.
        """
        if steps_per_second is not None and not steps_per_second > 0:
            raise ValueError("The steps per second must be positive.")
        pace = steps_per_second or 0.0
        return [
            Request(
                row.prompt,
                row.output,
                row.seconds * pace,
                hash_ids=row.hash_ids,
                hash_block_size=MOONCAKE_BLOCK_SIZE,
            )
            for row in self.rows
        ]


def at_load(requests: Sequence[Request], load: float, requests_per_step: float) -> list[Request]:
    """The same requests with arrivals stretched so that they come at `load` times a capacity.

    Raises ValueError for a load or capacity that is not positive.
    """
    if not load > 0 or not requests_per_step > 0:
        raise ValueError("The load and the capacity must be positive.")
    last = max((request.arrival for request in requests), default=0.0)
    if not last:
        return list(requests)
    stretch = len(requests) / (load * requests_per_step) / last
    return [replace(request, arrival=request.arrival * stretch) for request in requests]


def read_trace(data: bytes, max_bytes: int = MAX_BYTES, max_rows: int = MAX_ROWS) -> Trace:
    """Read a trace, told by its first line; the first `max_rows` rows of it.

    Raises TraceError, whose message names the line and the column that are wrong.
    """
    lines = _lines(_unpack(data, max_bytes))
    first = next(lines, None)
    if first is None:
        raise TraceError("The file is empty; it should hold a trace in Azure's or Mooncake's form.")
    mooncake = first[1].lstrip().startswith("{")
    rows = _mooncake_rows(first, lines) if mooncake else _azure_rows(first, lines)
    return _trace("Mooncake" if mooncake else "Azure", islice(rows, max_rows))


def _unpack(data: bytes, max_bytes: int) -> str:
    size = max_bytes // 2**20
    if len(data) > max_bytes:
        raise TraceError(
            f"The file has {len(data) / 2**20:,.0f} MiB; traces of up to {size:,} MiB are read, so "
            "cut it to its first part."
        )
    if data[:2] == b"\x1f\x8b":
        data = _gunzip(data, max_bytes, size)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TraceError("The file is not text in UTF-8, so it cannot be a trace.") from None


def _gunzip(data: bytes, max_bytes: int, size: int) -> bytes:
    unzip = zlib.decompressobj(wbits=31)
    try:
        plain = unzip.decompress(data, max_bytes + 1)
    except zlib.error:
        raise TraceError("The gzip file is damaged; compress the trace again.") from None
    if len(plain) > max_bytes:
        raise TraceError(
            f"The file unpacks to more than {size:,} MiB; cut the trace to its first part."
        )
    if not unzip.eof:
        raise TraceError("The gzip file ends early; upload it again.")
    return plain


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(io.StringIO(text), start=1):
        if line.strip():
            yield number, line


def _trace(form: str, rows: Iterator[tuple[int, Row]]) -> Trace:
    kept, num_empty, latest = [], 0, None
    for number, row in rows:
        if latest is not None and row.seconds < latest:
            raise TraceError(
                f"Line {number} is earlier than the line before it; sort the trace by time."
            )
        latest = row.seconds
        if row.prompt and row.output:
            kept.append(row)
        else:
            num_empty += 1
    if not kept:
        raise TraceError("The trace has no request with tokens in and out.")
    start = kept[0].seconds
    return Trace(form, [replace(row, seconds=row.seconds - start) for row in kept], num_empty)


def _azure_rows(
    first: tuple[int, str], lines: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, Row]]:
    header = [name.strip() for name in _fields(*first)]
    missing = [name for name in AZURE_COLUMNS if name not in header]
    if len(missing) == len(AZURE_COLUMNS):
        raise TraceError(
            "This is not a trace: Azure's has the columns TIMESTAMP, ContextTokens and "
            "GeneratedTokens, Mooncake's a JSON object on each line."
        )
    if missing:
        noun = "column" if len(missing) == 1 else "columns"
        raise TraceError(
            f"The {noun} {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; "
            "a trace needs TIMESTAMP, ContextTokens and GeneratedTokens."
        )
    twice = next((name for name in AZURE_COLUMNS if header.count(name) > 1), None)
    if twice:
        raise TraceError(f"The column {twice} is there more than once; leave the one that holds.")
    places = [header.index(name) for name in AZURE_COLUMNS]
    for number, line in lines:
        fields = _fields(number, line)
        if len(fields) != len(header):
            raise TraceError(
                f"Line {number} has {len(fields)} fields where the header has {len(header)}."
            )
        when, prompt, output = (fields[place].strip() for place in places)
        yield (
            number,
            Row(
                _timestamp(number, when),
                _count(number, "ContextTokens", prompt),
                _count(number, "GeneratedTokens", output),
            ),
        )


def _fields(number: int, line: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except (csv.Error, StopIteration):
        raise TraceError(f"Line {number} is not CSV.") from None


def _timestamp(number: int, text: str) -> float:
    """Seconds; Azure writes seven digits after the point where Python reads six."""
    try:
        whole, _, fraction = text.partition(".")
        digits = fraction.rstrip("Zz")
        fraction_seconds = float(f"0.{digits}") if digits.isdigit() else None
        if fraction and fraction_seconds is None:
            moment = datetime.fromisoformat(text)
        else:
            moment = datetime.fromisoformat(whole)
        if moment.tzinfo is not None:
            moment = moment.replace(tzinfo=None) - moment.utcoffset()
    except (ValueError, OverflowError):
        raise TraceError(
            f"Line {number}: TIMESTAMP “{_short(text)}” is not a date and time such as "
            "2023-11-16 18:15:46.68."
        ) from None
    return (moment - datetime(2000, 1, 1)).total_seconds() + (fraction_seconds or 0.0)


def _count(number: int, name: str, value: object) -> int:
    """A number of tokens from a CSV field or a JSON value."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        count = int(value)
    except ValueError:
        raise TraceError(
            f"Line {number}: {name} “{_short(value)}” is not a whole number of tokens."
        ) from None
    if count < 0:
        raise TraceError(f"Line {number}: {name} is {_short(count)}; a length cannot be negative.")
    if count > MAX_TOKENS:
        raise TraceError(
            f"Line {number}: {name} is {_short(count)}; no request has more than {MAX_TOKENS:,}."
        )
    return count


def _mooncake_rows(
    first: tuple[int, str], lines: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, Row]]:
    yield _mooncake_row(*first)
    for number, line in lines:
        yield _mooncake_row(number, line)


def _mooncake_row(number: int, line: str) -> tuple[int, Row]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        raise TraceError(f"Line {number} is not a JSON object.") from None
    if not isinstance(entry, dict):
        raise TraceError(f"Line {number} is not a JSON object.")
    missing = [key for key in MOONCAKE_KEYS if key not in entry]
    if missing:
        raise TraceError(
            f"Line {number} has no {missing[0]}; Mooncake's lines have timestamp, input_length "
            "and output_length."
        )
    milliseconds = entry["timestamp"]
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        raise TraceError(f"Line {number}: timestamp “{_short(milliseconds)}” is not a number.")
    if not abs(milliseconds) < 1e15:
        raise TraceError(f"Line {number}: timestamp “{_short(milliseconds)}” is not a time in ms.")
    prompt = _count(number, "input_length", entry["input_length"])
    output = _count(number, "output_length", entry["output_length"])
    return number, Row(milliseconds / 1000, prompt, output, _hash_ids(number, entry, prompt))


def _hash_ids(number: int, entry: dict, prompt: int) -> tuple[int, ...] | None:
    ids = entry.get("hash_ids")
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(type(name) is int for name in ids):
        raise TraceError(f"Line {number}: hash_ids is not a list of whole numbers.")
    if len(ids) < prompt // MOONCAKE_BLOCK_SIZE:
        raise TraceError(
            f"Line {number} has {len(ids)} hash_ids for {prompt:,} tokens; there is one for each "
            f"{MOONCAKE_BLOCK_SIZE} tokens."
        )
    return tuple(ids)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 40 else text[:39] + "…"
