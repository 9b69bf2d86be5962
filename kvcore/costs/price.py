"""What one usage record costs, by token class, and what caching saved or lost on it.

The arithmetic is genai-prices' own (leaf counts times price, exact decimals), so the total equals
`genai_prices.calc_price` wherever the engine can price the record; the overlay adds what it has
no price for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from genai_prices.decompose import compute_leaf_values
from genai_prices.types import Usage, calc_unit_price
from genai_prices.units import UnitDef

from kvcore.costs.prices import LONG_WRITE, Contract, PriceError, Rates, rates, units
from kvcore.costs.usage import TokenCounts, UsageError, circumstances, normalise


@dataclass(frozen=True)
class Cost:
    """Dollars of one record, exact. `saved` is what the same tokens would have cost without any
    caching, less what they did cost: negative where the writes were never repaid.

    A class without a price of its own is billed as fresh input and stands there: writes where
    they are free, reads where no discount is published.
    """

    fresh: Decimal
    cache_read: Decimal
    cache_write: Decimal
    output: Decimal
    other: Decimal
    saved: Decimal
    tokens: TokenCounts
    rates: Rates
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> Decimal:
        return self.fresh + self.cache_read + self.cache_write + self.output + self.other

    @property
    def uncached(self) -> Decimal:
        """The same tokens without any caching."""
        return self.total + self.saved


def price(
    usage_record: Mapping[str, Any],
    model: str | None = None,
    provider: str | None = None,
    at: datetime | date | None = None,
    *,
    batch: bool | None = None,
    service_tier: str | None = None,
    speed: str | None = None,
    geo: str | None = None,
    contract: Contract | None = None,
) -> Cost:
    """Price a usage object or a whole response of any known format.

    What is not given is read from the record (model, time, tier, speed, region); without a time
    today's prices hold. Raises UsageError for impossible counts, PriceError for a model that
    cannot be priced.
    """
    found = circumstances(usage_record)
    model, provider = model or found.model, provider or found.provider
    counts = normalise(usage_record, provider=provider, model=model)
    at_these = rates(
        model or "",
        provider,
        at or found.at,
        batch=found.batch if batch is None else batch,
        service_tier=service_tier or found.service_tier,
        speed=speed or found.speed,
        geo=geo or found.geo,
        contract=contract,
    )
    return price_counts(counts, at_these)


def price_counts(counts: TokenCounts, at_these: Rates) -> Cost:
    """Price token classes at given rates. Raises UsageError, PriceError."""
    flat = at_these.flat(counts.tier_tokens)
    if counts.cache_write_long and LONG_WRITE not in flat and "cache_write_mtok" in flat:
        raise PriceError(
            f"No price for long cache writes is known for {at_these.model} at "
            f"{at_these.provider}: type in a contract price."
        )
    notes = [*at_these.notes, *counts.notes]
    try:
        paid, uncached = _paid_and_uncached(flat, counts)
    except ValueError:
        counts = _kinds_guessed(counts)
        paid, uncached = _paid_and_uncached(flat, counts)
        notes.append(_TEXT_FIRST)
    if counts.cache_read and not at_these.has_read_price:
        notes.append("No price for cached tokens is published: they were charged as fresh input.")
    if counts.output and "output_mtok" not in flat:
        notes.append("No price for output is published: it was taken as free.")
    return Cost(
        **paid,
        saved=sum(uncached.values()) - sum(paid.values()),
        tokens=counts,
        rates=at_these,
        notes=tuple(dict.fromkeys(notes)),
    )


def _paid_and_uncached(
    flat: Mapping[str, Decimal], counts: TokenCounts
) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    paid = _by_class(flat, counts.usage(), counts)
    return paid, _by_class(flat, counts.usage(cached=False), counts)


_KINDS = ("audio", "image", "video")


_TEXT_FIRST = "Which kinds of input were cached is not said: text was taken to be cached first."


def _kinds_guessed(counts: TokenCounts) -> TokenCounts:
    """The record with a guess at which kinds of input were cached: text first.

    Raises UsageError where the kinds are more than the input they are part of.
    """
    details = dict(counts.details)
    kinds = {kind: details.get(f"input_{kind}_tokens", 0) for kind in _KINDS}
    text = counts.input - sum(kinds.values())
    if text < 0:
        raise UsageError(
            f"{sum(kinds.values()):,} audio, image and video tokens are more than the "
            f"{counts.input:,} input tokens they are part of."
        )
    for key, value in details.items():
        if key.startswith("output_") and value > counts.output:
            raise UsageError(
                f"{value:,} {key.replace('_', ' ')} are more than the {counts.output:,} tokens of "
                "the whole answer."
            )
    if any(f"cache_{kind}_read_tokens" in details for kind in _KINDS):
        raise UsageError(
            "The kinds of input that are said to come from the cache do not fit the input and the "
            "cached tokens they are part of."
        )
    left = max(0, counts.cache_read - text)
    for kind, tokens in kinds.items():
        cached = min(left, tokens)
        left -= cached
        details[f"cache_{kind}_read_tokens"] = cached
        details[f"cache_{kind}_write_tokens"] = 0
    return replace(counts, details=details)


def _by_class(flat: Mapping[str, Decimal], usage: Usage, counts: TokenCounts) -> dict[str, Decimal]:
    totals = dict.fromkeys(("fresh", "cache_read", "cache_write", "output", "other"), Decimal(0))
    priced = {key: unit for key, unit in units(flat).items() if key != "requests"}
    leaves = compute_leaf_values(set(priced), usage, priced)
    for usage_key, unit in priced.items():
        totals[_class_of(unit)] += calc_unit_price(
            flat[unit.price_key], leaves[usage_key], 0, unit.per
        )
    if "requests_kcount" in flat:
        totals["other"] += flat["requests_kcount"] * (counts.requests or 1) / 1000
    return totals


def _class_of(unit: UnitDef) -> str:
    dimensions = unit.dimensions
    if dimensions.get("family") != "tokens":
        return "other"
    if dimensions.get("direction") == "output":
        return "output"
    return dimensions.get("token_type", "fresh")
