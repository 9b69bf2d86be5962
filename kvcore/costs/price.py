"""What one usage record costs, by token class, and what caching saved or lost on it.

The arithmetic is genai-prices' own (leaf counts times price, exact decimals), so the total equals
`genai_prices.calc_price` wherever the engine can price the record; the overlay adds what it has
no price for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
        paid = _by_class(flat, counts.usage(), counts)
        uncached = _by_class(flat, counts.usage(cached=False), counts)
    except ValueError:
        plain = _as_text(counts)
        paid = _by_class(flat, plain.usage(), plain)
        uncached = _by_class(flat, plain.usage(cached=False), plain)
        notes.append("Which kinds of input were cached is not said: all were priced as text.")
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


def _as_text(counts: TokenCounts) -> TokenCounts:
    """The same record without its kinds of input, after the counts themselves proved sound."""
    kept = {
        key: value
        for key, value in counts.details.items()
        if key.startswith("output_") or not key.endswith("_tokens")
    }
    _check_outputs(counts)
    return TokenCounts(
        fresh=counts.fresh,
        cache_read=counts.cache_read,
        cache_write_short=counts.cache_write_short,
        cache_write_long=counts.cache_write_long,
        output=counts.output,
        details=kept,
        requests=counts.requests,
        prompt_tokens=counts.prompt_tokens,
    )


def _check_outputs(counts: TokenCounts) -> None:
    for key, value in counts.details.items():
        whole = counts.output if key.startswith("output_") else counts.input
        if key.endswith("_tokens") and value > whole:
            raise UsageError(
                f"{value:,} {key.replace('_', ' ')} are more than the {whole:,} tokens "
                "they are part of."
            )


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
