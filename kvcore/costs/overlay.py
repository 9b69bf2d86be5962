"""The dated rows that the price engine has no place for: long writes, storage, uplifts, rules.

`kvcore/data/prompt_caching.json` holds them. Every row names its source and the date of the
fact, says whether it is certain, and lists the models it is about as shell patterns that are
matched against the model's bare name (vendor and region prefixes taken off).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "data" / "prompt_caching.json"

_PREFIX = re.compile(r"^(?:[a-z]{2,8}(?:-[a-z]+)*\.)?(?:anthropic|openai|moonshotai|amazon|zai)\.")


@cache
def overlay() -> Mapping[str, Any]:
    """The overlay file, read once."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def sources() -> Mapping[str, str]:
    """What each source code in the rows stands for."""
    return overlay()["sources"]


def cited(codes: str) -> tuple[str, ...]:
    """What a row's `source` says in words: "LL, AD" names two. An unknown code stays itself."""
    return tuple(sources().get(code, code) for code in re.split(r", *", codes))


def as_of() -> date:
    """The day the overlay was last checked as a whole."""
    return date.fromisoformat(overlay()["as_of"])


def bare_name(model: str) -> str:
    """A model's own name: `global.anthropic.claude-opus-5` and `anthropic/claude-opus-5:batch`
    are both `claude-opus-5`; dots in a Claude version become dashes, as Anthropic writes it."""
    name = model.lower().rsplit("/", 1)[-1].split(":")[0]
    name = _PREFIX.sub("", name)
    return name.replace(".", "-") if name.startswith("claude") else name


def rows(kind: str, provider: str, model: str) -> Iterator[Mapping[str, Any]]:
    """The rows of one kind that speak of this model at this provider, in the file's order."""
    name = bare_name(model)
    for row in overlay()[kind]:
        if "providers" in row and provider not in row["providers"]:
            continue
        if any(fnmatchcase(name, pattern) for pattern in row.get("except", ())):
            continue
        if any(fnmatchcase(name, pattern) for pattern in row["models"]):
            yield row


@lru_cache(maxsize=4096)
def first_row(kind: str, provider: str, model: str) -> Mapping[str, Any] | None:
    """The first such row: the file lists the particular before the general."""
    return next(rows(kind, provider, model), None)
