"""Where the money goes: dollars lost per cause, with the fix and what the fix is worth.

Each cause is priced by itself, as the month's bill now less the bill without that cause; causes
overlap, so the amounts do not add up. A fix can be worth less than its cause costs, because the
fix costs something too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from kvcore.costs.estimate import (
    ModelEstimate,
    Outcome,
    bill_of,
    bill_without,
    outcome_of,
    write_price,
)
from kvcore.costs.expectation import expected_tokens
from kvcore.costs.rules import Rules
from kvcore.costs.traffic import break_even_hit_rate
from kvcore.costs.workload import COMPACTION, Workload, conversation
from kvcore.units import dollars, percent

NOT_WORTH_SHOWING = Decimal("0.005")


@dataclass(frozen=True)
class Loss:
    """A cause, what it costs a month, the fix, and what the fix brings back a month.

    `avoided` marks a mistake that the figures already do without: what making it would cost.
    """

    cause: str
    dollars: Decimal
    fix: str
    worth: Decimal
    avoided: bool = False


def losses(model: ModelEstimate, using: str | None = None) -> tuple[Loss, ...]:
    """What costs money under the option in use (the best if None), the dearest cause first.

    Causes of less than half a cent a month are left out.
    """
    if model.best is None:
        return ()
    now = model.outcome(using) if using else model.best
    found = [loss for loss in _causes(model, now) if loss.dollars > NOT_WORTH_SHOWING]
    return tuple(sorted(found, key=lambda loss: loss.dollars, reverse=True))


def _causes(model: ModelEstimate, now: Outcome) -> Iterator[Loss]:
    workload = model.workload
    if now.saving < 0:
        yield Loss(
            f"Writing costs more than reading brings ({now.name})",
            -now.saving,
            f"Leave caching off: {model.rules.off}.",
            -now.saving,
        )
    yield from _unstable_top(model, now)
    yield from _below_minimum(model, now)
    yield from _expired(model, now)
    if workload.parallel > 1 and not now.option.stored:
        yield _changed(
            model,
            now,
            f"{workload.parallel} calls at once each write the same prefix",
            "Send one first and the others once it has begun to answer.",
            send_one_first=True,
        )
    elif not now.option.stored:
        yield _changed(
            model,
            now,
            "Requests come before the write before them can be read",
            "Wait a second or two after the first request of a run.",
            visible_after_seconds=0.0,
        )
    if workload.prefixes > 1:
        yield _changed(
            model,
            now,
            f"{workload.prefixes:,} different prefixes, each with its own cache",
            "Put what all share first and what is personal after it.",
            prefixes=1,
        )
    yield from _events(model, now)
    yield from _too_long(model, now)
    yield from _changing_part_written(model, now)
    yield from _idle_storage(model, now)


def _bill(model: ModelEstimate, now: Outcome, workload: Workload, rules: Rules) -> Decimal:
    return _same_option(model, now, workload, rules).bill.total


def _same_option(model: ModelEstimate, now: Outcome, workload: Workload, rules: Rules) -> Outcome:
    option = rules.option(now.option.id)
    outcomes = (
        outcome_of(model.rates, rules, workload, option, placement)
        for placement in option.placement
    )
    return min(outcomes, key=lambda outcome: outcome.bill.total)


def _changed(model: ModelEstimate, now: Outcome, cause: str, fix: str, **changes: object) -> Loss:
    """A cause whose fix takes it away whole."""
    fixed = _bill(model, now, replace(model.workload, **changes), model.rules)
    lost = now.bill.total - fixed
    return Loss(cause, lost, fix, lost)


def _unstable_top(model: ModelEstimate, now: Outcome) -> Iterator[Loss]:
    if now.option.stored:
        return
    fix = "Move it behind the stable text, or round it to the day."
    if model.workload.unstable_top:
        yield _changed(
            model,
            now,
            "Something at the top of the prompt differs every time (a timestamp, an id)",
            fix,
            unstable_top=False,
        )
        return
    broken = replace(model.workload, unstable_top=True)
    lost = _bill(model, now, broken, model.rules) - now.bill.total
    yield Loss("A timestamp or an id at the top of the prompt", lost, fix, lost, avoided=True)


def _below_minimum(model: ModelEstimate, now: Outcome) -> Iterator[Loss]:
    minimum, workload = model.rules.minimum, model.workload
    if minimum is None or workload.prefix_tokens >= minimum.tokens or not workload.prefix_tokens:
        return
    without_minimum = replace(model.rules, minimum=replace(minimum, tokens=0))
    lost = now.bill.total - _bill(model, now, workload, without_minimum)
    padded = replace(workload, prefix_tokens=minimum.tokens)
    cheapest = min(now.bill.total, bill_without(model.rates, workload).total)
    worth = cheapest - _bill(model, now, padded, model.rules)
    fix = f"Lengthen the stable prefix to {minimum.tokens:,} tokens (examples, documentation)."
    if worth <= 0:
        fix = "Nothing: sending more tokens would cost more than the cache brings."
    yield Loss(
        f"A prefix of {workload.prefix_tokens:,} tokens is below the minimum of "
        f"{minimum.tokens:,}, and no error says so",
        lost,
        fix,
        max(worth, Decimal(0)),
    )


def _expired(model: ModelEstimate, now: Outcome) -> Iterator[Loss]:
    if now.option.stored:
        return
    forever = replace(now.option, seconds=10 * 365 * 86400.0, renewed=True)
    rules = replace(model.rules, options=(forever,))
    lost = now.bill.total - _bill(model, now, model.workload, rules)
    better, pinged = model.outcomes[0], _with_pings(model, now)
    if pinged is not None and pinged < min(better.bill.total, now.bill.total):
        fix = f"Send a ping every {now.option.seconds / 60:g} minutes of the working hours."
        worth = now.bill.total - pinged
    elif better.option.id != now.option.id and better.bill.total < now.bill.total:
        fix, worth = f"Change to {better.name}.", now.bill.total - better.bill.total
    else:
        fix, worth = "Nothing cheaper: this is what gaps longer than the lifetime cost.", Decimal(0)
    yield Loss(f"Entries expire before they are read again ({now.name})", lost, fix, worth)


def _with_pings(model: ModelEstimate, now: Outcome) -> Decimal | None:
    """The bill when every prefix is read once a lifetime so that it never expires by day.

    One write a day and prefix, a ping in every lifetime (an upper bound: busy times need none),
    and each request reads; conversations' own histories expire as before.
    """
    option, workload = now.option, model.workload
    if not option.renewed or option.write == "free" or option.seconds >= 3600 * 12:
        return None
    if workload.unstable_top or workload.batch:
        return None
    stable = model.rules.cacheable(workload.prefix_tokens)
    expected = expected_tokens(workload, model.rules, option, now.placement, prefix_hit=1.0)
    bill = bill_of(model.rates, model.rules, workload, option, expected)
    pings = Decimal(str(workload.hours_per_day * 3600 / option.seconds))
    write = write_price(option)(model.rates, stable)
    per_day = pings * model.rates.cache_read(stable) + write
    days = Decimal(str(workload.days_per_month))
    return bill.total + per_day * days * workload.prefixes * stable / 1_000_000


def _events(model: ModelEstimate, now: Outcome) -> Iterator[Loss]:
    by_kind = {}
    for event in model.workload.events:
        by_kind.setdefault(event.kind, []).append(event)
    fixes = {
        COMPACTION: "Compact less often, or between tasks.",
        "model switch": "Stay with one model through a conversation.",
        "tools changed": "Send the same tools in the same order throughout.",
    }
    for kind, events in by_kind.items():
        kept = tuple(event for event in model.workload.events if event.kind != kind)
        yield _changed(
            model,
            now,
            f"{kind.capitalize()}, {len(events)} in each conversation",
            fixes[kind],
            events=kept,
        )


def _too_long(model: ModelEstimate, now: Outcome) -> Iterator[Loss]:
    shorter = [o for o in model.outcomes if o.option.write == "short"]
    if now.option.write != "long" or not shorter:
        return
    lost = now.bill.total - shorter[0].bill.total
    yield Loss(
        f"Long writes ({now.name}) that are read within minutes or never",
        lost,
        f"Change to {shorter[0].name}.",
        lost,
    )


def _changing_part_written(model: ModelEstimate, now: Outcome) -> Iterator[Loss]:
    """An automatic mark at the latest message also writes what nobody will read again."""
    if now.option.write == "free" or len(now.option.placement) < 2:
        return
    whole = outcome_of(model.rates, model.rules, model.workload, now.option, "conversation")
    if model.workload.calls > 1 or now.placement != "prefix":
        return
    tax = whole.bill.total - now.bill.total
    yield Loss(
        "The cache's end left at the latest message, so that the changing part is written too",
        tax,
        "Mark the end of the stable prefix.",
        tax,
        avoided=True,
    )


def _idle_storage(model: ModelEstimate, now: Outcome) -> Iterator[Loss]:
    if now.option.stored != "always":
        return
    others = [o for o in model.outcomes if o.option.stored == "working hours"]
    if others:
        lost = now.bill.total - others[0].bill.total
        yield Loss("The cache is held while nobody reads it", lost, "Delete it overnight.", lost)


def cliffs(model: ModelEstimate, using: str | None = None) -> tuple[str, ...]:
    """Thresholds within a tenth of where this workload stands, a sentence each."""
    found: list[str] = []
    workload, rules = model.workload, model.rules
    minimum = rules.minimum.tokens if rules.minimum else 0
    if minimum and workload.prefix_tokens < minimum * 1.1:
        side = "below" if workload.prefix_tokens < minimum else "just over"
        found.append(
            f"The stable prefix of {workload.prefix_tokens:,} tokens is {side} the minimum of "
            f"{minimum:,}: under it nothing is cached, and no error says so."
        )
    prompts = conversation(workload).prompt.tolist()
    for start in model.rates.tier_starts():
        if any(0.9 * start <= prompt <= start for prompt in prompts):
            found.append(
                f"A prompt comes within a tenth of {start:,} tokens, above which the whole request "
                "costs more; cached tokens count too."
            )
        elif any(prompt > start for prompt in prompts):
            found.append(
                f"The longest prompt of {max(prompts):,} tokens is over {start:,}: the whole "
                "request is charged at the long-context price."
            )
    if model.best is not None:
        found += _near_break_even(model, model.outcome(using) if using else model.best)
    return tuple(found)


def _near_break_even(model: ModelEstimate, outcome: Outcome) -> Iterator[str]:
    if workload_gap := _schedule_gap(model.workload):
        seconds = outcome.option.seconds
        if 0.9 * seconds <= workload_gap <= 1.1 * seconds:
            yield (
                f"Requests for one prefix come every {workload_gap / 60:.1f} min, close to the "
                f"lifetime of {seconds / 60:.0f} min: a little slower and none would hit."
            )
    rates = model.rates
    if outcome.option.write == "free" or model.workload.calls > 1 or rates.fresh() == 0:
        return
    write = (
        rates.cache_write_long() if outcome.option.write == "long" else rates.cache_write_short()
    )
    fresh = rates.fresh()
    needed = break_even_hit_rate(float(write / fresh), float(rates.cache_read() / fresh))
    if abs(outcome.prefix_hit_rate - needed) < 0.1:
        yield (
            f"The hit rate of {percent(outcome.prefix_hit_rate)} is close to the "
            f"{percent(needed)} below which {outcome.name} loses money."
        )


def _schedule_gap(workload: Workload) -> float | None:
    if workload.arrivals != "schedule":
        return None
    return workload.prefixes / workload.starts_per_second


def worth_sentence(loss: Loss) -> str:
    """One loss as a sentence for the summary."""
    return f"{loss.cause}: {dollars(loss.dollars)} a month. {loss.fix} Worth {dollars(loss.worth)}."
