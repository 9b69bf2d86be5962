"""English to measure on: pages of the Python reference that ship with Python, or a pasted text.

The pages are `pydoc_data/topics.py` of the standard library, the text behind `help("import")`
and its like (Python Software Foundation License). It is there wherever Python is, with no network;
its wording moves a little from one Python to the next, so results name the Python they used.
"""

from __future__ import annotations

import importlib
import platform
import re
from collections.abc import Mapping

MAX_CHARACTERS = 100_000

PYTHON_TOPICS: Mapping[str, str] = {
    "Python reference: execution model": "execmodel",
    "Python reference: objects, values and types": "objects",
    "Python reference: the import statement": "import",
    "Python reference: the try statement": "try",
    "Python reference: special method names": "specialnames",
}


class TextError(ValueError):
    """A text that cannot be measured on; the message says why and what to do."""


def python_text(title: str) -> str:
    """One page of the reference, as it ships with this Python.

    Raises TextError for an unknown title, or a Python without its documentation.
    """
    topic = PYTHON_TOPICS.get(title)
    if topic is None:
        raise TextError(f"There is no text “{title}”; choose one of {', '.join(PYTHON_TOPICS)}.")
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise TextError(
            "This Python came without its documentation (pydoc_data); paste a text instead."
        ) from error
    if topic not in topics:
        raise TextError(f"This Python's documentation has no page “{topic}”; paste a text instead.")
    return plain(topics[topic])


def plain(text: str) -> str:
    """Headings' underlines and runs of blank lines removed; words untouched."""
    lines = [line for line in text.splitlines() if not re.fullmatch(r"\s*([=*\-~^\"])\1{3,}", line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def source_of(title: str) -> str:
    """Which file the text of `title` is, with the Python it came from."""
    return (
        f"pydoc_data/topics.py, topic “{PYTHON_TOPICS[title]}”, Python "
        f"{platform.python_version()} (PSF License)"
    )


def check_pasted(text: str, least_tokens: int) -> str:
    """A pasted text without surrounding white space, if it can be long enough.

    A token is at least one character, so fewer characters than tokens cannot do. Raises TextError
    for an empty text, one surely too short for `least_tokens`, and one over `MAX_CHARACTERS`.
    """
    text = text.strip()
    if not text:
        raise TextError("The pasted text is empty; paste a few pages of English.")
    if len(text) > MAX_CHARACTERS:
        raise TextError(
            f"The pasted text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read. "
            "Paste a part of it."
        )
    if len(text) < least_tokens:
        raise too_short(len(text), least_tokens, "characters")
    return text


def too_short(found: int, least_tokens: int, unit: str = "tokens") -> TextError:
    """The sentence for a text with too little in it to measure."""
    return TextError(
        f"The text has {found:,} {unit}; at least {least_tokens:,} tokens are needed so that the "
        "cache fills and something is left to measure. Paste more, or lower the budget."
    )
