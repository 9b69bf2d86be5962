"""What a token costs: genai-prices, offline, and the overlay for what it has no place for.

The engine is genai-prices 0.2.3 with the data it ships; nothing is ever fetched. Its long-write
slot (`cache_write_1h_mtok`) is filled here with the price of whichever long lifetime the provider
sells: one hour at Anthropic and Moonshot, twelve hours at OpenAI.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import cache, cached_property
from importlib.metadata import version

from genai_prices.data_snapshot import DataSnapshot, get_snapshot
from genai_prices.data_units import unit_data
from genai_prices.types import (
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)
from genai_prices.units import UnitDef, UnitRegistry

from kvcore.costs.overlay import first_row, rows

ENGINE = f"genai-prices {version('genai-prices')}"

REGISTRY = UnitRegistry(unit_data)

LONG_WRITE = "cache_write_1h_mtok"


class PriceError(LookupError):
    """This model cannot be priced; the message says why, and what to do."""


LEAST_CONTRACT, MOST_CONTRACT = Decimal("0.000001"), Decimal(1_000_000)


@dataclass(frozen=True)
class Contract:
    """Prices someone negotiated, in dollars per million tokens.

    What is left out is not a guess: reads and writes without a price cost what fresh input
    costs, as on an account without a caching discount. `storage` is dollars per million tokens
    held for an hour.
    """

    fresh: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write_short: Decimal | None = None
    cache_write_long: Decimal | None = None
    storage: Decimal | None = None

    @classmethod
    def parse(cls, **typed: str | float | Decimal | None) -> Contract:
        """From what was typed: '$3.00', '3', '0,25' is refused. Raises PriceError."""
        return cls(**{name: _typed_dollars(name, value) for name, value in typed.items()})

    def prices(self) -> ModelPrice:
        known = {
            "input_mtok": self.fresh,
            "output_mtok": self.output,
            "cache_read_mtok": self.cache_read,
            "cache_write_mtok": self.cache_write_short,
            LONG_WRITE: self.cache_write_long,
        }
        return ModelPrice(**{key: value for key, value in known.items() if value is not None})


def _typed_dollars(name: str, value: str | float | Decimal | None) -> Decimal | None:
    if value is None or str(value).strip() == "":
        return None
    text = str(value).strip().removeprefix("$").strip()
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount < 0:
        raise PriceError(
            f"The contract price for {name.replace('_', ' ')} must be dollars per million tokens "
            f"such as 2.50, not {value!r}."
        )
    if amount and not LEAST_CONTRACT <= amount <= MOST_CONTRACT:
        raise PriceError(
            f"The contract price for {name.replace('_', ' ')} must be 0 or from "
            f"{LEAST_CONTRACT:f} to {MOST_CONTRACT:,} dollars per million tokens: check the unit."
        )
    return amount


@dataclass(frozen=True)
class Rates:
    """One model's prices at one moment, under one way of calling it.

    `prices` are dollars per unit as the engine keeps them (most per million tokens), some of
    them tiered by the length of the whole prompt; `uplift` multiplies every token class.
    """

    provider: str
    model: str
    prices: ModelPrice
    at: datetime
    uplift: Decimal = Decimal(1)
    storage: Decimal | None = None
    contract: bool = False
    notes: tuple[str, ...] = ()
    _flat: dict[int, Mapping[str, Decimal]] = field(default_factory=dict, repr=False, compare=False)

    def tier_starts(self) -> tuple[int, ...]:
        """Prompt lengths above which (strictly) the whole request costs more."""
        return self._starts

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        tiered = (p for p in vars(self.prices).values() if isinstance(p, TieredPrices))
        return tuple(sorted({tier.start for price in tiered for tier in price.tiers}))

    def flat(self, prompt_tokens: int) -> Mapping[str, Decimal]:
        """Dollars per unit by price key, for one request whose prompt is this long."""
        starts = self._starts
        step = sum(prompt_tokens > start for start in starts) if starts else 0
        if step not in self._flat:
            self._flat[step] = {
                key: self._uplifted(key, _in_tier(price, prompt_tokens))
                for key, price in vars(self.prices).items()
                if price is not None
            }
        return self._flat[step]

    def _uplifted(self, price_key: str, price: Decimal) -> Decimal:
        is_tokens = REGISTRY.unit_for_price_key(price_key).dimensions.get("family") == "tokens"
        return price * self.uplift if is_tokens and self.uplift != 1 else price

    def fresh(self, prompt_tokens: int = 0) -> Decimal:
        """Dollars per million input tokens that are neither read nor written."""
        return self.flat(prompt_tokens)["input_mtok"]

    def cache_read(self, prompt_tokens: int = 0) -> Decimal:
        """Dollars per million tokens read; the fresh price where no discount is published."""
        return self.flat(prompt_tokens).get("cache_read_mtok", self.fresh(prompt_tokens))

    def cache_write_short(self, prompt_tokens: int = 0) -> Decimal:
        """Dollars per million tokens written for the shorter lifetime; fresh where free."""
        return self.flat(prompt_tokens).get("cache_write_mtok", self.fresh(prompt_tokens))

    def cache_write_long(self, prompt_tokens: int = 0) -> Decimal:
        """Dollars per million tokens written for the longer lifetime.

        Raises PriceError where the provider charges for writes and no long price is known.
        """
        flat = self.flat(prompt_tokens)
        if LONG_WRITE in flat:
            return flat[LONG_WRITE]
        if "cache_write_mtok" in flat:
            raise PriceError(f"No price for long cache writes is known for {self.model}.")
        return self.fresh(prompt_tokens)

    def output(self, prompt_tokens: int = 0) -> Decimal:
        """Dollars per million output tokens; zero for models that bill input only."""
        return self.flat(prompt_tokens).get("output_mtok", Decimal(0))

    @property
    def has_read_price(self) -> bool:
        return getattr(self.prices, "cache_read_mtok", None) is not None

    def multipliers(self) -> tuple[Decimal, Decimal, Decimal | None]:
        """Read, short write and long write over the fresh price; None where no long is sold."""
        fresh = self.fresh()
        if fresh == 0:
            raise PriceError(f"{self.model} charges nothing for input: caching cannot save.")
        long = self.flat(0).get(LONG_WRITE)
        return (
            self.cache_read() / fresh,
            self.cache_write_short() / fresh,
            None if long is None else long / fresh,
        )


def _in_tier(price: Decimal | TieredPrices, prompt_tokens: int) -> Decimal:
    if isinstance(price, Decimal):
        return price
    applicable = price.base
    for tier in price.tiers:
        if prompt_tokens > tier.start:
            applicable = tier.price
    return applicable


def _scaled(price: Decimal | TieredPrices, factor: Decimal) -> Decimal | TieredPrices:
    if isinstance(price, Decimal):
        return price * factor
    tiers = [Tier(start=tier.start, price=tier.price * factor) for tier in price.tiers]
    return TieredPrices(base=price.base * factor, tiers=tiers)


@cache
def snapshot() -> DataSnapshot:
    """The engine's bundled data, held once."""
    return get_snapshot()


def utc(at: datetime | date | None) -> datetime:
    """An aware time in UTC: a naive one is taken as UTC, a date as its noon, None as now.

    A time that UTC has no year for (the first and last hours of years 1 and 9999 elsewhere) is
    taken as UTC. Raises PriceError for what is no time.
    """
    if at is None:
        return datetime.now(tz=UTC)
    if not isinstance(at, date):
        raise PriceError(f"A price is asked for at a date or a time, not {at!r}.")
    if not isinstance(at, datetime):
        return datetime.combine(at, time(12), tzinfo=UTC)
    if at.tzinfo is None:
        return at.replace(tzinfo=UTC)
    try:
        return at.astimezone(UTC)
    except OverflowError:
        return at.replace(tzinfo=UTC)


def find(model: str, provider: str | None = None) -> tuple[Provider, ModelInfo]:
    """The engine's entry for a model reference, as an API or an export would spell it.

    Tried in turn: the engine's own matching; the engine's id for the model (Fireworks and others
    match only full paths); a vendor in front of a slash; then the name without a release date
    and with a Claude's version after its family (exports of OpenRouter and Bedrock). Raises
    PriceError.
    """
    for name in (model, provider):
        if name is not None and not isinstance(name, str):
            raise PriceError(f"Models and providers are named in words, not by {name!r}.")
    reference = (model or "").strip().lower()
    if not reference:
        raise PriceError("No model is named, so nothing can be priced.")
    where = provider.strip().lower() if provider else None
    found = _find(reference, _PROVIDER_NAMES.get(where, where))
    if found is None:
        place = f"at {provider}" if provider else "at any provider"
        raise PriceError(
            f"{model} is not in the price list ({ENGINE}) {place}: check the spelling and the "
            "provider, or type in a contract price."
        )
    return found


_PROVIDER_NAMES = {"azure_ai": "azure", "fireworks_ai": "fireworks", "fireworks-ai": "fireworks"}
_BEDROCK = re.compile(
    r"(?:arn:aws[\w-]*:bedrock:.*/)?(?:[a-z-]+\.)?(?:anthropic|amazon|meta|openai|moonshotai|zai)\..+"
)
_RELEASE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d)(?:-v\d+)?(?::\d+)?$")
_VERSION_FIRST = re.compile(r"claude-(\d+(?:[.-]\d+)?)-([a-z]+)")


@cache
def _find(model: str, provider: str | None) -> tuple[Provider, ModelInfo] | None:
    if provider is None and _BEDROCK.fullmatch(model):
        provider = "aws"
    return next((found for name in _spellings(model) if (found := _match(name, provider))), None)


def _spellings(model: str) -> Iterator[str]:
    yield model
    name = model.rsplit("/", 1)[-1] if model.startswith("arn:") else model
    undated = _RELEASE.sub("", name)
    yield undated
    yield _VERSION_FIRST.sub(r"claude-\2-\1", undated)


def _match(model: str, provider: str | None) -> tuple[Provider, ModelInfo] | None:
    try:
        return snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        pass
    entry = _provider(provider)
    if entry is None and "/" in model:
        vendor, _, rest = model.partition("/")
        if _provider(vendor) is not None:
            return _match(rest, vendor)
    for candidate in entry.models if entry else ():
        if candidate.id.lower() == model.rsplit("/", 1)[-1]:
            return entry, candidate
    return None


def _provider(provider: str | None) -> Provider | None:
    if provider is None:
        return None
    try:
        return snapshot().find_provider(None, provider, None)
    except LookupError:
        return None


def rates(
    model: str,
    provider: str | None = None,
    at: datetime | date | None = None,
    *,
    batch: bool = False,
    service_tier: str | None = None,
    speed: str | None = None,
    geo: str | None = None,
    contract: Contract | None = None,
) -> Rates:
    """The prices of a model at a moment (now, where none is given).

    `service_tier`, `speed` and `geo` are the provider's own words ("flex", "fast", "us").
    A contract replaces the list prices and needs no list entry. Raises PriceError.
    """
    moment = utc(at)
    if contract is not None:
        return _contract_rates(model, provider, moment, contract)
    entry, info = find(model, provider)
    own_model = any(info is candidate for candidate in entry.models)
    context = _context(batch, service_tier, speed)
    prices = info.get_prices(moment, context if own_model else None)
    if not any(_is_token_price(key) for key, price in vars(prices).items() if price is not None):
        raise PriceError(f"{info.id} at {entry.name} has no published token price.")
    notes = []
    if context and prices == info.get_prices(moment):
        prices, note = _without_variant(entry, info, prices, context)
        notes.append(note)
    prices = _with_long_writes(entry, info, prices, notes)
    uplift = _uplift(entry, info, geo, notes)
    notes.extend(_time_notes(entry, info, moment))
    return Rates(
        provider=entry.id,
        model=info.id,
        prices=prices,
        at=moment,
        uplift=uplift,
        storage=storage_price(entry.id, info.id),
        notes=tuple(notes),
    )


def _contract_rates(
    model: str, provider: str | None, moment: datetime, contract: Contract
) -> Rates:
    try:
        entry, info = find(model, provider)
        provider, model = entry.id, info.id
    except PriceError:
        pass
    return Rates(
        provider=provider or "contract",
        model=model or "contract",
        prices=contract.prices(),
        at=moment,
        storage=contract.storage,
        contract=True,
        notes=("Priced by the contract typed in, not by the list.",),
    )


def _context(batch: bool, service_tier: str | None, speed: str | None) -> dict[str, str]:
    context = {}
    tier = (service_tier or "").lower()
    if batch or tier == "batch":
        context["processing"] = "batch"
    elif tier not in ("", "standard", "auto", "default", "on_demand"):
        context["service_tier"] = tier
    if speed and speed.lower() != "standard":
        context["speed"] = speed.lower()
    return context


def _is_token_price(price_key: str) -> bool:
    return REGISTRY.unit_for_price_key(price_key).dimensions.get("family") == "tokens"


def _without_variant(
    entry: Provider, info: ModelInfo, prices: ModelPrice, context: Mapping[str, str]
) -> tuple[ModelPrice, str]:
    """The overlay's multiple for a way of calling that the engine has no prices for."""
    asked = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in context.items())
    if len(context) == 1:
        for row in rows("calling", entry.id, info.id):
            if context.get(row["key"]) == row["value"]:
                factor = Decimal(row["multiple"])
                scaled = {
                    key: _scaled(price, factor) if _is_token_price(key) else price
                    for key, price in vars(prices).items()
                    if price is not None
                }
                return ModelPrice(**scaled), (
                    f"{asked}: {row['multiple']}× of the standard price ({row['source']}); "
                    "the price list has no rows of its own for it."
                )
    return prices, f"No price is published for {asked}: the standard price is used."


def _with_long_writes(
    entry: Provider, info: ModelInfo, prices: ModelPrice, notes: list[str]
) -> ModelPrice:
    """Fill the long-write slot where the provider charges for writes and sells a long one."""
    known = vars(prices)
    if known.get(LONG_WRITE) is not None or known.get("cache_write_mtok") is None:
        return prices
    row = first_row("long_writes", entry.id, info.id)
    if row is None:
        return prices
    if not row["certain"]:
        notes.append(f"The price of {row['lifetime']} writes is not certain. {row['note']}")
    long = _scaled(known["input_mtok"], Decimal(row["input_multiple"]))
    return ModelPrice(**{**known, LONG_WRITE: long})


def _uplift(entry: Provider, info: ModelInfo, geo: str | None, notes: list[str]) -> Decimal:
    if not geo or geo.lower() in ("global", "not_available", "unspecified"):
        return Decimal(1)
    for row in rows("uplifts", entry.id, info.id):
        if geo.lower() in row["geo"]:
            notes.append(f"Processing in {geo}: {row['multiple']}× on every token class.")
            return Decimal(row["multiple"])
    notes.append(f"No uplift is known for processing in {geo}: the standard price is used.")
    return Decimal(1)


def _time_notes(entry: Provider, info: ModelInfo, moment: datetime) -> Iterator[str]:
    if not isinstance(info.prices, list):
        return
    by_hour = any(isinstance(price.constraint, TimeOfDateConstraint) for price in info.prices)
    if by_hour and entry.id == "deepseek" and moment.weekday() >= 5:
        yield (
            "DeepSeek's peak prices hold on weekdays only, which the price list cannot say: "
            "on a weekend the peak hours here are up to twice too dear."
        )


def hours_note(model: str, provider: str | None, moment: datetime) -> Iterator[str]:
    """A sentence where this model's price depends on the hour of the day (UTC)."""
    _, info = find(model, provider)
    if not any(isinstance(c.constraint, TimeOfDateConstraint) for c in _conditional(info)):
        return
    by_hour = [
        info.get_prices(moment.replace(hour=hour, minute=30)).input_mtok for hour in range(24)
    ]
    low, high = min(by_hour), max(by_hour)
    if low != high:
        dear = sum(price == high for price in by_hour)
        yield (
            f"The price depends on the hour: ${low} or, in {dear} hours of the day, ${high} per "
            f"million input tokens. This uses the price at {moment:%H:%M} UTC."
        )


def storage_price(provider: str, model: str) -> Decimal | None:
    """Dollars per million tokens held for one hour, where a provider charges for holding."""
    row = first_row("storage", provider, model)
    return None if row is None else Decimal(row["dollars_per_million_hours"])


def price_changes(model: str, provider: str | None = None) -> tuple[date, ...]:
    """The days on which this model's list prices change, past and announced, in order."""
    _, info = find(model, provider)
    constraints = [price.constraint for price in _conditional(info)]
    constraints += [variant.constraint for variant in info.price_variants or ()]
    days = {c.start_date for c in constraints if isinstance(c, StartDateConstraint)}
    return tuple(sorted(days))


def _conditional(info: ModelInfo) -> list[ConditionalPrice]:
    return info.prices if isinstance(info.prices, list) else []


@dataclass(frozen=True)
class Listed:
    """A model that people can choose: its ids, and whether a cache-read price is known."""

    provider: str
    provider_name: str
    model: str
    name: str
    has_read_price: bool
    deprecated: bool


@cache
def listed(provider: str | None = None) -> tuple[Listed, ...]:
    """Every model the engine prices per token, those with a cache-read price first."""
    found = []
    now = utc(None)
    for entry in snapshot().providers:
        if provider is not None and entry.id != provider:
            continue
        for info in entry.models:
            prices = vars(info.get_prices(now))
            if prices.get("input_mtok") is None or prices.get("output_mtok") is None:
                continue
            found.append(
                Listed(
                    provider=entry.id,
                    provider_name=entry.name,
                    model=info.id,
                    name=info.name or info.id,
                    has_read_price=prices.get("cache_read_mtok") is not None,
                    deprecated=bool(info.deprecated),
                )
            )
    return tuple(sorted(found, key=lambda m: (m.provider, not m.has_read_price, m.model)))


def units(prices: Mapping[str, Decimal]) -> dict[str, UnitDef]:
    """The engine's units for these price keys, by usage key."""
    found = (REGISTRY.unit_for_price_key(key) for key in prices)
    return {unit.usage_key: unit for unit in found}
