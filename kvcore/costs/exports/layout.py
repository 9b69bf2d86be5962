"""What an export looks like: the names its columns go by, and what they include."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Record = Mapping[str, Any]


class Format(StrEnum):
    """The exports that are read."""

    CLAUDE_CONSOLE_USAGE = "Claude Console usage CSV"
    CLAUDE_CONSOLE_COST = "Claude Console cost CSV"
    ANTHROPIC_USAGE_REPORT = "Anthropic usage report"
    ANTHROPIC_COST_REPORT = "Anthropic cost report"
    OPENAI_USAGE = "OpenAI usage"
    OPENAI_COST = "OpenAI cost"
    OPENROUTER = "OpenRouter activity"
    LITELLM_SPEND_LOGS = "LiteLLM spend logs"
    LITELLM_DAILY = "LiteLLM daily spend"
    LANGFUSE = "Langfuse"
    HELICONE = "Helicone"
    TRANSCRIPT = "Coding-assistant transcript"
    API_RESPONSES = "API responses"
    USAGE_TABLE = "Table of usage fields"
    UNKNOWN = "unknown"


COUNTS = ("input", "cache_read", "write", "write_short", "write_long", "output")
"""Token counts of a row as the export states them; `write` is a total, the other two its parts."""

COLUMNS = (
    *COUNTS,
    "at",
    "model",
    "provider",
    "requests",
    "context",
    "service_tier",
    "batch",
    "geo",
    "speed",
    "cost",
    "identity",
    "session",
    "web_searches",
    "details",
)


@dataclass(frozen=True)
class Layout:
    """How one export is told apart and read.

    Attributes:
        names: for each of `COLUMNS` that the export has, the names it goes by, best first.
        table_signs: header names; a table with all names of any one set is this export.
        object_sign: says whether a JSON object, the first of the file, is this export.
        kinds: names of columns that count input and output of a kind with its own price, by
            genai-prices' usage keys.
        needs: columns without which a row means nothing.
        inclusive: the input count contains cache reads and writes.
        aggregated: a row sums many requests.
        provider: genai-prices' id where the export only ever speaks of one.
        records: turns one record (a JSON object, or a table row as a dict) into rows keyed by
            `COLUMNS`; None where the columns can be taken as they stand.
        array: the key under which a JSON document keeps its records.
        inner: the key of the rows within each record, for reports made of time buckets.
        lookback: remembers what earlier lines said (a transcript names its model once); called
            once a file for the function used as `records`.
    """

    format: Format
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    table_signs: tuple[frozenset[str], ...] = ()
    object_sign: Callable[[Record], bool] = lambda record: False
    needs: tuple[str, ...] = ("input", "output")
    inclusive: bool = False
    aggregated: bool = False
    provider: str | None = None
    records: Callable[[Record], Iterable[Record]] | None = None
    array: str | None = None
    inner: str | None = None
    lookback: Callable[[], Callable[[Record], Iterable[Record]]] | None = None

    def is_table(self, columns: frozenset[str]) -> bool:
        return any(signs <= columns for signs in self.table_signs)

    @property
    def is_cost(self) -> bool:
        """Money only: an invoice to compare with, no tokens."""
        return self.needs == ("cost",)


class RowProblem(ValueError):
    """A record that cannot be counted; the message says why and quotes nothing from it."""


class NotUsage(Exception):
    """A record that is fine and holds no usage: a user's turn, a failed call."""


def dig(record: Any, *path: str) -> Any:
    """The value at a path of nested mappings, or None where any step is missing."""
    for step in path:
        if not isinstance(record, Mapping):
            return None
        record = record.get(step)
    return record


def first(record: Record, *names: str) -> Any:
    """The first of `names` that the record has a value for."""
    for name in names:
        value = record.get(name)
        if value is not None and value != "":
            return value
    return None
