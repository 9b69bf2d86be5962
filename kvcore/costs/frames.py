"""A million usage rows priced at once, exactly.

Rows that share a model, a way of calling, a price window and a context tier share one set of
prices, so the price list is asked once for each such group. Tokens are summed as integers and
multiplied by Decimal prices, which gives the sum of `price` over the rows to the last digit; the
per-row columns are the nearest floats, for charts and tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache

import numpy as np
import pandas as pd
from genai_prices.types import ConditionalPrice, StartDateConstraint, TimeOfDateConstraint

from kvcore.costs.price import price_counts
from kvcore.costs.prices import LONG_WRITE, Contract, PriceError, Rates, find, rates, utc
from kvcore.costs.usage import TokenCounts, UsageError

CLASSES = ("fresh", "cache_read", "write_short", "write_long", "output")

_COUNTED = (*CLASSES, "web_searches", "requests")
_CALLING = ("provider", "model", "processing", "speed", "geo")
_DAY = 86_400_000_000
_UNPRICED = -1
_ONE_BY_ONE = -2

PROVIDER_NAMES = {
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "amazon": "aws",
    "vertex_ai": "google",
    "vertex_ai_beta": "google",
    "vertex": "google",
    "gemini": "google",
    "azure_ai": "azure",
    "fireworks_ai": "fireworks",
    "together_ai": "together",
    "togetherai": "together",
    "xai": "x-ai",
    "moonshot": "moonshotai",
    "claude": "anthropic",
}
"""Names of providers in gateways and logs, and genai-prices' ids for them."""


@dataclass(frozen=True)
class Totals:
    """Sums over the priced rows; money is exact. Tokens count unpriced rows too.

    `saved` is None where nothing is known of tokens (an export of money alone).
    """

    paid: Decimal = Decimal(0)
    saved: Decimal | None = Decimal(0)
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    rows: int = 0
    by_class: Mapping[str, Decimal] = field(default_factory=dict)

    @property
    def uncached(self) -> Decimal | None:
        """The same tokens without any caching."""
        return None if self.saved is None else self.paid + self.saved

    @property
    def hit_rate(self) -> float | None:
        """Share of the input that was read from a cache; None without input."""
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else None


@dataclass(frozen=True)
class Unpriced:
    """Rows that have tokens and no price; they are in no sum of money."""

    provider: str
    model: str
    rows: int
    tokens: int
    reason: str


@dataclass(frozen=True)
class Priced:
    frame: pd.DataFrame
    totals: Totals
    unpriced: tuple[Unpriced, ...]
    notes: tuple[str, ...]


def price_frame(
    frame: pd.DataFrame, *, at: datetime | None = None, contract: Contract | None = None
) -> Priced:
    """Price a usage frame (see `kvcore.costs.exports.Usage`).

    Args:
        frame: needs `provider`, `model` and the token classes; `at`, `tier_tokens`, `requests`,
            `processing`, `speed`, `geo`, `web_searches`, `details` are used where present.
        at: the moment whose prices hold for rows without a time; now where not given.
        contract: prices that replace the list for every row.

    Returns the frame with `paid`, `uncached` and `saved` in dollars (NaN where there is no price).
    """
    return _Pricing(frame, utc(at), contract).run()


@dataclass(frozen=True)
class _PriceRow:
    """Dollars per million of each counted thing, and what the uncached bill uses for input."""

    rates: Rates
    per_million: tuple[Decimal, ...]
    fresh: Decimal


class _Pricing:
    def __init__(self, frame: pd.DataFrame, at: datetime, contract: Contract | None) -> None:
        self.frame = frame
        self.at = at
        self.contract = contract
        self.notes: dict[str, None] = {}
        self.size = len(frame)
        self.counts = np.stack([self._counted(name) for name in _COUNTED])
        self.tiers = self._column("tier_tokens", self.counts[:4].sum(axis=0))
        self.times = self._times()
        self.code = np.full(self.size, _UNPRICED, dtype=np.int32)
        self.table: list[_PriceRow] = []
        self.unpriced: list[Unpriced] = []
        self.short_by_default = 0

    def run(self) -> Priced:
        for provider, model, processing, speed, geo, rows in self._callings():
            self._price_calling(provider, model, (processing, speed, geo), rows)
        self._set_aside_details()
        paid, uncached = self._per_row()
        exact, by_class, saved = self._exact()
        exact, saved = self._add_details(paid, uncached, by_class, exact, saved)
        self.unpriced.sort(key=lambda entry: -entry.tokens)
        self._count_notes()
        return Priced(
            self.frame.assign(paid=paid, uncached=uncached, saved=uncached - paid),
            self._totals(exact, saved, by_class),
            tuple(self.unpriced),
            tuple(self.notes),
        )

    def _column(self, name: str, default: np.ndarray) -> np.ndarray:
        return self.frame[name].to_numpy() if name in self.frame else default

    def _counted(self, name: str) -> np.ndarray:
        if name == "requests":
            requests = self._column(name, np.ones(self.size)).astype(float)
            return np.where(np.isfinite(requests), requests, 1).astype(np.int64)
        return self._column(name, np.zeros(self.size, dtype=np.int64)).astype(np.int64)

    def _times(self) -> np.ndarray:
        """Microseconds since 1970, `at` where a row has no time."""
        fallback = int(self.at.timestamp() * 1_000_000)
        if "at" not in self.frame or self.frame["at"].isna().all():
            if self.size:
                self.notes[f"No row has a time: the prices of {self.at.date()} were used."] = None
            return np.full(self.size, fallback)
        times = self.frame["at"].dt.tz_convert("UTC").dt.tz_localize(None)
        times = times.to_numpy().astype("datetime64[us]")
        missing = np.isnat(times)
        if missing.any():
            note = f"Rows without a time ({missing.sum():,}) have the prices of {self.at.date()}."
            self.notes[note] = None
        return np.where(missing, fallback, times.astype(np.int64))

    def _callings(self) -> Iterator[tuple[str, str, str, str, str, np.ndarray]]:
        """Each provider, model and way of calling, with the positions of its rows."""
        if not self.size:
            return
        key = np.zeros(self.size, dtype=np.int64)
        levels = []
        for name in _CALLING:
            codes, names = self._codes(name)
            key = key * (len(names) + 1) + codes
            levels.append((codes, names))
        group, found = pd.factorize(key)
        order = np.argsort(
            group.astype(np.uint16 if len(found) < 65_536 else group.dtype), kind="stable"
        )
        ends = np.cumsum(np.bincount(group, minlength=len(found)))
        for start, end in zip(np.concatenate([[0], ends[:-1]]), ends, strict=True):
            rows = order[start:end]
            yield *(str(names[codes[rows[0]]]) for codes, names in levels), rows

    def _codes(self, name: str) -> tuple[np.ndarray, list[str]]:
        if name not in self.frame:
            return np.zeros(self.size, dtype=np.int64), [""]
        column = self.frame[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            return column.cat.codes.to_numpy().astype(np.int64), list(column.cat.categories)
        codes, names = pd.factorize(column.to_numpy())
        return codes, list(names)

    def _price_calling(
        self, provider: str, model: str, calling: tuple[str, str, str], rows: np.ndarray
    ) -> None:
        provider = PROVIDER_NAMES.get(provider, provider)
        try:
            days, times_of_day = price_windows(model, provider) if not self.contract else ((), ())
        except PriceError as problem:
            self._leave_unpriced(provider, model, rows, str(problem))
            return
        for window in _by_window(self.times[rows], days, times_of_day):
            here = rows if window is None else rows[window]
            self._price_window(provider, model, calling, here)

    def _price_window(
        self, provider: str, model: str, calling: tuple[str, str, str], rows: np.ndarray
    ) -> None:
        moment = datetime.fromtimestamp(0, tz=UTC) + timedelta(
            microseconds=int(self.times[rows[0]])
        )
        processing, speed, geo = calling
        try:
            found = rates(
                model,
                provider or None,
                moment,
                service_tier=processing or None,
                speed=speed or None,
                geo=geo or None,
                contract=self.contract,
            )
        except PriceError as problem:
            self._leave_unpriced(provider, model, rows, str(problem))
            return
        self.notes.update(dict.fromkeys(found.notes))
        starts = np.array(found.tier_starts(), dtype=np.int64)
        if not len(starts):
            self._assign(found, 0, rows)
            return
        steps = np.searchsorted(starts, self.tiers[rows], side="left")
        self._count_short_by_default(rows, steps, starts)
        for step in np.unique(steps):
            prompt = int(starts[step - 1]) + 1 if step else 0
            self._assign(found, prompt, rows[steps == step])

    def _count_short_by_default(
        self, rows: np.ndarray, steps: np.ndarray, starts: np.ndarray
    ) -> None:
        if "tier_limit" in self.frame:
            limits = self.frame["tier_limit"].to_numpy()[rows]
            self.short_by_default += int((np.searchsorted(starts, limits) > steps).sum())

    def _assign(self, found: Rates, prompt_tokens: int, rows: np.ndarray) -> None:
        flat = found.flat(prompt_tokens)
        try:
            fresh = found.fresh(prompt_tokens)
        except KeyError:
            reason = f"No input price is published for {found.model}."
            self._leave_unpriced(found.provider, found.model, rows, reason)
            return
        long = flat.get(LONG_WRITE)
        if long is None and "cache_write_mtok" in flat:
            written = self.counts[3][rows] > 0
            if written.any():
                reason = f"No price for long cache writes is known for {found.model}."
                self._leave_unpriced(found.provider, found.model, rows[written], reason)
                rows = rows[~written]
        if self.counts[1][rows].any() and not found.has_read_price:
            note = f"{found.model}: no price for cached tokens is published, so fresh was charged."
            self.notes[note] = None
        per_million = (
            fresh,
            found.cache_read(prompt_tokens),
            found.cache_write_short(prompt_tokens),
            fresh if long is None else long,
            found.output(prompt_tokens),
            flat.get("web_searches_kcount", Decimal(0)) * 1000,
            flat.get("requests_kcount", Decimal(0)) * 1000,
        )
        self.code[rows] = len(self.table)
        self.table.append(_PriceRow(found, per_million, fresh))

    def _leave_unpriced(self, provider: str, model: str, rows: np.ndarray, reason: str) -> None:
        if not len(rows):
            return
        tokens = int(self.counts[:5, rows].sum())
        self.unpriced.append(Unpriced(provider, model, len(rows), tokens, reason))

    def _per_row(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.table:
            return np.full(self.size, np.nan), np.full(self.size, np.nan)
        prices = np.array([[float(p) for p in row.per_million] for row in self.table])
        code = np.maximum(self.code, 0)
        paid = np.zeros(self.size)
        saved = np.zeros(self.size)
        for index, counts in enumerate(self.counts):
            if not prices[:, index].any() or not counts.any():
                continue
            paid += counts * prices[code, index]
            if 0 < index < 4:
                saved += counts * (prices[:, 0] - prices[:, index])[code]
        nothing = self.code < 0
        paid[nothing] = saved[nothing] = np.nan
        return paid / 1e6, (paid + saved) / 1e6

    def _exact(self) -> tuple[Decimal, dict[str, Decimal], Decimal]:
        sums = np.zeros((len(self.counts), len(self.table)), dtype=np.int64)
        priced = self.code >= 0
        code = self.code if priced.all() else self.code[priced]
        for index, counts in enumerate(self.counts):
            np.add.at(sums[index], code, counts if priced.all() else counts[priced])
        by_class = dict.fromkeys(_COUNTED, Decimal(0))
        saved = Decimal(0)
        for column, row in enumerate(self.table):
            for index, name in enumerate(_COUNTED):
                tokens = int(sums[index, column])
                by_class[name] += tokens * row.per_million[index] / 1_000_000
                if 0 < index < 4:
                    saved += tokens * (row.fresh - row.per_million[index]) / 1_000_000
        return sum(by_class.values(), Decimal(0)), by_class, saved

    def _set_aside_details(self) -> None:
        """Rows with kinds of tokens that the model prices apart are priced one by one."""
        self.aside: list[tuple[int, TokenCounts, Rates]] = []
        if "details" not in self.frame:
            return
        details = self.frame["details"].to_numpy()
        for index in np.flatnonzero(self.frame["details"].notna().to_numpy() & (self.code >= 0)):
            found = self.table[self.code[index]].rates
            priced = set(found.flat(0))
            if not any(_price_key(key) in priced for key in details[index]):
                continue
            fresh, read, short, long, output, searches, _ = map(int, self.counts[:, index])
            own = dict(details[index])
            if searches:
                own["web_searches"] = searches
            counts = TokenCounts(
                fresh, read, short, long, output, own, prompt_tokens=int(self.tiers[index])
            )
            self.aside.append((int(index), counts, found))
            self.code[index] = _ONE_BY_ONE

    def _add_details(
        self,
        paid: np.ndarray,
        uncached: np.ndarray,
        by_class: dict[str, Decimal],
        exact: Decimal,
        saved: Decimal,
    ) -> tuple[Decimal, Decimal]:
        for index, counts, found in self.aside:
            try:
                cost = price_counts(counts, found)
            except (PriceError, UsageError) as problem:
                self._leave_unpriced(found.provider, found.model, np.array([index]), str(problem))
                continue
            paid[index], uncached[index] = float(cost.total), float(cost.uncached)
            by_class["fresh"] += cost.fresh
            by_class["cache_read"] += cost.cache_read
            by_class["write_short"] += cost.cache_write
            by_class["output"] += cost.output
            by_class["web_searches"] += cost.other
            exact, saved = exact + cost.total, saved + cost.saved
        return exact, saved

    def _totals(self, paid: Decimal, saved: Decimal, by_class: Mapping[str, Decimal]) -> Totals:
        fresh, read, short, long, output, *_ = (int(counts.sum()) for counts in self.counts)
        return Totals(
            paid=paid,
            saved=saved,
            input_tokens=fresh + read + short + long,
            cache_read_tokens=read,
            cache_write_tokens=short + long,
            output_tokens=output,
            rows=self.size,
            by_class=by_class,
        )

    def _count_notes(self) -> None:
        if self.short_by_default:
            note = (
                f"{self.short_by_default:,} rows sum many requests without saying how long each "
                "was: they were charged the short-context price."
            )
            self.notes[note] = None
        if "cache_counts_known" in self.frame and not self.frame["cache_counts_known"].all():
            unknown = int((~self.frame["cache_counts_known"]).sum())
            note = (
                f"{unknown:,} rows say nothing of the cache: they were priced as if nothing was "
                "read from it, which may be too dear."
            )
            self.notes[note] = None


def _price_key(usage_key: str) -> str:
    return usage_key.replace("_tokens", "_mtok")


@lru_cache(maxsize=4096)
def price_windows(model: str, provider: str) -> tuple[tuple[date, ...], tuple[int, ...]]:
    """When this model's prices change: dates, and times of day in seconds after midnight UTC.

    Raises PriceError for a model that is not in the list.
    """
    _, info = find(model, provider or None)
    entries = info.prices if isinstance(info.prices, list) else []
    constraints = [entry.constraint for entry in entries if isinstance(entry, ConditionalPrice)]
    constraints += [variant.constraint for variant in info.price_variants or ()]
    days = {c.start_date for c in constraints if isinstance(c, StartDateConstraint)}
    moments = [
        moment
        for c in constraints
        if isinstance(c, TimeOfDateConstraint)
        for moment in (c.start_time, c.end_time)
    ]
    seconds = {_utc_seconds(moment) for moment in moments}
    return tuple(sorted(days)), tuple(sorted(seconds))


def _utc_seconds(moment: object) -> int:
    offset = moment.utcoffset() or timedelta(0)
    return (
        moment.hour * 3600 + moment.minute * 60 + moment.second - int(offset.total_seconds())
    ) % 86_400


def _by_window(
    times: np.ndarray, days: tuple[date, ...], times_of_day: tuple[int, ...]
) -> Iterator[np.ndarray | None]:
    """Masks of the rows in each price window; None for all of them."""
    if not days and not times_of_day:
        yield None
        return
    starts = np.array([np.datetime64(day, "us").astype(np.int64) for day in days], dtype=np.int64)
    of_day = np.array(times_of_day, dtype=np.int64) * 1_000_000
    window = np.searchsorted(starts, times, side="right") * (len(of_day) + 1)
    window += np.searchsorted(of_day, times % _DAY, side="right")
    present = np.unique(window)
    for value in present:
        yield None if len(present) == 1 else window == value
