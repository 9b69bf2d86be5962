"""Columns of an export to counts that can be priced; rows that cannot be are refused with a reason.

All work is by column, a block of rows at a time. Reasons name the column and, where it is a
number, the value; other text is never repeated, since it may be a key or a message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kvcore.costs.exports.layout import COUNTS, Layout

LARGEST_REQUEST = 10**9
"""Tokens of one request; no model reads a thousandth of it."""
LARGEST_ROW = 10**12
"""Tokens of one row that sums many requests. Two million such rows still fit 64 bits."""

ABSENT = -1
INVALID = -2

_WORDS = {
    "input": "input tokens",
    "cache_read": "cached tokens",
    "write": "cache write tokens",
    "write_short": "short-lived cache write tokens",
    "write_long": "long-lived cache write tokens",
    "output": "output tokens",
    "requests": "number of requests",
    "web_searches": "number of web searches",
    "cost": "cost",
}
_GROUPED = re.compile(r"\d{1,3}(,\d{3})+")
_MODEL = re.compile(r"[\w][\w .,:/@+()~-]{0,119}")
_SECRET = re.compile(r"(?i)\b(sk|pk|rk|key|api|bearer|ghp|xai|gsk|aiza)[-_ ]?\w*[-_]?\w{16,}")
_BOUND = re.compile(r"(\d[\d,.]*)\s*([km]?)", re.IGNORECASE)
_BEYOND = re.compile(r"^\s*(>|over|above)", re.IGNORECASE)

HIDDEN_NAME = "(name not shown)"


@dataclass(frozen=True)
class Checked:
    """Good rows of a block as arrays of equal length, and the rest with reasons."""

    frame: pd.DataFrame
    rejected: list[tuple[int, str]]


class _Counts(dict[object, int]):
    """Text or number → count, remembered; ABSENT for blanks, INVALID for anything impossible."""

    def __missing__(self, value: object) -> int:
        count = _whole_number(value)
        if isinstance(value, str | int):
            self[value] = count
        return count


def _whole_number(value: object) -> int:
    if value is None or value == "":
        return ABSENT
    if isinstance(value, bool):
        return INVALID
    if isinstance(value, str):
        text = value.strip().replace("\u00a0", "")
        if not text or text.lower() in ("null", "none", "nan", "n/a", "-"):
            return ABSENT
        if _GROUPED.fullmatch(text):
            text = text.replace(",", "")
        try:
            value = int(text) if len(text) < 20 else float(text)
        except ValueError:
            try:
                value = float(text)
            except ValueError:
                return INVALID
    if isinstance(value, float):
        if math.isnan(value):
            return ABSENT
        if math.isinf(value) or not value.is_integer():
            return INVALID
        value = int(value)
    if not isinstance(value, int) or value < 0:
        return INVALID
    return min(value, LARGEST_ROW + 1)


def check(layout: Layout, lines: Sequence[int], columns: Mapping[str, list[object]]) -> Checked:
    """Canonical rows of a block: exclusive counts, time, model, and what chooses the price.

    Args:
        lines: line numbers, one a row.
        columns: for names of `COLUMNS`, one value a row as the export gives it.
    """
    block = _Block(layout, lines, columns)
    if layout.is_cost:
        return block.costs()
    return block.usage()


class _Block:
    def __init__(
        self, layout: Layout, lines: Sequence[int], columns: Mapping[str, list[object]]
    ) -> None:
        self.layout = layout
        self.lines = np.asarray(lines, dtype=np.int64)
        self.size = len(self.lines)
        self.columns = columns
        self.reasons: dict[int, str] = {}
        self.good = np.ones(self.size, dtype=bool)
        self._memory = _Counts()

    def refuse(self, where: np.ndarray, reason: object) -> None:
        """Refuse the rows of a mask; the first reason a row gets is the one it keeps."""
        for index in np.flatnonzero(where & self.good):
            self.reasons[index] = reason(index) if callable(reason) else str(reason)
        self.good &= ~where

    def values(self, name: str) -> list[object]:
        return self.columns.get(name) or [None] * self.size

    def count(self, name: str, required: bool = False) -> np.ndarray:
        """A column of counts; ABSENT where blank. Impossible values refuse their row."""
        if name not in self.columns:
            return np.full(self.size, ABSENT, dtype=np.int64)
        memory = self._memory
        counts = np.array([memory[value] for value in self.columns[name]], dtype=np.int64)
        word = _WORDS[name]
        self.refuse(counts == INVALID, lambda i: self._why_invalid(name, i))
        if required:
            self.refuse(counts == ABSENT, f"the {word} are missing")
        limit = LARGEST_ROW if self.layout.aggregated else LARGEST_REQUEST
        kind = "row" if self.layout.aggregated else "request"
        reason = f"the {word} are more than {limit:,}, which no {kind} has"
        self.refuse(counts > limit, reason)
        return counts

    def _why_invalid(self, name: str, index: int) -> str:
        text = str(self.columns[name][index]).strip()
        word = _WORDS[name]
        try:
            number = float(text)
        except ValueError:
            return f"the {word} are not a number"
        if number < 0 and math.isfinite(number):
            return f"the {word} are negative ({number:,.0f})"
        if not math.isfinite(number):
            return f"the {word} are not a finite number"
        return f"the {word} are not a whole number"

    def usage(self) -> Checked:
        counts = {name: self.count(name, name in self.layout.needs) for name in COUNTS}
        short, long = _split_writes(counts)
        read = np.maximum(counts["cache_read"], 0)
        fresh = np.maximum(counts["input"], 0)
        if self.layout.inclusive:
            fresh = self._without_cached(fresh, read, short + long)
        requests = self._requests()
        tier_tokens, tier_limit = self._tier(fresh + read + short + long, requests)
        frame = pd.DataFrame(
            {
                "line": self.lines,
                "at": self._times(),
                "provider": pd.Series(self._providers(), dtype=object),
                "model": pd.Series(self._names(), dtype=object),
                "requests": requests,
                "fresh": fresh,
                "cache_read": read,
                "write_short": short,
                "write_long": long,
                "output": np.maximum(counts["output"], 0),
                "cache_counts_known": counts["cache_read"] != ABSENT,
                "tier_tokens": tier_tokens,
                "tier_limit": tier_limit,
                "processing": pd.Series(self._processing(), dtype=object),
                "speed": pd.Series(self._tags("speed"), dtype=object),
                "geo": pd.Series(self._tags("geo"), dtype=object),
                "web_searches": np.maximum(self.count("web_searches"), 0),
                "reported": self._money("cost", required=False),
                "identity": self._hashes("identity"),
                "session": self._hashes("session"),
                "details": pd.Series(self._details(), dtype=object),
            }
        )
        return self._checked(frame)

    def costs(self) -> Checked:
        frame = pd.DataFrame(
            {
                "line": self.lines,
                "at": self._times(),
                "model": pd.Series(self._names(), dtype=object),
                "reported": self._money("cost", required=True),
                "identity": self._hashes("identity"),
            }
        )
        return self._checked(frame)

    def _checked(self, frame: pd.DataFrame) -> Checked:
        rejected = [(int(self.lines[i]), reason) for i, reason in sorted(self.reasons.items())]
        return Checked(frame if self.good.all() else frame[self.good], rejected)

    def _without_cached(
        self, total: np.ndarray, read: np.ndarray, written: np.ndarray
    ) -> np.ndarray:
        self.refuse(
            read > total,
            lambda i: (
                f"the cached tokens ({read[i]:,}) exceed the input ({total[i]:,}): one of the two "
                "is wrong, or the input leaves cached tokens out"
            ),
        )
        self.refuse(
            read + written > total,
            lambda i: (
                f"cache reads and writes ({read[i] + written[i]:,}) exceed the input ({total[i]:,})"
            ),
        )
        return total - read - written

    def _requests(self) -> np.ndarray:
        """Requests a row stands for; NaN where a row sums an unknown number of them."""
        if not self.layout.aggregated:
            return np.ones(self.size)
        counts = self.count("requests")
        return np.where(counts > 0, counts, np.nan)

    def _times(self) -> pd.Series:
        values = self.values("at")
        times = to_times(values)
        stated = np.array([value is not None and value != "" for value in values], dtype=bool)
        self.refuse(stated & times.isna().to_numpy(), "the time is not a date that can be read")
        return times

    def _providers(self) -> list[str]:
        if self.layout.provider and "provider" not in self.columns:
            return [self.layout.provider] * self.size
        fallback = self.layout.provider or ""
        memory: dict[object, str] = {"": fallback, None: fallback}
        return [
            memory[value] if value in memory else memory.setdefault(value, safe_name(value).lower())
            for value in map(_hashable, self.values("provider"))
        ]

    def _names(self) -> list[str]:
        known: dict[object, str] = {}
        names = []
        for value in self.values("model"):
            key = value if isinstance(value, str) else ""
            if key not in known:
                known[key] = safe_name(key)
            names.append(known[key])
        return names

    def _tags(self, name: str) -> list[str]:
        if name not in self.columns:
            return [""] * self.size
        memory: dict[object, str] = {}
        return [
            memory[value] if value in memory else memory.setdefault(value, _tag(value))
            for value in map(_hashable, self.values(name))
        ]

    def _processing(self) -> list[str]:
        """`batch`, or the service tier where it changes the price."""
        tiers = self._tags("service_tier")
        if "batch" not in self.columns:
            return tiers
        is_batch = [str(value).strip().lower() in ("true", "1", "yes", "batch")
                    for value in self.columns["batch"]]  # fmt: skip
        return ["batch" if batch else tier for batch, tier in zip(is_batch, tiers, strict=True)]

    def _tier(self, total: np.ndarray, requests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The prompt length that chooses the long-context price, and the longest it may be.

        Of one request it is the request. Of a sum it is the average request, held within the
        bounds of the export's column; with neither, the short price is taken.
        """
        if not self.layout.aggregated:
            return total, total
        bounds = _Bounds()
        low, high = np.array([bounds[value] for value in self.values("context")]).reshape(-1, 2).T
        counted = np.isfinite(requests)
        average = total // np.where(counted, requests, 1).astype(np.int64)
        tokens = np.where(counted, np.clip(average, low, np.maximum(low, high)), low)
        return tokens, np.where(counted, tokens, high)

    def _details(self) -> list[dict[str, int] | None]:
        """Counts of kinds of tokens with prices of their own, None where there are none."""
        if "details" not in self.columns:
            return [None] * self.size
        found = []
        broken = np.zeros(self.size, dtype=bool)
        for index, kinds in enumerate(self.columns["details"]):
            counts = {key: self._memory[value] for key, value in (kinds or {}).items()}
            broken[index] = INVALID in counts.values()
            found.append({key: count for key, count in counts.items() if count > 0} or None)
        self.refuse(broken, "the tokens of a kind (audio, image) are not a whole number")
        return found

    def _money(self, name: str, required: bool) -> np.ndarray:
        values = self.columns.get(name)
        money = np.full(self.size, np.nan) if values is None else _money(values)
        if required:
            self.refuse(np.isnan(money), "the cost is missing or not a number")
        return money

    def _hashes(self, name: str) -> np.ndarray:
        if name not in self.columns:
            return np.zeros(self.size, dtype=np.int64)
        values = self.columns[name]
        hashes = [
            0
            if value is None or value == ""
            else hash(value if value.__hash__ else str(value)) or 1
            for value in values
        ]
        return np.array(hashes, dtype=np.int64)


def _split_writes(counts: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Short- and long-lived writes. A total stands in for missing parts, never beside them."""
    total = np.maximum(counts["write"], 0)
    long = np.maximum(counts["write_long"], 0)
    stated = counts["write_short"] > 0
    rest = np.where(total >= long, total - long, total)
    return np.where(stated, counts["write_short"], np.where(total > 0, rest, 0)), long


def to_times(values: Sequence[object]) -> pd.Series:
    """Times as UTC: ISO text, or seconds, milliseconds or microseconds since 1970; NaT if neither.

    Text without a zone is UTC, as every one of these exports has it.
    """
    texts = pd.Series(list(values), dtype=object)
    plain = texts.map(type).eq(str).all()
    times = _parsed(texts) if plain else pd.Series(pd.NaT, texts.index, dtype=_TIME)
    left = times.isna() & texts.notna()
    if left.any():
        times[left] = _parsed(texts[left].map(_as_time_text))
    return times.where(times.between(*_BELIEVABLE))


_TIME = "datetime64[us, UTC]"
_BELIEVABLE = (pd.Timestamp("2000-01-01", tz="UTC"), pd.Timestamp("2100-01-01", tz="UTC"))


def _parsed(texts: pd.Series) -> pd.Series:
    return pd.to_datetime(texts, utc=True, errors="coerce", format="ISO8601").astype(_TIME)


_NUMBER = re.compile(r"\d{9,16}(\.\d+)?")
_ZONE_NAME = re.compile(r"\s*(UTC|Z)$", re.IGNORECASE)


def _as_time_text(value: object) -> str | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        value = f"{value:.6f}" if isinstance(value, float) else str(value)
    text = str(value).strip()
    if not _NUMBER.fullmatch(text):
        return _ZONE_NAME.sub("Z", text[:40]).replace("/", "-") or None
    seconds = float(text)
    while seconds > 1e11:
        seconds /= 1000
    return str(np.datetime64(round(seconds * 1_000_000), "us")) + "Z"


def safe_name(value: object) -> str:
    """A model's name, or `HIDDEN_NAME` for text that is no name and might be a secret."""
    text = str(value or "").strip()
    if not text:
        return ""
    if not _MODEL.fullmatch(text) or _SECRET.search(text) or text.count(" ") > 5:
        return HIDDEN_NAME
    return text


def _hashable(value: object) -> object:
    return value if isinstance(value, str | int | float | None) else str(value)


def _tag(value: object) -> str:
    text = str(value or "").strip().lower()
    return text if re.fullmatch(r"[a-z_-]{1,24}", text) else ""


class _Bounds(dict[object, tuple[int, int]]):
    """Bounds that a `context_window` column sets: `≤ 200k`, `> 200k`, `0-200k`, `200k-1M`."""

    def __missing__(self, value: object) -> tuple[int, int]:
        text = str(value or "")
        numbers = [_bound(*found) for found in _BOUND.findall(text)]
        if not numbers:
            bounds = (0, LARGEST_REQUEST)
        elif len(numbers) == 1 and _BEYOND.search(text):
            bounds = (numbers[0] + 1, LARGEST_REQUEST)
        elif len(numbers) == 1:
            bounds = (0, numbers[0])
        else:
            bounds = (numbers[0] + 1 if numbers[0] else 0, numbers[1])
        self[value] = bounds
        return bounds


def _bound(digits: str, suffix: str) -> int:
    scale = {"k": 1_000, "m": 1_000_000}.get(suffix.lower(), 1)
    digits = digits.replace(",", "").strip(".")
    try:
        return min(int(float(digits) * scale), LARGEST_REQUEST)
    except (ValueError, OverflowError):
        return 0


def _money(values: Sequence[object]) -> np.ndarray:
    """A column of dollars; NaN where there is no amount. What is plain is read at once."""
    try:
        money = np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        return np.array([_dollars(value) for value in values], dtype=float)
    return np.where(np.abs(money) < 1e12, money, np.nan)


def _dollars(value: object) -> float:
    if isinstance(value, bool) or value is None:
        return math.nan
    text = str(value).strip().lstrip("$").replace("\u2212", "-")
    if "," in text and "." in text:
        text = text.replace(",", "")
    try:
        amount = float(text.replace(",", "."))
    except ValueError:
        return math.nan
    return amount if math.isfinite(amount) and abs(amount) < 1e12 else math.nan
