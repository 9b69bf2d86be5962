"""What a priced usage frame says: by model, by hour, under other lifetimes, against the invoice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pandas as pd

from kvcore.costs.frames import PROVIDER_NAMES, price_frame
from kvcore.costs.prices import Contract, PriceError, rates
from kvcore.costs.rules import rules_for


@dataclass(frozen=True)
class Summary:
    """Tables over a priced frame.

    Attributes:
        by_model: a row per provider and model, dearest first: rows, requests (NaN where the
            export does not count them), tokens, `hit_rate` (share of the input read from the
            cache), `paid`, `saved` and `uncached` in dollars, `priced_rows`.
        by_hour: a row per model and hour of the day (UTC) with traffic: `hour`, `input_tokens`,
            `cache_read`, `hit_rate`, `paid`, `saved`. Empty where the export has days only.
        by_day: a row per model and day, the same columns with `day`.
    """

    by_model: pd.DataFrame
    by_hour: pd.DataFrame
    by_day: pd.DataFrame


def summarise(frame: pd.DataFrame) -> Summary:
    """The tables of a frame priced by `price_frame`.

    A million rows are added up once, into cells of one model, day and hour; the tables are sums
    of cells.
    """
    group, names = _models(frame)
    cells = _cells(group, len(names), frame)
    by_model = _sum_by(cells, ["group"])
    by_model.insert(0, "model", [names[index][1] for index in by_model["group"]])
    by_model.insert(0, "provider", [names[index][0] for index in by_model.pop("group")])
    by_model["uncached"] = by_model["paid"] + by_model["saved"]
    labels = np.array(_labels(names), dtype=object)
    dated = cells[cells["day"] >= 0]
    hours = dated if dated["hour"].any() else dated.iloc[:0]
    by_day = _named(_sum_by(dated, ["group", "day"]), labels, "day")
    by_day["day"] = pd.to_datetime(by_day["day"], unit="D", utc=True)
    return Summary(
        by_model.sort_values("paid", ascending=False, ignore_index=True),
        _named(_sum_by(hours, ["group", "hour"]), labels, "hour"),
        by_day,
    )


def has_hours(frame: pd.DataFrame) -> bool:
    """Whether the times of a frame tell hours, not just days."""
    if "at" not in frame or frame["at"].isna().all():
        return False
    times = frame["at"].dropna()
    return bool((times != times.dt.floor("D")).any())


def _models(frame: pd.DataFrame) -> tuple[np.ndarray, list[tuple[str, str]]]:
    provider, providers = _codes(frame["provider"])
    model, models = _codes(frame["model"])
    group, found = pd.factorize(provider * len(models) + model)
    names = [(providers[key // len(models)], models[key % len(models)]) for key in found]
    return group, names


def _codes(column: pd.Series) -> tuple[np.ndarray, list[str]]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy().astype(np.int64), list(column.cat.categories)
    codes, names = pd.factorize(column.to_numpy())
    return codes.astype(np.int64), list(names)


def _labels(names: list[tuple[str, str]]) -> list[str]:
    """Model names, with the provider where two providers sell the same one."""
    models = [model for _, model in names]
    return [
        f"{model} ({provider})" if models.count(model) > 1 else model or "(no model named)"
        for provider, model in names
    ]


def _weights(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """What is added up, beside the rows themselves."""
    paid = frame["paid"].to_numpy()
    unpriced = np.isnan(paid)
    weights = {
        "fresh": frame["fresh"].to_numpy(),
        "cache_read": frame["cache_read"].to_numpy(),
        "cache_write": frame["write_short"].to_numpy() + frame["write_long"].to_numpy(),
        "output": frame["output"].to_numpy(),
        "paid": paid,
        "saved": frame["saved"].to_numpy(),
    }
    if unpriced.any():
        weights["paid"] = np.where(unpriced, 0.0, paid)
        weights["saved"] = np.where(unpriced, 0.0, weights["saved"])
        weights["unpriced_rows"] = unpriced
    if "requests" in frame:
        requests = frame["requests"].to_numpy()
        if not (requests == 1).all():
            weights["requests"] = np.nan_to_num(requests)
            weights["uncounted_rows"] = np.isnan(requests)
    return weights


def _hours(frame: pd.DataFrame) -> np.ndarray:
    """Hours since 1970 (UTC) of each row; −1 where there is no time."""
    if "at" not in frame or frame["at"].isna().all():
        return np.full(len(frame), -1)
    times = frame["at"].dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
    hours = times.astype("datetime64[us]").view(np.int64) // 3_600_000_000
    return np.maximum(hours, -1)


_DENSE_CELLS = 4_000_000


def _cells(group: np.ndarray, models: int, frame: pd.DataFrame) -> pd.DataFrame:
    """Sums by model and hour, one row for each that occurs."""
    hours = _hours(frame)
    first = int(hours.min()) if len(hours) else 0
    span = int(hours.max()) - first + 1 if len(hours) else 1
    cell = group * span + (hours - first)
    keys = np.arange(models * span)
    if models * span > _DENSE_CELLS:
        cell, keys = pd.factorize(cell)
    rows = np.bincount(cell, minlength=len(keys))
    here = np.flatnonzero(rows)
    hour = keys[here] % span + first
    cells = {
        "group": keys[here] // span,
        "day": np.where(hour < 0, -1, hour // 24),
        "hour": np.where(hour < 0, 0, hour % 24),
        "rows": rows[here],
    }
    for name, weights in _weights(frame).items():
        cells[name] = np.bincount(cell, weights, len(keys))[here]
    return pd.DataFrame(cells)


def _sum_by(cells: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    table = cells.drop(columns=[k for k in ("group", "day", "hour") if k not in keys])
    table = table.groupby(keys, as_index=False).sum()
    table["input_tokens"] = table["fresh"] + table["cache_read"] + table["cache_write"]
    table["hit_rate"] = table["cache_read"] / table["input_tokens"].where(table["input_tokens"] > 0)
    requests = table.get("requests", table["rows"]).astype(float)
    table["requests"] = (
        requests.mask(table.pop("uncounted_rows") > 0) if "uncounted_rows" in table else requests
    )
    unpriced = table.pop("unpriced_rows") if "unpriced_rows" in table else 0
    table["priced_rows"] = table["rows"] - unpriced
    return table


def _named(table: pd.DataFrame, labels: np.ndarray, part: str) -> pd.DataFrame:
    table.insert(0, "model", labels[table.pop("group").to_numpy(dtype=np.int64)])
    table.insert(0, part, table.pop(part))
    return table


@dataclass(frozen=True)
class Lifetime:
    """What the same requests would have cost had every cache write lived this long.

    `hit_rate` is None where requests were not seen one by one: then the recorded reads are kept
    and only the price of the writes changes.
    """

    name: str
    paid: Decimal
    hit_rate: float | None


def sold_lifetimes(provider: str, model: str) -> tuple[float | None, float | None]:
    """Seconds of the shorter and the longer cache write a provider sells for a model.

    None where it sells none, or keeps no promise (automatic caches), or the model has no price.
    """
    try:
        rules = rules_for(rates(model, PROVIDER_NAMES.get(provider, provider) or None))
    except PriceError:
        return None, None
    by_write = {option.write: option.seconds for option in rules.options if not option.stored}
    return by_write.get("short"), by_write.get("long")


def other_lifetimes(
    frame: pd.DataFrame,
    seconds: Callable[[str, str], tuple[float | None, float | None]] = sold_lifetimes,
    contract: Contract | None = None,
) -> list[Lifetime]:
    """The bill as recorded, without caching, and with each lifetime for every write.

    Args:
        frame: a usage frame; requests of one session (or, where the export has none, of one
            model) are taken to continue one another.
        seconds: for a provider and model, the shorter and the longer lifetime it sells, None
            where it sells none.

    A request's cacheable part is what it read or wrote. Under another lifetime it reads as much
    of that as the request before it left behind, if that is no longer ago than the lifetime
    (renewed by each hit), and writes the rest. Models with reads and no writes stay as they were
    recorded: their export does not say what was written.
    """
    recorded = price_frame(frame, contract=contract).totals
    found = [
        Lifetime("As recorded", recorded.paid, recorded.hit_rate),
        Lifetime("Without caching", recorded.paid + (recorded.saved or 0), 0.0),
    ]
    single = frame["requests"].eq(1) & frame["at"].notna()
    for name, place in (("The shorter lifetime for all", 0), ("The longer lifetime for all", 1)):
        lifetime = _lifetimes(frame, seconds, place)
        if np.isnan(lifetime).all():
            continue
        changed = as_if(frame, lifetime, is_long=bool(place), single=single.to_numpy())
        totals = price_frame(changed, contract=contract).totals
        found.append(Lifetime(name, totals.paid, totals.hit_rate if single.any() else None))
    return found


def _lifetimes(
    frame: pd.DataFrame,
    seconds: Callable[[str, str], tuple[float | None, float | None]],
    place: int,
) -> np.ndarray:
    group, names = _models(frame)
    by_model = [seconds(provider, model)[place] for provider, model in names]
    lifetimes = np.array([np.nan if s is None else s for s in by_model], dtype=float)
    written = (frame["write_short"] + frame["write_long"]).to_numpy(dtype=float)
    reads = np.bincount(group, frame["cache_read"].to_numpy(dtype=float), len(names))
    lifetimes[(np.bincount(group, written, len(names)) == 0) & (reads > 0)] = np.nan
    return lifetimes[group]


def as_if(
    frame: pd.DataFrame, lifetime: np.ndarray, *, is_long: bool, single: np.ndarray
) -> pd.DataFrame:
    """The frame with reads and writes as another lifetime would have made them.

    Rows whose `lifetime` is NaN, and rows that are no single requests, keep their reads; writes
    of the former keep their lifetime too.
    """
    cacheable = (frame["cache_read"] + frame["write_short"] + frame["write_long"]).to_numpy()
    read = frame["cache_read"].to_numpy().copy()
    sold = ~np.isnan(lifetime)
    moved = single & sold
    read[moved] = _reads(frame[moved], cacheable[moved], lifetime[moved])
    written = cacheable - read
    short = np.where(sold, 0 if is_long else written, frame["write_short"])
    long = np.where(sold, written if is_long else 0, frame["write_long"])
    return frame.assign(cache_read=read, write_short=short, write_long=long)


def _reads(frame: pd.DataFrame, cacheable: np.ndarray, lifetime: np.ndarray) -> np.ndarray:
    """What each request finds in the cache, given the one before it in its session.

    The first of a session keeps what it read: what was before it is not in the file.
    """
    group, _ = _models(frame)
    session = frame["session"].to_numpy() if "session" in frame else np.zeros(len(frame), np.int64)
    times = frame["at"].dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
    times = times.astype("datetime64[us]").astype(np.int64)
    order = np.lexsort((times, session, group))
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (group[order][1:] == group[order][:-1]) & (session[order][1:] == session[order][:-1])
    gap = np.full(len(order), np.inf)
    gap[1:] = np.diff(times[order]) / 1e6
    before = np.zeros(len(order), dtype=np.int64)
    before[1:] = cacheable[order][:-1]
    alive = same & (gap <= lifetime[order])
    reads = np.zeros(len(order), dtype=np.int64)
    recorded = frame["cache_read"].to_numpy()[order]
    found = np.where(alive, np.minimum(before, cacheable[order]), 0)
    reads[order] = np.where(same, found, recorded)
    return reads


MOST_ARRIVALS = 2_000


def recorded_arrivals(frame: pd.DataFrame) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Seconds and session of the latest single requests, in order of time, for a replay.

    Requests without a session share one prefix with the others of their model.
    """
    single = frame["requests"].eq(1) & frame["at"].notna()
    if not single.any() or not has_hours(frame):
        return (), ()
    latest = frame[single].sort_values("at", kind="stable").tail(MOST_ARRIVALS)
    seconds = (latest["at"] - latest["at"].iloc[0]).dt.total_seconds()
    session = latest["session"].astype(str) if "session" in latest else ""
    names = latest["model"].astype(str) + " " + session
    return tuple(seconds.tolist()), tuple(names.tolist())


@dataclass(frozen=True)
class InvoiceGap:
    """Our sum against an invoice or the export's own; `share` is of the invoice, signed."""

    paid: Decimal
    invoice: Decimal

    @property
    def dollars(self) -> Decimal:
        """What the invoice has beyond the tokens priced here; negative if it has less."""
        return self.invoice - self.paid

    @property
    def share(self) -> float | None:
        return float(self.dollars / self.invoice) if self.invoice else None
