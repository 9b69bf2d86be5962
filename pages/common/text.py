"""What a user typed, shown as text: never as Markdown, a link, a picture or a formula."""

from __future__ import annotations

import re

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_BREAKS = re.compile(r"\s+")


def as_text(value: object, max_length: int = 200) -> str:
    """`value` on one line, cut to `max_length`, with all Markdown punctuation escaped."""
    line = _BREAKS.sub(" ", str(value)).strip()
    if len(line) > max_length:
        line = line[: max_length - 1] + "…"
    return _PUNCTUATION.sub(r"\\\1", line)
