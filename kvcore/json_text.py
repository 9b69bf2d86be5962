"""JSON that others wrote."""

from __future__ import annotations

import json
from typing import Any


def loads(text: str) -> Any:
    """`json.loads`, with a question mark for each half of a surrogate pair.

    An escape may write half a character, which no table, message or file can hold. Raises
    ValueError or RecursionError for what is no JSON.
    """
    value = json.loads(text)
    if "\\ud" not in text.lower() and _can_be_written(text):
        return value
    written = json.dumps(value, ensure_ascii=False)
    if _can_be_written(written):
        return value
    return json.loads(written.encode("utf-8", "replace"))


def _can_be_written(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
