"""Building blocks of the readers: patterns, and actions that store what a pattern found.

Every number in a pattern has a bounded length, so that no text can make matching slow or a number
too long to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kvcore.engines.logs.figures import EngineLog, Reading

INTEGER = r"(\d{1,15})"
GROUPED = r"(\d[\d,]{0,19})"
DECIMAL = r"(-?\d{1,12}(?:\.\d{1,12})?)"

Take = Callable[[EngineLog, re.Match[str], int, str], None]
"""An action: the log to fill, the match, the number of the line, the process that printed it."""
Rule = tuple[re.Pattern[str], Take]


def setting(name: str, value: str) -> str:
    """A pattern for name=value as engines print settings, or as they are typed: --name value."""
    words = name.replace("_", "[-_]")
    return rf"(?<![\w-])(?:--)?{words}['\"]?(?:\s{{0,3}}[=:]\s{{0,3}}|\s{{1,3}})['\"]?{value}"


def rule(pattern: str, take: Take) -> tuple[re.Pattern[str], Take]:
    return re.compile(pattern), take


def text(name: str) -> Take:
    """Store the first group as it stands."""
    return lambda log, match, line, rank: setattr(log, name, match[1].strip())


def whole(name: str, group: int = 1) -> Take:
    def take(log: EngineLog, match: re.Match[str], line: int, rank: str) -> None:
        if match[group] is not None:
            setattr(log, name, integer(match[group]))

    return take


def number(name: str) -> Take:
    def take(log: EngineLog, match: re.Match[str], line: int, rank: str) -> None:
        if match[1] is not None:
            setattr(log, name, float(match[1]))

    return take


def switch(name: str) -> Take:
    return lambda log, match, line, rank: setattr(log, name, match[1] in ("True", "true", "1"))


def flag(name: str) -> Take:
    return lambda log, match, line, rank: setattr(log, name, True)


def reading(name: str) -> Take:
    def take(log: EngineLog, match: re.Match[str], line: int, rank: str) -> None:
        value = float(match[1].replace(",", ""))
        getattr(log, name).append(Reading(value, rank, line))

    return take


def integer(digits: str) -> int:
    return int(digits.replace(",", ""))


def find_whole(text: str, pattern: str) -> int | None:
    match = re.search(pattern, text)
    return int(match[1]) if match else None


def typed_size(text: str, name: str) -> tuple[str | None, float | None]:
    """The storage type and the MiB of a part, as in `K (f16): 4608.00 MiB`."""
    match = re.search(rf"{name} \((\w{{1,20}})\):\s{{0,10}}{DECIMAL} MiB", text)
    return (match[1], float(match[2])) if match else (None, None)
