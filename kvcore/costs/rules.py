"""The rules of the game at each provider: minimum prefix, granularity, lifetimes, renewal.

All of it is read from the overlay; every fact keeps its source, its date and whether it is
certain, so that the page can mark what is not and the estimate can vary it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

from kvcore.costs.overlay import first_row
from kvcore.costs.prices import LONG_WRITE, Rates

Tokens = TypeVar("Tokens", int, np.ndarray)


@dataclass(frozen=True)
class Minimum:
    """The shortest prefix that is cached at all; `alternatives` are what other sources say."""

    tokens: int
    source: str
    date: str
    certain: bool
    alternatives: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class CacheOption:
    """One way to keep a prefix: a lifetime the provider sells, or its automatic cache.

    `write` names the price of a write ("short", "long", or "free": fresh input). `renewed`:
    whether a hit starts the lifetime anew; None where the provider does not say, and then the
    estimate assumes it does not and varies it. `stored` is "working hours" or "always" for a
    cache that is paid for by the hour held.
    """

    id: str
    name: str
    seconds: float
    seconds_low: float
    seconds_high: float
    write: str
    renewed: bool | None
    placement: tuple[str, ...]
    source: str
    certain: bool
    note: str = ""
    stored: str | None = None


@dataclass(frozen=True)
class Rules:
    """How one model's cache works at one provider.

    `unpriced` are options that it sells but that cannot be billed for, each with the reason;
    `spills_per_minute`: requests for one prefix above which some miss on other machines; `off`:
    how to send a request that writes nothing.
    """

    provider: str
    model: str
    starts: str
    options: tuple[CacheOption, ...]
    unpriced: tuple[tuple[CacheOption, str], ...]
    minimum: Minimum | None
    increment: int
    visible_after_seconds: float
    source: str
    date: str
    certain: bool
    note: str = ""
    spills_per_minute: float | None = None
    off: str = "send no cache marks"

    def option(self, option_id: str) -> CacheOption:
        """One of the options by its id. Raises KeyError naming those there are."""
        for option in self.options:
            if option.id == option_id:
                return option
        known = ", ".join(option.id for option in self.options)
        raise KeyError(f"{self.model} sells no {option_id!r} cache; it has {known}.")

    def cacheable(self, tokens: Tokens) -> Tokens:
        """How much of a prefix of this length can be cached: nothing below the minimum, then
        whole steps of the increment (128 at OpenAI before GPT-5.6), else all of it."""
        return cacheable(tokens, self.minimum.tokens if self.minimum else 0, self.increment)


def cacheable(tokens: Tokens, minimum: int, increment: int = 1) -> Tokens:
    """P if P ≥ minimum, else 0, rounded down to minimum + k·increment. Takes arrays too."""
    stepped = minimum + (tokens - minimum) // increment * increment
    return stepped * (tokens >= minimum)


def rules_for(rates: Rates) -> Rules:
    """The rules for the model these rates are of, with the options it can be billed for."""
    row = first_row("rules", rates.provider, rates.model)
    options, unpriced = [], []
    for entry in row["options"]:
        option = _option(entry)
        reason = _unpriced_reason(option, rates)
        if reason:
            unpriced.append((option, reason))
        else:
            options.append(option)
    return Rules(
        provider=rates.provider,
        model=rates.model,
        starts=row["starts"],
        options=tuple(options),
        unpriced=tuple(unpriced),
        minimum=minimum_for(rates.provider, rates.model),
        increment=row["increment"],
        visible_after_seconds=row.get("visible_after_seconds", 1.0),
        source=row["source"],
        date=row["date"],
        certain=row["certain"],
        note=row.get("note", ""),
        spills_per_minute=row.get("spills_per_minute"),
        off=row.get("off", Rules.off),
    )


def minimum_for(provider: str, model: str) -> Minimum | None:
    """The minimum prefix of a model; None where no source gives one."""
    row = first_row("minimums", provider, model)
    if row is None:
        return None
    return Minimum(
        tokens=row["tokens"],
        source=row["source"],
        date=row["date"],
        certain=row["certain"],
        alternatives=tuple(row["alternatives"]),
        note=row.get("note", ""),
    )


def _option(entry: Mapping[str, Any]) -> CacheOption:
    return CacheOption(**{**entry, "placement": tuple(entry["placement"])})


def _unpriced_reason(option: CacheOption, rates: Rates) -> str | None:
    if option.stored and rates.storage is None:
        return "what holding the cache costs per hour is not known for this model"
    if option.write == "long" and LONG_WRITE not in rates.flat(0):
        return "what a long write costs is not known for this model"
    return None


@dataclass(frozen=True)
class WellKnownFact:
    """A rule of thumb, whom it is said of, whether it holds for this model, and its own figure."""

    claim: str
    said_of: str
    holds: bool
    sentence: str


_FACTS = (
    ("write", Decimal("1.25"), "A cache write costs 1.25× the input price.", "Anthropic"),
    ("long", Decimal(2), "A one-hour write costs 2× the input price.", "Anthropic"),
    ("read", Decimal("0.1"), "A cache read costs 0.1× the input price.", "Anthropic"),
    ("off", Decimal("0.1"), "Cached input is up to 90 % off.", "OpenAI"),
)


def well_known_facts(rates: Rates) -> tuple[WellKnownFact, ...]:
    """The four well-known facts, each with whether it is true of this model and its own figure.

    The first three are said of Anthropic, the last of OpenAI; they hold for a shrinking list of
    models, so every model answers for itself from its own prices.
    """
    read, write, long = rates.multipliers()
    long_name = _long_name(rates)
    own = {
        "write": (write, _write_sentence(write)),
        "long": (
            long if long_name == "one-hour" else None,
            f"A {long_name} write costs {_plain(long)}× the input price."
            if long is not None
            else "No longer lifetime is sold by the write.",
        ),
        "read": (read, f"A cache read costs {_plain(read)}× the input price."),
        "off": (read, f"Cached input is {_percent_off(read)} off."),
    }
    facts = []
    for key, value, claim, said_of in _FACTS:
        figure, sentence = own[key]
        if not rates.has_read_price and key in ("read", "off"):
            figure, sentence = None, "No price for cached input is published."
        facts.append(WellKnownFact(claim, said_of, figure == value, sentence))
    return tuple(facts)


def _write_sentence(write: Decimal) -> str:
    if write == 1:
        return "A cache write costs no more than fresh input."
    return f"A cache write costs {_plain(write)}× the input price."


def _long_name(rates: Rates) -> str:
    row = first_row("long_writes", rates.provider, rates.model)
    return "twelve-hour" if row and row["lifetime"] == "12h" else "one-hour"


def _plain(value: Decimal) -> str:
    return f"{value.quantize(Decimal('0.0001')).normalize():f}"


def _percent_off(read: Decimal) -> str:
    return f"{_plain(((1 - read) * 100).quantize(Decimal('0.1')))} %"
