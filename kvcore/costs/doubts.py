"""How sure the saving is: each doubtful input varied by itself, and what they make together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from kvcore.costs.estimate import ModelEstimate, evaluate
from kvcore.costs.rules import CacheOption, Rules
from kvcore.costs.workload import Workload


@dataclass(frozen=True)
class Driver:
    """One doubtful input: the monthly saving at its lower and its upper end.

    `low` and `high` are the smaller and the larger saving, whichever end gives them. `is_fact`
    marks a doubt about the provider rather than about your traffic.
    """

    name: str
    varied: str
    low: Decimal
    high: Decimal
    is_fact: bool = False

    @property
    def spread(self) -> Decimal:
        return self.high - self.low


@dataclass(frozen=True)
class Band:
    """The saving, its uncertainty band and the drivers, the widest first.

    The band adds the one-at-a-time deviations in quadrature, each side by itself: it takes the
    drivers as independent.
    """

    saving: Decimal
    low: Decimal
    high: Decimal
    drivers: tuple[Driver, ...]

    @property
    def sentence(self) -> str:
        if not self.drivers or self.drivers[0].spread == 0:
            return "Nothing that was varied moves the saving."
        names = " and ".join(driver.name for driver in self.drivers[:2] if driver.spread)
        return f"Mostly driven by {names}."


def uncertainty_band(model: ModelEstimate, option_id: str | None = None) -> Band | None:
    """The band around the best option's saving, or around another option's; None without one."""
    if model.best is None:
        return None
    option = model.rules.option(option_id or model.best.option.id)
    saving = model.outcome(option.id).saving
    alone = replace(model, rules=replace(model.rules, options=(option,)))
    drivers = [
        _driver(name, varied, is_fact, saving, [variant.outcomes[0].saving for variant in variants])
        for name, varied, is_fact, variants in _variations(alone, option)
    ]
    drivers.sort(key=lambda driver: driver.spread, reverse=True)
    below = sum((saving - driver.low) ** 2 for driver in drivers)
    above = sum((driver.high - saving) ** 2 for driver in drivers)
    return Band(
        saving=saving,
        low=saving - Decimal(below).sqrt(),
        high=saving + Decimal(above).sqrt(),
        drivers=tuple(drivers),
    )


def _driver(
    name: str, varied: str, is_fact: bool, saving: Decimal, savings: list[Decimal]
) -> Driver:
    return Driver(name, varied, min([saving, *savings]), max([saving, *savings]), is_fact)


_Variation = tuple[str, str, bool, list[ModelEstimate]]


def _variations(model: ModelEstimate, option: CacheOption) -> Iterator[_Variation]:
    """`model` with this option alone, one input after the other moved to both its ends."""
    yield from _traffic_variations(model)
    yield from _fact_variations(model, option)


def _traffic_variations(model: ModelEstimate) -> Iterator[_Variation]:
    workload = model.workload

    def varied(**changes: object) -> ModelEstimate:
        return evaluate(model.rates, model.rules, replace(workload, **changes))

    def scaled(name: str, *factors: float) -> list[ModelEstimate]:
        value = getattr(workload, name)
        if name.endswith("_tokens"):
            return [varied(**{name: max(1, round(value * factor))}) for factor in factors]
        return [varied(**{name: float(value) * factor}) for factor in factors]

    yield "requests per hour", "± 25 %", False, scaled("requests_per_hour", 0.75, 1.25)
    if workload.prefix_tokens:
        lengths = scaled("prefix_tokens", 0.9, 1.1)
        yield "length of the stable prefix", "± 10 %", False, lengths
    if workload.calls > 1:
        yield "length of the answers", "± 25 %", False, scaled("answer_tokens", 0.75, 1.25)
    if workload.turns > 1 and workload.seconds_between_turns:
        pauses = scaled("seconds_between_turns", 0.5, 2.0)
        yield "pause between turns", "half to double", False, pauses
    if workload.prefixes > 1:
        other = [varied(uneven=not workload.uneven)]
        yield "how evenly the prefixes are used", "evenly or by Zipf's law", False, other
    if workload.arrivals == "poisson" and workload.parallel == 1:
        bursts = [varied(parallel=2)]
        yield "how bursty the requests are", "one by one or in pairs", False, bursts


def _fact_variations(model: ModelEstimate, option: CacheOption) -> Iterator[_Variation]:
    rules, workload = model.rules, model.workload

    def with_option(**changes: object) -> ModelEstimate:
        return _evaluate_with(model, rules, replace(option, **changes), workload)

    if option.renewed is None:
        yield "whether a hit renews the lifetime", "no or yes", True, [with_option(renewed=True)]
    if option.seconds_low != option.seconds_high and not option.stored:
        ends = [with_option(seconds=s) for s in (option.seconds_low, option.seconds_high)]
        yield "how long an entry really lives", _ends(option), True, ends
    if rules.minimum and rules.minimum.alternatives:
        variants = [
            evaluate(model.rates, _with_minimum(rules, tokens), workload)
            for tokens in rules.minimum.alternatives
        ]
        tokens = (rules.minimum.tokens, *rules.minimum.alternatives)
        varied = " or ".join(f"{n:,}" for n in tokens) + " tokens"
        yield "the provider's minimum prefix", varied, True, variants
    if workload.visible_after_seconds is None and not option.stored:
        variants = [
            evaluate(model.rates, rules, replace(workload, visible_after_seconds=seconds))
            for seconds in (0.0, 3 * rules.visible_after_seconds)
        ]
        seconds = 3 * rules.visible_after_seconds
        yield "the delay before a write can be read", f"0 to {seconds:g} s", True, variants


def _ends(option: CacheOption) -> str:
    def words(seconds: float) -> str:
        return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"

    return f"{words(option.seconds_low)} to {words(option.seconds_high)}"


def _with_minimum(rules: Rules, tokens: int) -> Rules:
    return replace(rules, minimum=replace(rules.minimum, tokens=tokens))


def _evaluate_with(
    model: ModelEstimate, rules: Rules, option: CacheOption, workload: Workload
) -> ModelEstimate:
    return evaluate(model.rates, replace(rules, options=(option,)), workload)
