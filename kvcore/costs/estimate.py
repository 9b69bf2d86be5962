"""From a workload to a monthly bill with and without caching, and to one sentence with a sign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

import numpy as np

from kvcore.costs.expectation import Expected, expected_tokens, prefix_hit_rate, visibility
from kvcore.costs.prices import (
    Contract,
    PriceError,
    Rates,
    hours_note,
    price_changes,
    rates,
    utc,
)
from kvcore.costs.rules import CacheOption, Rules, rules_for
from kvcore.costs.workload import Workload, conversation
from kvcore.units import dollars, percent

Price = Callable[[Rates, int], Decimal]
"""Dollars per million tokens of a class in a request whose prompt is this long."""

CLASSES = ("fresh", "cache_read", "cache_write", "storage", "output")
DAYS_HELD_PER_MONTH = Decimal("30.4375")


@dataclass(frozen=True)
class Bill:
    """Dollars a month by token class; storage is what an explicit cache costs to hold."""

    fresh: Decimal = Decimal(0)
    cache_read: Decimal = Decimal(0)
    cache_write: Decimal = Decimal(0)
    storage: Decimal = Decimal(0)
    output: Decimal = Decimal(0)

    @property
    def total(self) -> Decimal:
        return self.fresh + self.cache_read + self.cache_write + self.storage + self.output


@dataclass(frozen=True)
class Outcome:
    """One lifetime under this workload. `saving` is against no caching; negative is a loss."""

    option: CacheOption
    placement: str
    bill: Bill
    saving: Decimal
    prefix_hit_rate: float
    read_share: float

    @property
    def name(self) -> str:
        return self.option.name


@dataclass(frozen=True)
class ModelEstimate:
    """What caching does to one model's bill, every option side by side, the cheapest first.

    `choice` is what was asked for; None where prices and rules were given by themselves.
    """

    rates: Rates
    rules: Rules
    workload: Workload
    without: Bill
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()
    choice: ModelChoice | None = None

    @property
    def model(self) -> str:
        return self.rates.model

    @property
    def provider(self) -> str:
        return self.rates.provider

    @property
    def best(self) -> Outcome | None:
        """The cheapest option; None where the model sells none that can be priced."""
        return self.outcomes[0] if self.outcomes else None

    @property
    def saving(self) -> Decimal:
        """What the cheapest option saves a month; negative where even that one loses."""
        return self.best.saving if self.best else Decimal(0)

    @property
    def cheapest_total(self) -> Decimal:
        """The bill of whoever takes the best option, or none where all of them lose."""
        return min([self.without.total, *(o.bill.total for o in self.outcomes)])

    @property
    def untouchable(self) -> Decimal:
        """Dollars that no cache can touch: the answers, and what changes in every request."""
        return self.without.output + self._changing_dollars()

    def _changing_dollars(self) -> Decimal:
        prompts = conversation(self.workload).prompt.astype(float)
        changing = np.full_like(prompts, self.workload.changing_tokens)
        return _monthly(self.rates, self.workload, prompts, changing, Rates.fresh)

    @property
    def sentence(self) -> str:
        return _sentence(self)

    def outcome(self, option_id: str) -> Outcome:
        """One option's outcome by id. Raises KeyError naming those there are."""
        self.rules.option(option_id)
        return next(o for o in self.outcomes if o.option.id == option_id)


@dataclass(frozen=True)
class Estimate:
    """All models compared, the cheapest bill first; those that cannot be priced with a reason."""

    models: tuple[ModelEstimate, ...]
    unpriced: tuple[tuple[str, str], ...] = ()

    @property
    def cheapest(self) -> ModelEstimate | None:
        return self.models[0] if self.models else None

    def of(self, choice: ModelChoice) -> ModelEstimate | None:
        """The estimate of one of the models asked for; None where it cannot be priced."""
        return next((model for model in self.models if model.choice == choice), None)

    @property
    def sentence(self) -> str:
        if self.cheapest is None:
            return "None of these models can be priced."
        return self.cheapest.sentence


@dataclass(frozen=True)
class ModelChoice:
    """A model to compare, at a provider, at list price or under a contract."""

    model: str
    provider: str | None = None
    contract: Contract | None = None
    service_tier: str | None = None
    speed: str | None = None
    geo: str | None = None


def estimate(
    models: Sequence[ModelChoice | str | tuple[str, str]],
    workload: Workload | None = None,
    *,
    at: datetime | date | None = None,
    **answers: object,
) -> Estimate:
    """Estimate the monthly bill of each model with and without caching.

    `models` are names, (name, provider) pairs or ModelChoice; `workload` or its fields as
    keywords give the traffic; `at` the day whose prices hold (today's if None). A model that
    cannot be priced is listed in `unpriced` with the reason. Raises WorkloadError.
    """
    workload = replace(workload or Workload(), **answers)
    priced, unpriced = [], []
    for choice in map(as_choice, models):
        try:
            priced.append(estimate_model(choice, workload, at=at))
        except PriceError as error:
            unpriced.append((choice.model, str(error)))
    priced.sort(key=lambda model: model.cheapest_total)
    return Estimate(tuple(priced), tuple(unpriced))


def as_choice(model: ModelChoice | str | tuple[str, str]) -> ModelChoice:
    if isinstance(model, ModelChoice):
        return model
    return ModelChoice(model) if isinstance(model, str) else ModelChoice(*model)


def estimate_model(
    choice: ModelChoice, workload: Workload, *, at: datetime | date | None = None
) -> ModelEstimate:
    """One model's estimate. Raises PriceError where its tokens cannot be priced."""
    found = rates(
        choice.model,
        choice.provider,
        at,
        batch=workload.batch,
        service_tier=choice.service_tier,
        speed=choice.speed,
        geo=choice.geo,
        contract=choice.contract,
    )
    if "input_mtok" not in found.flat(0) or "output_mtok" not in found.flat(0):
        raise PriceError(f"{found.model} has no published price for both input and output tokens.")
    estimated = evaluate(found, rules_for(found), workload)
    hourly = () if found.contract else hours_note(choice.model, choice.provider, found.at)
    return replace(estimated, notes=(*estimated.notes, *hourly), choice=choice)


def evaluate(found: Rates, rules: Rules, workload: Workload) -> ModelEstimate:
    """The estimate at given prices and rules; what-if questions change one and ask again."""
    without = bill_without(found, workload)
    outcomes = [
        _best_placement(found, rules, workload, option, without) for option in rules.options
    ]
    outcomes.sort(key=lambda outcome: outcome.bill.total)
    return ModelEstimate(
        rates=found,
        rules=rules,
        workload=workload,
        without=without,
        outcomes=tuple(outcomes),
        notes=(*found.notes, *_notes(rules, workload)),
    )


def _notes(rules: Rules, workload: Workload) -> list[str]:
    notes = []
    if workload.batch:
        notes.append("The items of one batch never see each other's writes: no hits are counted.")
    if rules.minimum is None:
        notes.append("No minimum prefix is published for this model: none is assumed.")
    per_minute = workload.requests_per_hour / 60 / workload.prefixes
    if rules.spills_per_minute and per_minute > rules.spills_per_minute:
        notes.append(
            f"{per_minute:,.0f} requests a minute for one prefix are more than the "
            f"{rules.spills_per_minute:g} or so that one machine takes: some will land where "
            "nothing is cached, unless prompt_cache_key spreads them."
        )
    if workload.arrivals == "recorded":
        notes.append("Hit rates are replayed from the recorded arrivals; volume is as entered.")
    return notes


def _best_placement(
    found: Rates, rules: Rules, workload: Workload, option: CacheOption, without: Bill
) -> Outcome:
    hit = prefix_hit_rate(workload, option, visibility(workload, rules))
    outcomes = [
        outcome_of(found, rules, workload, option, placement, without, hit)
        for placement in option.placement
    ]
    return min(outcomes, key=lambda outcome: outcome.bill.total)


def outcome_of(
    found: Rates,
    rules: Rules,
    workload: Workload,
    option: CacheOption,
    placement: str,
    without: Bill | None = None,
    prefix_hit: float | None = None,
) -> Outcome:
    """The bill under one lifetime and one placement of the cache's end.

    `without` and `prefix_hit` are worked out where they are not at hand.
    """
    expected = expected_tokens(workload, rules, option, placement, prefix_hit=prefix_hit)
    baseline = without or bill_without(found, workload)
    bill = bill_of(found, rules, workload, option, expected, output=baseline.output)
    return Outcome(
        option=option,
        placement=placement,
        bill=bill,
        saving=baseline.total - bill.total,
        prefix_hit_rate=expected.prefix_hit_rate,
        read_share=expected.read_share,
    )


def bill_without(found: Rates, workload: Workload) -> Bill:
    """The month without any caching: every prompt token is fresh."""
    prompts = conversation(workload).prompt.astype(float)
    per_call = np.full_like(prompts, workload.answer_tokens)
    return Bill(
        fresh=_monthly(found, workload, prompts, prompts, Rates.fresh),
        output=_monthly(found, workload, prompts, per_call, Rates.output),
    )


def write_price(option: CacheOption) -> Price:
    """Which of the rates a write under this option costs."""
    return {
        "short": Rates.cache_write_short,
        "long": Rates.cache_write_long,
        "free": Rates.fresh,
    }[option.write]


def bill_of(
    found: Rates,
    rules: Rules,
    workload: Workload,
    option: CacheOption,
    expected: Expected,
    output: Decimal | None = None,
) -> Bill:
    """The month with caching, from the expected tokens of one conversation's calls.

    `output` is what the answers cost, the same whatever is cached, where it is at hand.
    """

    def monthly(tokens: np.ndarray, price: Price) -> Decimal:
        return _monthly(found, workload, expected.prompt, tokens, price)

    if output is None:
        output = monthly(np.full_like(expected.prompt, workload.answer_tokens), Rates.output)
    created, held = stored(found, rules, workload, option, workload.prefix_tokens)
    return Bill(
        fresh=monthly(expected.fresh, Rates.fresh),
        cache_read=monthly(expected.cache_read, Rates.cache_read),
        cache_write=monthly(expected.cache_write, write_price(option)) + created,
        storage=held,
        output=output,
    )


def _monthly(
    found: Rates, workload: Workload, prompts: np.ndarray, tokens: np.ndarray, price: Price
) -> Decimal:
    """Dollars a month for tokens per call, each call at the price of its own prompt length."""
    starts = found.tier_starts()
    if not starts or prompts.max() <= starts[0]:
        total = _decimal(tokens) * price(found, 0)
    else:
        steps = np.searchsorted(np.array(starts, dtype=float), prompts, side="left")
        total = sum(
            _decimal(tokens[steps == step]) * price(found, int(prompts[steps == step][0]))
            for step in np.unique(steps)
        )
    return total * Decimal(str(workload.conversations_per_month)) / 1_000_000


def _decimal(tokens: np.ndarray) -> Decimal:
    return Decimal(str(round(float(tokens.sum()), 6)))


def stored(
    found: Rates, rules: Rules, workload: Workload, option: CacheOption, prefix_tokens: int
) -> tuple[Decimal, Decimal]:
    """Creating and holding an explicit cache for a month: one creation a day, or one a month."""
    if not option.stored:
        return Decimal(0), Decimal(0)
    tokens = Decimal(rules.cacheable(prefix_tokens) * workload.prefixes)
    always = option.stored == "always"
    creations = Decimal(1) if always else Decimal(str(workload.days_per_month))
    hours = 24 * DAYS_HELD_PER_MONTH if always else creations * Decimal(str(workload.hours_per_day))
    created = tokens * creations * found.fresh(prefix_tokens) / 1_000_000
    return created, tokens * hours * found.storage / 1_000_000


def _sentence(model: ModelEstimate) -> str:
    total = model.without.total
    best = model.best
    if best is None:
        return f"{model.model} sells no cache that can be priced."
    if total == 0:
        return f"{model.model} charges nothing for this traffic."
    share = percent(abs(float(best.saving / total)))
    if best.bill.cache_read == 0 and abs(best.saving) < total / 10_000:
        return f"Caching would change nothing: {_why_nothing(model)}."
    if best.saving >= 0:
        return (
            f"You would save {dollars(best.saving)} a month, {share} of the whole bill, with "
            f"{model.model} ({best.name})."
        )
    return (
        f"Caching would cost you {dollars(-best.saving)} more a month, {share} of the whole bill, "
        f"even with the cheapest lifetime of {model.model} ({best.name})."
    )


def _why_nothing(model: ModelEstimate) -> str:
    if model.workload.unstable_top:
        return "the top of the prompt differs every time, so nothing is ever read"
    if model.workload.batch:
        return "the items of one batch never see each other's writes"
    minimum = model.rules.minimum
    longest = int(conversation(model.workload).prompt.max())
    if minimum and longest < minimum.tokens:
        return f"no prompt reaches the {minimum.tokens:,} tokens that {model.model} caches from"
    if minimum and model.workload.prefix_tokens < minimum.tokens:
        return (
            f"the stable prefix of {model.workload.prefix_tokens:,} tokens is below the "
            f"{minimum.tokens:,} that {model.model} caches from"
        )
    if not model.rates.has_read_price:
        return f"no price for cached input is published for {model.model}"
    return "nothing would be read before it expires, and writing is free"


@dataclass(frozen=True)
class Repriced:
    """The same traffic on another day's prices."""

    day: date
    without: Bill
    best: Outcome | None
    total_change: Decimal
    reason: str = ""


def next_quarter(day: date) -> date:
    """The first day of the calendar quarter after this one."""
    month = (day.month - 1) // 3 * 3 + 4
    return date(day.year + (month > 12), (month - 1) % 12 + 1, 1)


def repriced(model: ModelEstimate, choice: ModelChoice, day: date) -> Repriced:
    """The same traffic on the list prices of `day`, past or announced; a contract stays."""
    then = estimate_model(choice, model.workload, at=day)
    changes = [] if choice.contract else price_changes(choice.model, choice.provider)
    today = utc(model.rates.at).date()
    low, high = sorted((today, day))
    between = [change for change in changes if low < change <= high]
    changed = then.without.total != model.without.total
    return Repriced(
        day=day,
        without=then.without,
        best=then.best,
        total_change=then.cheapest_total - model.cheapest_total,
        reason=f"The list price changes on {between[-1]:%Y-%m-%d}." if changed and between else "",
    )
