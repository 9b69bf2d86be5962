"""A number with a unit, as people type it: "1 GB", "0.98 GiB", "1,048,576,000 bytes", "16x".

One rule for each kind of quantity; anything else gets a sentence that says what would do.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum


class QuantityError(ValueError):
    """What was typed is not a quantity of the kind asked for."""


class Kind(StrEnum):
    BYTES = "bytes"
    COUNT = "count"
    TIMES = "times"
    SECONDS = "seconds"
    PERCENT = "percent"


UNITS: dict[Kind, dict[str, float]] = {
    Kind.BYTES: {
        **dict.fromkeys(("b", "byte", "bytes"), 1),
        **{name: 1000**power for power, name in enumerate(("kb", "mb", "gb", "tb"), start=1)},
        **{name: 1024**power for power, name in enumerate(("kib", "mib", "gib", "tib"), start=1)},
    },
    Kind.COUNT: {"": 1, "k": 1e3, "m": 1e6, "users": 1, "user": 1, "tokens": 1, "token": 1},
    Kind.TIMES: {"": 1, "x": 1, "×": 1, "times": 1},
    Kind.SECONDS: {"ms": 1e-3, "s": 1, "sec": 1, "seconds": 1, "min": 60, "minutes": 60, "h": 3600},
    Kind.PERCENT: {"%": 1, "percent": 1, "": 1},
}

EXAMPLES: dict[Kind, str] = {
    Kind.BYTES: "1.5 GB, 1.5 GiB or 1,500,000,000 bytes",
    Kind.COUNT: "61 or 128k",
    Kind.TIMES: "16 or 16×",
    Kind.SECONDS: "0.2 s or 200 ms",
    Kind.PERCENT: "40 %",
}

MAX_LENGTH = 60

_FORM = re.compile(r"\s*([-+]?[\d.,'_ \u00a0\u202f]*\d[\d.,]*(?:e[-+]?\d+)?)\s*([^\d\s]*)\s*", re.I)
_GROUPED = re.compile(r"[-+]?\d{1,3}([,'_ \u00a0\u202f]\d{3})+(\.\d+)?")


@dataclass(frozen=True)
class Answer:
    """A right answer: what is accepted is within `tolerance` (a share) of any of `values`."""

    kind: Kind
    values: tuple[float, ...]
    tolerance: float = 0.05

    def accepts(self, typed: str) -> bool:
        """Whether what was typed is right. Raises QuantityError when it cannot be read."""
        got = parse(typed, self.kind)
        return any(math.isclose(got, value, rel_tol=self.tolerance) for value in self.values)


def parse(typed: str, kind: Kind) -> float:
    """The quantity in bytes, seconds, percent or plain numbers.

    Raises QuantityError with one sentence: nothing typed, no number, no unit where one is needed
    (bytes and seconds), a unit of another kind, or a number that is not finite.
    """
    form = _FORM.fullmatch(typed) if len(typed) <= MAX_LENGTH else None
    if form is None:
        raise QuantityError(f"That is not a number with a unit; type something like {_like(kind)}.")
    number, unit = form.groups()
    scale = UNITS[kind].get(unit.lower())
    if scale is None and not unit:
        raise QuantityError(f"A unit is missing; type something like {_like(kind)}.")
    if scale is None:
        raise QuantityError(f"That unit does not fit here; type something like {_like(kind)}.")
    value = _number(number, kind) * scale
    if not math.isfinite(value):
        raise QuantityError(f"That number is too large; type something like {_like(kind)}.")
    return value


def _number(text: str, kind: Kind) -> float:
    plain = text.strip()
    if _GROUPED.fullmatch(plain):
        plain = re.sub(r"[,'_ \u00a0\u202f]", "", plain)
    elif re.fullmatch(r"[-+]?\d+,\d+", plain):
        plain = plain.replace(",", ".")
    try:
        return float(plain)
    except ValueError:
        raise QuantityError(
            f"The number can be read in more than one way; type something like {_like(kind)}."
        ) from None


def _like(kind: Kind) -> str:
    return EXAMPLES[kind]
