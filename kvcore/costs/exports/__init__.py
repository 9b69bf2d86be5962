"""Read any export of usage that people really hold, price it, and say what could not be read.

Nothing is written to disk and nothing is kept but counts, times, model names and prices: keys,
ids and text of messages are used, if at all, to tell repeats apart while reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd

from kvcore.costs.exports.columns import Checked
from kvcore.costs.exports.layout import Format
from kvcore.costs.exports.reading import ROWS_AT_ONCE, NotRecognised, open_source
from kvcore.costs.exports.text import decode
from kvcore.costs.frames import Totals, Unpriced, price_frame
from kvcore.costs.prices import Contract

LARGEST_FILE = 200 * 10**6
"""Bytes of an upload."""
MOST_ROWS = 2_000_000
MOST_REJECTED = 10_000
"""Refused lines listed one by one; a file with more is counted but not listed to the end."""

_NAMES = ("provider", "model", "processing", "speed", "geo")

_BINARY = {
    b"PK\x03\x04": "a ZIP archive or an Excel workbook: unpack it, or save the sheet as CSV",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"%PDF": "a PDF: download the export as CSV or JSON instead",
    b"PAR1": "a Parquet file: export as CSV or JSON instead",
    b"SQLite": "a database: export as CSV or JSON instead",
}


@dataclass
class Usage:
    """What was in an export.

    Attributes:
        format: which export this is; `Format.UNKNOWN` where none fits.
        frame: a row per good row: `line`, `at` (UTC), `provider`, `model`, `requests` (NaN where
            unknown), tokens by class (`fresh`, `cache_read`, `write_short`, `write_long`,
            `output`), the prompt length that chose the price (`tier_tokens`), the export's own
            `reported` dollars, and once priced `paid`, `uncached`, `saved` (NaN where no price
            is known). Cost exports have `line`, `at`, `model`, `reported` only.
        rejected: (line, reason) of what could not be counted, in the order of the file.
        duplicates: repeats dropped.
        total: sums over the frame; money is exact.
        unpriced: models without a price, with rows and reason; they are in no sum of money.
        reported: dollars by the export's own account, None where it has none.
        notes: what a reader of the numbers should know.
    """

    format: Format
    frame: pd.DataFrame
    rejected: list[tuple[int, str]]
    duplicates: int
    total: Totals
    unpriced: tuple[Unpriced, ...] = ()
    reported: Decimal | None = None
    notes: list[str] = field(default_factory=list)
    contract: Contract | None = None

    @property
    def is_cost(self) -> bool:
        """An export of money without tokens, of use to compare with."""
        return "fresh" not in self.frame.columns and not self.frame.empty


def read_usage(
    data: bytes, filename: str = "", *, at: datetime | None = None, contract: Contract | None = None
) -> Usage:
    """Read and price an export, telling its format by its content.

    Args:
        data: the file. Over 200 MB it is refused; beyond two million rows reading stops.
        filename: used in messages only.
        at: the moment whose prices hold for rows without a time; now where not given.
        contract: prices that replace the list for every row.

    Never raises for what the file holds: a file that cannot be read at all comes back with an
    empty frame, and the reason, a sentence, among `rejected`.
    """
    *_, usage = usage_steps(data, filename, at=at, contract=contract)
    return usage


def usage_steps(
    data: bytes, filename: str = "", *, at: datetime | None = None, contract: Contract | None = None
) -> Iterator[int | Usage]:
    """`read_usage` in bounded steps: the rows read so far after every block, the usage last."""
    refusal = _refusal(data)
    if refusal:
        yield _nothing(Format.UNKNOWN, 1, refusal)
        return
    text, clean = decode(bytes(data))
    try:
        source = open_source(text)
    except NotRecognised as problem:
        yield _nothing(Format.UNKNOWN, problem.line, str(problem))
        return
    read = _Read()
    for block in source.blocks:
        read.add(block)
        yield read.rows
        if read.rows >= MOST_ROWS:
            read.stopped = True
            break
    frame, rejected, notes = read.result()
    if not clean:
        notes.append("The file is not UTF-8; characters that could not be read do not matter here.")
    duplicates = 0
    if not frame.empty:
        frame, duplicates = without_repeats(frame)
    for why, count in source.skipped.items():
        lines = "line was" if count == 1 else "lines were"
        notes.append(f"{count:,} {lines} passed over: {why}.")
    yield read.rows
    finish = _costs if source.layout.is_cost else partial(_priced, at=at, contract=contract)
    yield finish(source.layout.format, frame, rejected, duplicates, notes)


def steps_expected(data: bytes) -> int | None:
    """How many steps `usage_steps` will about take; None where lines do not tell rows apart."""
    lines = data.count(b"\n")
    return None if lines < ROWS_AT_ONCE else -(-min(lines, MOST_ROWS) // ROWS_AT_ONCE) + 2


def _refusal(data: bytes) -> str | None:
    if len(data) > LARGEST_FILE:
        return (
            f"The file has {len(data) / 10**6:,.0f} MB and the limit is "
            f"{LARGEST_FILE // 10**6} MB: export a shorter period or fewer columns."
        )
    for start, what in _BINARY.items():
        if data[:16].startswith(start):
            return f"This is {what}."
    return None


def _nothing(form: Format, line: int, reason: str) -> Usage:
    return Usage(form, empty_frame(), [(line, _sentence(reason))], 0, Totals())


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}{'' if reason.endswith('.') else '.'}"


def empty_frame() -> pd.DataFrame:
    """A usage frame without rows."""
    from kvcore.costs.exports.columns import check
    from kvcore.costs.exports.responses import RESPONSES

    priced = price_frame(check(RESPONSES, [], {}).frame.drop(columns="identity"))
    return priced.frame


@dataclass
class _Read:
    """The blocks of a file read so far."""

    frames: list[pd.DataFrame] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)
    rows: int = 0
    refused: int = 0
    stopped: bool = False

    def add(self, block: Checked) -> None:
        self.frames.append(block.frame)
        self.rows += len(block.frame)
        self.refused += len(block.rejected)
        listed = block.rejected[: MOST_REJECTED - len(self.rejected)]
        self.rejected += [(line, _sentence(reason)) for line, reason in listed]

    def result(self) -> tuple[pd.DataFrame, list[tuple[int, str]], list[str]]:
        notes = []
        if self.stopped:
            notes.append(
                f"Reading stopped after {self.rows:,} rows: the rest of the file is not here."
            )
        if self.refused > len(self.rejected):
            notes.append(
                f"{self.refused:,} lines were refused; the first {len(self.rejected):,} are listed."
            )
        frame = pd.concat(self.frames, ignore_index=True) if self.frames else empty_frame()
        return frame, sorted(self.rejected, key=lambda line_reason: line_reason[0]), notes


def without_repeats(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Each request once, at its largest output: usage may be repeated while an answer grows.

    Rows without an identity cannot be told apart and all stay.
    """
    known = frame["identity"].to_numpy() != 0
    order = frame[known]
    if "output" in order.columns:
        order = order.sort_values("output", ascending=False, kind="stable")
    kept = order[~order["identity"].duplicated()].index
    keep = ~known
    keep[kept] = True
    dropped = len(frame) - int(keep.sum())
    frame = frame if not dropped else frame[keep].reset_index(drop=True)
    return frame.drop(columns="identity"), dropped


def _costs(
    form: Format,
    frame: pd.DataFrame,
    rejected: list[tuple[int, str]],
    duplicates: int,
    notes: list[str],
) -> Usage:
    reported = _dollars(frame["reported"]) if "reported" in frame else Decimal(0)
    notes.append("This export has money and no tokens: it can be compared with, not analysed.")
    totals = Totals(paid=reported, saved=None, rows=len(frame))
    return Usage(form, frame, rejected, duplicates, totals, (), reported, notes)


def _priced(
    form: Format,
    frame: pd.DataFrame,
    rejected: list[tuple[int, str]],
    duplicates: int,
    notes: list[str],
    at: datetime | None,
    contract: Contract | None,
) -> Usage:
    frame = frame.drop(columns="identity", errors="ignore")
    frame = frame.astype(dict.fromkeys(_NAMES, "category"))
    priced = price_frame(frame, at=at, contract=contract)
    has_reported = "reported" in frame and frame["reported"].notna().any()
    return Usage(
        form,
        priced.frame,
        rejected,
        duplicates,
        priced.totals,
        priced.unpriced,
        _dollars(frame["reported"]) if has_reported else None,
        notes + list(priced.notes),
        contract,
    )


def _dollars(amounts: pd.Series) -> Decimal:
    """A sum of floats as dollars, to a millionth: exports state no more."""
    return Decimal(str(round(float(np.nansum(amounts.to_numpy(dtype=float))), 6)))


__all__ = [
    "Format",
    "Usage",
    "empty_frame",
    "read_usage",
    "steps_expected",
    "usage_steps",
    "without_repeats",
]
