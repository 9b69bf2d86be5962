"""Results as files: CSV that a spreadsheet will not execute, JSON that says where it came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd

# A cell that begins so is taken for a formula by spreadsheet programs (OWASP, "CSV Injection").
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def to_csv(frame: pd.DataFrame) -> bytes:
    """The frame as UTF-8 CSV (RFC 4180).

    Text cells and headings that look like formulas get a leading apostrophe.
    """
    safe = frame.rename(columns=_harmless)
    for name in safe.columns:
        if not pd.api.types.is_numeric_dtype(safe[name]):
            safe[name] = safe[name].map(_harmless)
    return safe.to_csv(index=False, lineterminator="\r\n").encode()


def to_json(name: str, frame: pd.DataFrame, settings: Mapping[str, Any]) -> bytes:
    """The settings that produced the frame, then its rows."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
    document = {"what": name, "settings": dict(settings), "rows": rows}
    return json.dumps(document, indent=1, ensure_ascii=False, default=_plain).encode()


def _harmless(cell: Any) -> Any:
    if isinstance(cell, str) and cell.startswith(FORMULA_STARTS):
        return "'" + cell
    return cell


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if hasattr(value, "item"):
        return value.item()
    return str(value)
