"""From a file to the blocks of columns that `columns.check` turns into good rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from kvcore.costs.exports import (
    anthropic,
    helicone,
    langfuse,
    litellm,
    openai,
    openrouter,
    plain,
    responses,
    transcripts,
)
from kvcore.costs.exports.columns import Checked, check
from kvcore.costs.exports.layout import COLUMNS, Layout, NotUsage, Record, RowProblem
from kvcore.costs.exports.text import (
    Element,
    Problem,
    Table,
    find_table,
    json_elements,
    json_lines,
    nested_elements,
    table_rows,
    whole_document,
)

LAYOUTS: tuple[Layout, ...] = (
    *anthropic.LAYOUTS,
    *openai.LAYOUTS,
    *openrouter.LAYOUTS,
    *litellm.LAYOUTS,
    *langfuse.LAYOUTS,
    *helicone.LAYOUTS,
    *transcripts.LAYOUTS,
    *responses.LAYOUTS,
    *plain.LAYOUTS,
)

ROWS_AT_ONCE = 50_000
SAMPLE = 50
"""Records looked at to tell a JSON format by; the first may be broken or hold no usage."""

_ARRAYS = ("data", "results")
_NONE = ("", "0", "0.0")


@dataclass
class Source:
    """A file whose format is known, ready to be read block by block."""

    layout: Layout
    blocks: Iterator[Checked]
    skipped: dict[str, int] = field(default_factory=dict)


class NotRecognised(ValueError):
    """No format fits; the message says what was found, the line where it stands."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def open_source(text: str) -> Source:
    """Tell the format of a file and start reading it. Raises NotRecognised."""
    if not text.strip():
        raise NotRecognised(1, "the file is empty")
    if text.lstrip()[0] in "{[":
        return _json_source(text)
    return _table_source(text)


def _table_source(text: str) -> Source:
    table = find_table(text)
    if table is None:
        raise NotRecognised(1, "no header with column names was found, and it is not JSON")
    names = frozenset(table.columns)
    layout = next((layout for layout in LAYOUTS if layout.is_table(names)), None)
    if layout is None:
        raise NotRecognised(
            table.header_line, "the header is of no export this page knows; see the list of formats"
        )
    _refuse_twice(layout, table)
    source = Source(layout, iter(()))
    if layout.records is not None:
        rows = _table_records(text, table)
        source.blocks = _record_blocks(layout, rows, source.skipped)
        return source
    places = _places(layout, table)
    kinds = {
        key: table.columns.index(name)
        for key, names in layout.kinds.items()
        for name in names
        if name in table.columns
    }
    source.blocks = _table_blocks(layout, places, kinds, table_rows(text, table))
    return source


def _refuse_twice(layout: Layout, table: Table) -> None:
    """Raise NotRecognised where a column that is read has a namesake: either may hold."""
    read = {name for group in (layout.names, layout.kinds) for name in chain(*group.values())}
    for name, count in Counter(table.columns).items():
        if count > 1 and name and (name in read or layout.records is not None):
            raise NotRecognised(
                table.header_line,
                f"the header names {name[:80]} {count} times: leave only the one that holds",
            )


def _places(layout: Layout, table: Table) -> dict[str, int]:
    """Where each column stands in the table. Raises NotRecognised where a needed one is missing."""
    places = {}
    for column, names in layout.names.items():
        here = [table.columns.index(name) for name in names if name in table.columns]
        if here:
            places[column] = here[0]
        elif column in layout.needs:
            raise NotRecognised(
                table.header_line,
                f"the column {names[0]} is missing, and without it {layout.format} rows "
                "cannot be priced",
            )
    return places


def _table_blocks(
    layout: Layout,
    places: Mapping[str, int],
    kinds: Mapping[str, int],
    rows: Iterable[tuple[int, list[str]] | Problem],
) -> Iterator[Checked]:
    for block in _in_blocks(rows):
        problems = [(row.line, row.reason) for row in block if isinstance(row, Problem)]
        good = [row for row in block if not isinstance(row, Problem)]
        columns: dict[str, list[Any]] = {
            column: [fields[place] for _, fields in good] for column, place in places.items()
        }
        if layout.aggregated:
            columns["identity"] = [tuple(fields) for _, fields in good]
        if kinds:
            columns["details"] = [
                {key: fields[place] for key, place in kinds.items() if fields[place] not in _NONE}
                or None
                for _, fields in good
            ]
        checked = check(layout, [line for line, _ in good], columns)
        yield Checked(checked.frame, problems + checked.rejected)


def _table_records(text: str, table: Table) -> Iterator[Element | Problem]:
    for row in table_rows(text, table):
        if isinstance(row, Problem):
            yield row
        else:
            line, fields = row
            yield Element(line, dict(zip(table.columns, fields, strict=True)))


def _json_source(text: str) -> Source:
    elements, layout = _recognised(text)
    source = Source(layout, iter(()))
    source.blocks = _record_blocks(layout, _expanded(text, elements, layout), source.skipped)
    return source


def _recognised(text: str) -> tuple[Iterator[Element | Problem], Layout]:
    """The records of a JSON file and its layout, whichever way the JSON is put together."""
    for read in (_as_lines, _as_array, _as_document):
        elements = read(text)
        if elements is None:
            continue
        sample = list(islice(elements, SAMPLE))
        layout = _layout_of(sample)
        if layout is not None:
            return chain(sample, elements), layout
    raise NotRecognised(1, "the JSON holds no usage this page knows; see the list of formats")


def _as_lines(text: str) -> Iterator[Element | Problem] | None:
    """JSONL: each line an object by itself. A lone line is taken as a document instead."""
    head = list(islice(json_lines(text), SAMPLE))
    if len(head) < 2 or not any(isinstance(element, Element) for element in head):
        return None
    return json_lines(text)


def _as_array(text: str) -> Iterator[Element | Problem] | None:
    """An array, or the array a document keeps its records in; read element by element."""
    if text.lstrip().startswith("["):
        return json_elements(text)
    for key in _ARRAYS:
        elements = json_elements(text, key)
        sample = list(islice(elements, SAMPLE))
        if _layout_of(sample) is not None:
            return chain(sample, elements)
    return None


def _as_document(text: str) -> Iterator[Element | Problem] | None:
    element = whole_document(text)
    return None if element is None else iter((element,))


def _layout_of(sample: Iterable[Element | Problem]) -> Layout | None:
    records = [element.value for element in sample if isinstance(element, Element)]
    for layout in LAYOUTS:
        if any(layout.object_sign(row) for record in records for row in _inside(record)):
            return layout
    return None


def _inside(record: Record) -> Iterator[Record]:
    """A record and, where it is a page or a bucket, the first row of what it holds."""
    yield record
    for key in _ARRAYS:
        rows = record.get(key)
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            plain_fields = {k: v for k, v in record.items() if not isinstance(v, list | dict)}
            yield from _inside(plain_fields | rows[0])


def _expanded(
    text: str, elements: Iterable[Element | Problem], layout: Layout
) -> Iterator[Element | Problem]:
    """Pages and buckets opened up into their rows."""
    for element in elements:
        key = None
        if isinstance(element, Element) and not layout.object_sign(element.value):
            key = next((k for k in _ARRAYS if isinstance(element.value.get(k), list)), None)
        if key is None:
            yield element
        else:
            yield from _expanded(text, nested_elements(text, element, key), layout)


def _record_blocks(
    layout: Layout, elements: Iterable[Element | Problem], skipped: dict[str, int]
) -> Iterator[Checked]:
    to_rows = layout.lookback() if layout.lookback is not None else layout.records
    for block in _in_blocks(elements):
        problems: list[tuple[int, str]] = []
        lines: list[int] = []
        columns: dict[str, list[Any]] = {column: [] for column in COLUMNS}
        for element in block:
            if isinstance(element, Problem):
                problems.append((element.line, element.reason))
                continue
            try:
                rows = list(to_rows(element.value))
            except NotUsage as reason:
                skipped[str(reason)] = skipped.get(str(reason), 0) + 1
                continue
            except RowProblem as reason:
                problems.append((element.line, str(reason)))
                continue
            for row in rows:
                lines.append(element.line)
                for column, values in columns.items():
                    values.append(_plain(row.get(column), column))
                if layout.aggregated:
                    columns["identity"][-1] = repr(element.value) if len(rows) == 1 else None
        used = {
            name: values for name, values in columns.items() if any(v is not None for v in values)
        }
        checked = check(layout, lines, used)
        yield Checked(checked.frame, problems + checked.rejected)


def _plain(value: object, column: str) -> object:
    """A JSON value as columns take it; what should have been a number or a name becomes text."""
    if value is None or type(value) in (str, int, float) or column == "details":
        return value
    return str(value)


def _in_blocks(items: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(items)
    while block := list(islice(iterator, ROWS_AT_ONCE)):
        yield block
