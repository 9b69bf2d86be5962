"""The tabs that explain the estimate."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime

import pandas as pd
import streamlit as st

from kvcore import units
from kvcore.charts import prompt_caching as charts
from kvcore.costs import losses as loss_module
from kvcore.costs import overlay
from kvcore.costs.curves import options_frame, saving_curves, segments, turns_frame
from kvcore.costs.doubts import Band
from kvcore.costs.estimate import (
    Estimate,
    ModelEstimate,
    Outcome,
    evaluate,
    next_quarter,
    repriced,
)
from kvcore.costs.losses import Loss, losses
from kvcore.costs.pictures import drivers_table, prefix_table, rate_table
from kvcore.costs.prices import ENGINE, PriceError, price_changes
from kvcore.costs.report import segment_sentence, workload_sentences
from kvcore.costs.rules import well_known_facts
from pages.caching.questions import PREFIX, Answers
from pages.common.draw import draw
from pages.common.page import export_row, share_link, sources
from pages.common.text import as_text

MOST_CALLS_DRAWN = 200
STALE_AFTER_DAYS = 60


def cliffs(main: ModelEstimate) -> tuple[str, ...]:
    return loss_module.cliffs(main)


def age(main: ModelEstimate) -> None:
    """Which prices these are, and how old what is known of the providers is."""
    checked = overlay.as_of()
    days = (datetime.now(tz=UTC).date() - checked).days
    line = as_text(
        f"List prices of {main.rates.at:%Y-%m-%d} from {ENGINE}, provider rules checked on "
        f"{checked:%Y-%m-%d}.",
        300,
    )
    if days > STALE_AFTER_DAYS:
        st.warning(f"{line} That is {days:,} days ago: prices may have changed since.")
    else:
        st.caption(line)


def rules_of_thumb(found: Estimate, main: ModelEstimate) -> None:
    """The four well-known facts for each model: where they are true, and what holds where not."""
    others = [model for model in found.models if model.model != main.model]
    lines = [f"- **{as_text(model.model)}**: {_facts(model)}" for model in (main, *others)]
    st.markdown("\n".join(["**The rules of thumb, checked for each model**\n", *lines]))


def _facts(model: ModelEstimate) -> str:
    """The facts that hold, then what this model has in place of those that do not."""
    try:
        facts = well_known_facts(model.rates)
    except PriceError as problem:
        return as_text(problem)
    true = " ".join(fact.claim for fact in facts if fact.holds)
    own = " ".join(dict.fromkeys(fact.sentence for fact in facts if not fact.holds))
    if not own:
        return f"all four hold. {as_text(true, 400)}"
    return " ".join([as_text(true, 400), f"*But here:* {as_text(own, 400)}"]).strip()


def not_priced(found: Estimate) -> None:
    for name, reason in found.unpriced:
        st.warning(f"{as_text(name, 120)} is left out of every sum.")
        st.text(reason)


def _lifetime(main: ModelEstimate) -> Outcome | None:
    """The lifetime to look at: the cheapest, or another one that is chosen."""
    if not main.outcomes:
        st.markdown("This provider sells no cache for this model that can be priced.")
        return None
    names = [outcome.name for outcome in main.outcomes]
    name = st.segmented_control(
        "Lifetime",
        names,
        default=names[0],
        required=True,
        key=f"{PREFIX}lifetime_{'_'.join(sorted(o.option.id for o in main.outcomes))}",
        help="The cheapest comes first.",
    )
    return next((o for o in main.outcomes if o.name == name), main.outcomes[0])


def moves(main: ModelEstimate) -> None:
    """Saving against requests an hour and against the length of the prefix."""
    lifetimes = tuple(outcome.name for outcome in main.outcomes)
    if not lifetimes:
        st.markdown("This provider sells no cache for this model that can be priced.")
        return
    curves = saving_curves(main)
    flips = [segment_sentence(segment) for segment in segments(main, curves)]
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**With requests an hour**")
        draw(
            charts.saving_by_rate,
            rate_table(main, curves),
            alt="Saving as a share of the bill against requests an hour. " + " ".join(flips),
            lifetimes=lifetimes,
        )
        lead = "From its diamond on a lifetime costs less than no caching. The cheapest choice:\n"
        st.markdown("\n".join([lead, *(f"- {as_text(words)}" for words in flips)]))
    with right:
        st.markdown("**With the length of the stable prefix**")
        least = main.rules.minimum
        words = f"minimum {least.tokens:,}" if least else "no minimum known"
        draw(
            charts.saving_by_prefix,
            prefix_table(main),
            alt=f"Saving against the length of the stable prefix; {words} tokens.",
            lifetimes=lifetimes,
            least=words,
        )
        if least is not None:
            unsure = "" if least.certain else ", not certain"
            st.caption(
                as_text(
                    f"Below {least.tokens:,} tokens nothing is cached and no error says so "
                    f"(as of {least.date}{unsure}). {least.note} "
                    f"Sources: {'; '.join(overlay.cited(least.source))}.",
                    600,
                )
            )


def how_sure(band: Band | None) -> None:
    """The band around the saving, and how far each doubtful input moves it."""
    if band is None or not band.drivers:
        st.markdown("This provider sells no cache for this model that can be priced.")
        return
    between = f"Between {units.dollars(band.low)} and {units.dollars(band.high)} saved a month."
    st.markdown(as_text(f"{between} {band.sentence}", 300))
    table = drivers_table(band)
    draw(
        charts.doubts,
        table,
        alt=f"How far each doubtful input moves the saving. {band.sentence}",
        rows=table.num_rows,
    )


def conversation(found: Estimate, main: ModelEstimate, asked: Answers) -> None:
    """One conversation, call by call."""
    outcome = _lifetime(main)
    if outcome is None:
        return
    if main.workload.calls == 1:
        st.caption(
            "The questions above describe single requests; this is what chats of ten turns with "
            "the same lengths would do."
        )
        main = evaluate(main.rates, main.rules, replace(main.workload, turns=10))
        outcome = main.outcome(outcome.option.id)
    frame = turns_frame(main, outcome).head(MOST_CALLS_DRAWN)
    sent = frame.melt(
        "call", ["fresh", "cache_read", "cache_write"], var_name="kind", value_name="tokens"
    )
    sent["kind"] = sent["kind"].map(dict(zip(sent["kind"].unique(), charts.SENT, strict=True)))
    so_far = frame.melt(
        "call", ["total_without", "total_with"], var_name="bill", value_name="dollars"
    )
    so_far["bill"] = so_far["bill"].map(
        {"total_without": charts.WITHOUT, "total_with": charts.WITH}
    )
    last = frame.iloc[-1]
    left, right = st.columns(2, gap="large")
    with left:
        draw(
            charts.tokens_by_call,
            sent,
            alt=f"Tokens of each call: the last sends {last['prompt']:,.0f}, of which "
            f"{last['cache_read']:,.0f} are read from the cache.",
        )
    with right:
        draw(
            charts.dollars_by_call,
            so_far,
            alt=f"Dollars so far: {units.dollars(last['total_without'])} without caching after "
            f"{last['call']:.0f} calls, {units.dollars(last['total_with'])} with it.",
        )
    st.markdown(
        as_text(
            f"After {last['call']:,.0f} calls: {units.dollars(last['total_without'])} without "
            f"caching, {units.dollars(last['total_with'])} with {outcome.name}, "
            f"{last['total_with'] / last['total_without']:.3f} of it. What is sent grows with "
            "every call, because each sends all that came before; what is written grows only by "
            "what is new.",
            500,
        )
    )


def prices(found: Estimate, main: ModelEstimate, asked: Answers) -> None:
    """Every model beside the others, every lifetime, and other days' prices."""
    if len(found.models) > 1:
        st.markdown("**The same traffic on other models**")
        rows = []
        for order, model in enumerate(found.models):
            name = f"{model.model} ({model.provider})"
            rows.append((name, charts.WITHOUT, float(model.without.total), order))
            rows.append((name, charts.WITH, float(model.cheapest_total), order))
        frame = pd.DataFrame(rows, columns=["model", "bill", "dollars", "order"])
        cheapest = found.models[0]
        draw(
            charts.models,
            frame,
            alt=f"The cheapest is {cheapest.model} with {units.dollars(cheapest.cheapest_total)}.",
            rows=len(found.models),
        )
    st.markdown(f"**Every lifetime that {as_text(main.provider)} sells for this model**")
    table = options_frame(main)
    st.dataframe(
        table.assign(
            dollars=table["dollars"].map(units.dollars),
            saving=table["saving"].map(units.dollars),
            saving_share=table["saving_share"].map(units.percent),
            prefix_hit_rate=table["prefix_hit_rate"].map(units.percent),
            read_share=table["read_share"].map(units.percent),
            certain=table["certain"].map({True: "yes", False: "no"}),
        ),
        hide_index=True,
        column_config={
            "dollars": "bill a month",
            "saving": "saved",
            "saving_share": "share of the bill",
            "prefix_hit_rate": "prefix found",
            "read_share": "input read",
            "certain": "rules certain",
        },
        key=f"{PREFIX}options",
    )
    for option, reason in main.rules.unpriced:
        st.caption(as_text(f"Not priced: {option.name}, because {reason}."))
    _other_days(main, asked)
    _price_list(main)


def _other_days(main: ModelEstimate, asked: Answers) -> None:
    """The same traffic next quarter, and at each past or announced change of the list."""
    st.markdown("**The same traffic on other days' prices**")
    day = next_quarter(main.rates.at.date())
    try:
        then = repriced(main, asked.main, day)
        changes = price_changes(asked.main.model, asked.main.provider)
    except PriceError as problem:
        st.text(str(problem))
        return
    best = then.best.bill.total if then.best else then.without.total
    change = then.total_change
    verdict = (
        "the same as now"
        if not change
        else f"{units.dollars(abs(change))} {'more' if change > 0 else 'less'} than now"
    )
    st.markdown(
        as_text(
            f"Next quarter ({day:%Y-%m-%d}): {units.dollars(then.without.total)} without caching, "
            f"{units.dollars(best)} with the cheapest lifetime, {verdict}. {then.reason}",
            400,
        )
    )
    if changes:
        days = ", ".join(f"{change:%Y-%m-%d}" for change in changes)
        st.caption(f"The list price of this model changes on {days}; choose a day above.")


def _price_list(main: ModelEstimate) -> None:
    st.markdown("**Prices used**")
    prompt = max(main.workload.prefix_tokens + main.workload.changing_tokens, 1)
    rates = main.rates
    rows = [("fresh input", rates.fresh(prompt)), ("read", rates.cache_read(prompt))]
    rows.append(("short write", rates.cache_write_short(prompt)))
    try:
        rows.append(("long write", rates.cache_write_long(prompt)))
    except PriceError:
        rows.append(("long write", None))
    rows.append(("answers", rates.output(prompt)))
    if rates.storage is not None:
        rows.append(("held for an hour", rates.storage))
    fresh = rates.fresh(prompt)
    frame = pd.DataFrame(
        [
            (
                name,
                "not known" if price is None else f"${price.normalize():f}",
                f"{float(price / fresh):.4g}×" if price is not None and fresh else "",
            )
            for name, price in rows
        ],
        columns=["a million tokens", "dollars", "of fresh input"],
    )
    st.dataframe(frame, hide_index=True, key=f"{PREFIX}rates")
    st.caption(
        as_text(
            f"{ENGINE}, offline, list of {rates.at:%Y-%m-%d}"
            f"{', contract as typed' if rates.contract else ''}. Provider rules as of "
            f"{overlay.as_of():%Y-%m-%d}.",
            300,
        )
    )
    for note in main.notes:
        st.caption(as_text(note, 400))


def losses_and_fixes(found: Estimate, main: ModelEstimate, asked: Answers) -> None:
    """Dollars by cause, with the fix and what it is worth."""
    outcome = _lifetime(main)
    if outcome is None:
        return
    costs = losses(main, outcome.option.id)
    now = [loss for loss in costs if not loss.avoided]
    avoided = [loss for loss in costs if loss.avoided]
    st.markdown("**What costs money as things stand**, a month")
    if now:
        st.dataframe(_loss_table(now), hide_index=True, key=f"{PREFIX}losses")
    else:
        st.markdown("Nothing: no cause costs more than a cent.")
    if avoided:
        st.markdown("**Mistakes to keep out**, and what each would cost a month")
        st.dataframe(_loss_table(avoided), hide_index=True, key=f"{PREFIX}mistakes")
    st.caption("Each cause is priced by itself. Causes overlap, so the amounts do not add up.")


def _loss_table(costs: list[Loss]) -> pd.DataFrame:
    rows = [
        (loss.cause, units.dollars(loss.dollars), loss.fix, units.dollars(loss.worth))
        for loss in costs
    ]
    return pd.DataFrame(rows, columns=["cause", "costs", "fix", "fix is worth"])


def arithmetic(found: Estimate, main: ModelEstimate, asked: Answers) -> None:
    """The formula with this workload's own numbers."""
    workload, rates = main.workload, main.rates
    prompt = workload.prefix_tokens + workload.changing_tokens
    lines = [
        *workload_sentences(workload),
        "",
        f"requests a month   {workload.requests_per_hour:,g} × {workload.hours_per_day:,g} × "
        f"{workload.days_per_month:,g} = {workload.requests_per_month:,g}",
    ]
    if main.best is not None:
        read, write, long = rates.multipliers()
        multiplier = long if main.best.option.write == "long" else write
        if main.best.option.write == "free":
            multiplier = 1
        hit = main.best.prefix_hit_rate
        lines += [
            f"prefix found       h = {hit:.4f}  ({main.best.name})",
            f"prefix token costs (1 − h)·w + h·r = {1 - hit:.4f} × {float(multiplier):g} + "
            f"{hit:.4f} × {float(read):g} = "
            f"{(1 - hit) * float(multiplier) + hit * float(read):.4f} of fresh input",
        ]
    lines += [
        "",
        *_class_lines("without caching", main.without),
        "",
        *(_class_lines(f"with {main.best.name}", main.best.bill) if main.best else []),
        "",
        f"saved              {units.dollars(main.without.total)} − "
        f"{units.dollars(main.best.bill.total if main.best else main.without.total)} = "
        f"{units.dollars(main.saving)}",
        f"price of a prompt of {prompt:,} tokens: ${rates.fresh(prompt):f} fresh, "
        f"${rates.cache_read(prompt):f} read, ${rates.cache_write_short(prompt):f} short write, "
        f"${rates.output(prompt):f} answers, a million tokens",
    ]
    st.code("\n".join(lines), language=None, wrap_lines=True)
    st.caption(
        "Hit rates: requests at random are a Poisson process, an entry renewed by each hit is "
        "alive when the gap since the last is no longer than its lifetime. Each prefix has its "
        "own share of the traffic, each morning starts cold."
    )


def _class_lines(name: str, bill: object) -> list[str]:
    parts = [
        f"  {key.replace('_', ' '):<16} {units.dollars(value):>14}"
        for key, value in asdict(bill).items()
        if value
    ]
    return [name, *parts, f"  {'total':<16} {units.dollars(bill.total):>14}"]


def sources_and_export(found: Estimate, main: ModelEstimate, asked: Answers) -> None:
    """What the numbers rest on, and the numbers to take along."""
    rules = main.rules
    used = {main.rules.source, *(o.option.source for o in main.outcomes)}
    if rules.minimum:
        used.add(rules.minimum.source)
    named = dict.fromkeys(words for text in sorted(used) for words in overlay.cited(text))
    sources(
        [
            f"Prices: {as_text(ENGINE)}, its bundled list, {main.rates.at:%Y-%m-%d}",
            f"Provider rules: checked {overlay.as_of():%Y-%m-%d}; "
            f"{'certain' if rules.certain else 'uncertain'} for this model",
            *map(as_text, named),
        ]
    )
    for outcome in main.outcomes:
        if outcome.option.note:
            st.caption(as_text(f"{outcome.name}: {outcome.option.note}", 300))
    settings = {
        "day": f"{datetime.now(tz=UTC):%Y-%m-%d}",
        "engine": ENGINE,
        "models": [f"{m.provider}/{m.model}" for m in found.models],
        "workload": asdict(main.workload),
    }
    frames = [
        options_frame(model).assign(provider=model.provider, model=model.model)
        for model in found.models
    ]
    export_row("prompt_caching", pd.concat(frames, ignore_index=True), settings)
    share_link(PREFIX)
