"""From the bytes of an upload to numbered rows: encodings, delimiters, JSON with line numbers.

Nothing here knows a format. A fault in one line costs that line and no other: an unclosed quote
does not swallow what follows, and a JSON document cut in the middle still gives its whole elements.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DELIMITERS = ",;\t|"
LONGEST_QUOTED_FIELD = 2_000  # lines; a quote left open beyond this is a stray quote

_BLOCK = 1 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Problem:
    """A line that could not be read, and why. `line` counts from 1, as editors do."""

    line: int
    reason: str


@dataclass(frozen=True)
class Table:
    """A delimited table whose header has been found.

    Attributes:
        columns: header names, trimmed and lower case.
        delimiter: the character between fields.
        header_line: line number of the header; rows follow it.
        body: offset in the text of the first row.
    """

    columns: tuple[str, ...]
    delimiter: str
    header_line: int
    body: int


def decode(data: bytes) -> tuple[str, bool]:
    """Text of an upload, and whether every byte of it made sense.

    UTF-8 and UTF-16 with or without a byte-order mark; any other encoding keeps its ASCII part,
    which holds every number and model name, and turns the rest into replacement characters.
    """
    encoding = _encoding(data)
    try:
        text, clean = data.decode(encoding), True
    except UnicodeDecodeError:
        text, clean = data.decode(encoding, errors="replace"), False
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removeprefix("\ufeff"), clean


def _encoding(data: bytes) -> str:
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = data[:200]
    if len(head) >= 4 and head[1::2].count(0) > len(head) // 3:
        return "utf-16-le"
    if len(head) >= 4 and head[0::2].count(0) > len(head) // 3:
        return "utf-16-be"
    return "utf-8"


def numbered_lines(text: str, start: int = 0, first: int = 1) -> Iterator[tuple[int, str]]:
    """Lines of `text` from offset `start`, numbered from `first`, without their line ends."""
    line = first
    while start < len(text):
        end = min(start + _BLOCK, len(text))
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or text.find("\n", end) + 1 or len(text)
        block = text[start:end]
        for content in block.removesuffix("\n").split("\n"):
            yield line, content
            line += 1
        start = end


def find_table(text: str) -> Table | None:
    """The header of a delimited table among the first ten lines, or None.

    A spreadsheet's `sep=;` line and title lines above the header are passed over.
    """
    offset = 0
    for number, line in numbered_lines(text[:65_536]):
        if number > 10:
            return None
        delimiter = max(DELIMITERS, key=line.count)
        fields = _split(line, delimiter) if delimiter in line else None
        offset += len(line) + 1
        if fields and len(fields) >= 3 and all(_looks_like_a_name(field) for field in fields):
            columns = tuple(_name(field) for field in fields)
            return Table(columns, delimiter, number, min(offset, len(text)))
    return None


def table_rows(text: str, table: Table) -> Iterator[tuple[int, list[str]] | Problem]:
    """Rows of a table as (line, fields), and a Problem for each line that does not fit.

    A quoted field may run over several lines. Where that leads to a row of the wrong width, the
    first line is refused and reading goes on with the second.
    """
    lines = _Lines(numbered_lines(text, table.body, table.header_line + 1))
    width, delimiter = len(table.columns), table.delimiter
    for number, line in lines:
        if '"' not in line:
            fields = line.split(delimiter)
            if len(fields) == width:
                yield number, fields
            elif line.strip():
                yield _fitted(number, fields, width)
            continue
        more = lines.until_quotes_close(line)
        if more is None:
            yield Problem(number, "a quotation mark is opened and never closed")
            continue
        fields = _split("\n".join([line, *(part for _, part in more)]), delimiter)
        row = _fitted(number, fields, width)
        if isinstance(row, Problem):
            lines.put_back(more)
        yield row


class _Lines:
    """Numbered lines that can be handed back."""

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines = lines
        self._returned: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return self

    def __next__(self) -> tuple[int, str]:
        return self._returned.pop() if self._returned else next(self._lines)

    def put_back(self, lines: list[tuple[int, str]]) -> None:
        self._returned.extend(reversed(lines))

    def until_quotes_close(self, line: str) -> list[tuple[int, str]] | None:
        """The lines after `line` that its open quote runs over; None if it never closes."""
        taken: list[tuple[int, str]] = []
        is_open = line.count('"') % 2
        while is_open and len(taken) < LONGEST_QUOTED_FIELD:
            following = next(self, None)
            if following is None:
                break
            taken.append(following)
            is_open ^= following[1].count('"') % 2
        if not is_open:
            return taken
        self.put_back(taken)
        return None


def _fitted(number: int, fields: list[str], width: int) -> tuple[int, list[str]] | Problem:
    if len(fields) == width:
        return number, fields
    if len(fields) > width and not any(field.strip() for field in fields[width:]):
        return number, fields[:width]
    side = "fewer" if len(fields) < width else "more"
    hint = "the line is cut off" if len(fields) < width else "a stray separator"
    reason = f"{len(fields)} fields where the header has {width}: {side} than named, perhaps {hint}"
    return Problem(number, reason)


def _split(line: str, delimiter: str) -> list[str]:
    if '"' not in line:
        return line.split(delimiter)
    csv.field_size_limit(max(csv.field_size_limit(), len(line) + 1))
    return next(csv.reader([line], delimiter=delimiter), [])


def _name(field: str) -> str:
    return field.strip().strip("\ufeff\"'").strip().lower()


def _looks_like_a_name(field: str) -> bool:
    name = _name(field)
    return not name or (len(name) <= 80 and name[0].isalpha() and "{" not in name)


@dataclass(frozen=True)
class Element:
    """One JSON object, the line it starts on, and where in the document (None in JSONL)."""

    line: int
    value: dict[str, Any]
    offset: int | None = None


def json_lines(text: str) -> Iterator[Element | Problem]:
    """Objects of a JSONL file; a line that is no JSON object gives a Problem."""
    for number, line in numbered_lines(text):
        if not line.strip():
            continue
        value = _loads(line)
        if isinstance(value, dict):
            yield Element(number, value)
        else:
            yield Problem(number, "not a JSON object, perhaps cut off")


def json_elements(text: str, key: str | None = None) -> Iterator[Element | Problem]:
    """Objects of the first JSON array in `text`, or of the array under `key`, one by one.

    A document cut off in the middle gives what comes before the cut and one Problem.
    """
    offset = _array_start(text, key)
    if offset is None:
        return
    line = text.count("\n", 0, offset) + 1
    while True:
        begin = _skip(text, offset)
        line += text.count("\n", offset, begin)
        if begin >= len(text):
            yield Problem(line, "the JSON ends in the middle: the file is cut off")
            return
        if text[begin] == "]":
            return
        if text[begin] == ",":
            offset = begin + 1
            continue
        try:
            value, end = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError):
            yield Problem(line, "not valid JSON from here on, perhaps cut off")
            return
        if isinstance(value, dict):
            yield Element(line, value, begin)
        else:
            yield Problem(line, "not a JSON object")
        line += text.count("\n", begin, end)
        offset = end


def nested_elements(text: str, outer: Element, key: str) -> Iterator[Element | Problem]:
    """Objects of the list under `key` inside `outer`, each with its own line number.

    They inherit the plain fields of `outer`: a bucket's start time belongs to all its rows.
    """
    shared = {k: v for k, v in outer.value.items() if not isinstance(v, list | dict)}
    position = _array_start(text, key, outer.offset) if outer.offset is not None else None
    line = outer.line
    if position is not None:
        line += text.count("\n", outer.offset, position)
    for row in outer.value[key]:
        begin = None
        if position is not None:
            begin = _skip(text, position, extra=",")
            line += text.count("\n", position, begin)
            _, position = _DECODER.raw_decode(text, begin)
        if isinstance(row, dict):
            yield Element(line, shared | row, begin)
        else:
            yield Problem(line, "not a JSON object")
        if position is not None:
            line += text.count("\n", begin, position)


def whole_document(text: str) -> Element | None:
    """The JSON object that a document is; None where it is no object, or broken."""
    begin = _skip(text, 0)
    try:
        value, _ = _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None
    return (
        Element(text.count("\n", 0, begin) + 1, value, begin) if isinstance(value, dict) else None
    )


def parsed_cell(cell: object) -> object:
    """A cell of an export that may hold JSON: the object in it, or the cell itself."""
    if not isinstance(cell, str) or not cell.lstrip().startswith(("{", "[")):
        return cell
    value = _loads(cell)
    return cell if value is None else value


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _array_start(text: str, key: str | None, offset: int = 0) -> int | None:
    if key is None:
        begin = _skip(text, offset)
        return begin + 1 if text[begin : begin + 1] == "[" else None
    here = re.compile(rf'"{re.escape(key)}"\s*:\s*\[').search(text, offset)
    return here.end() if here else None


def _skip(text: str, offset: int, extra: str = "") -> int:
    while True:
        offset = _SPACE.match(text, offset).end()
        if not extra or text[offset : offset + 1] not in extra or offset >= len(text):
            return offset
        offset += 1
