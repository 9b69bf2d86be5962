"""One page that can be forwarded: the estimate in plain words, as Markdown or as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from html import escape

from kvcore.costs.curves import HIGHEST_RATE, LOWEST_RATE, NO_CACHING, Segment, segments
from kvcore.costs.doubts import Band, uncertainty_band
from kvcore.costs.estimate import Estimate, ModelEstimate, Repriced
from kvcore.costs.losses import Loss, cliffs, losses, worth_sentence
from kvcore.costs.overlay import as_of, sources
from kvcore.costs.prices import ENGINE
from kvcore.costs.workload import Workload
from kvcore.units import count, dollars, percent, sig3


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | Paragraph | Bullets | Table


def summary_blocks(
    estimate: Estimate,
    *,
    about: ModelEstimate | None = None,
    later: Repriced | None = None,
    title: str = "Prompt caching",
) -> tuple[Block, ...]:
    """The page as blocks: the answer first, then what it rests on.

    `about` is the model the page speaks of, the cheapest if None; the others are set beside it.
    """
    return tuple(_blocks(estimate, about or estimate.cheapest, later, title))


def _blocks(
    estimate: Estimate, model: ModelEstimate | None, later: Repriced | None, title: str
) -> Iterator[Block]:
    yield Heading(title, 1)
    yield Paragraph(model.sentence if model else estimate.sentence)
    if model is not None:
        yield from _model_blocks(estimate, model, later)
    if estimate.unpriced:
        yield Heading("Could not be priced")
        yield Bullets(tuple(f"{name}: {reason}" for name, reason in estimate.unpriced))
    yield from _sources(model)


def _model_blocks(
    estimate: Estimate, model: ModelEstimate, later: Repriced | None
) -> Iterator[Block]:
    total = model.without.total
    untouchable = float(model.untouchable / total) if total else 0.0
    yield Paragraph(
        f"Without caching the month costs {dollars(total)}. Caching cannot touch "
        f"{dollars(model.untouchable)} of it ({percent(untouchable)}): the answers and what "
        "changes in every request."
    )
    band = uncertainty_band(model)
    if band is not None:
        yield Paragraph(band_sentence(band))
    yield Heading("The choices")
    yield _choices(estimate)
    yield Heading("Where the answer flips")
    yield Bullets(tuple(segment_sentence(s) for s in segments(model)))
    yield from _loss_blocks(losses(model))
    near = cliffs(model)
    if near:
        yield Heading("Close to a threshold")
        yield Bullets(near)
    if later is not None:
        yield Heading(f"The same traffic on {later.day:%Y-%m-%d}")
        yield Paragraph(later_sentence(later))
    yield Heading("The traffic this is for")
    yield Bullets(tuple(workload_sentences(model.workload)))
    if model.notes:
        yield Heading("Notes")
        yield Bullets(model.notes)


def band_sentence(band: Band) -> str:
    """The uncertainty band in words, no digit more than it can bear."""
    low, high = _signed(band.low), _signed(band.high)
    return f"Likely between {low} and {high} a month. {band.sentence}"


def _signed(amount: Decimal) -> str:
    rounded = _two_digits(abs(amount))
    return f"{rounded} saved" if amount >= 0 else f"{rounded} lost"


def _two_digits(amount: Decimal) -> str:
    if amount == 0:
        return "$0"
    rounded = amount.quantize(Decimal(1).scaleb(max(amount.adjusted() - 1, -2)))
    return f"${rounded:,.0f}" if rounded >= 10 else f"${rounded:,.2f}"


def segment_sentence(segment: Segment) -> str:
    """One segment in words: from which to which request rate which option is the cheapest."""
    name = "caching loses, leave it off" if segment.name == NO_CACHING else segment.name
    above, below = segment.from_rate > LOWEST_RATE * 1.01, segment.to_rate < HIGHEST_RATE * 0.99
    if above and below:
        return f"{sig3(segment.from_rate)} to {sig3(segment.to_rate)} requests an hour: {name}."
    if above:
        return f"Above {sig3(segment.from_rate)} requests an hour: {name}."
    if below:
        return f"Below {sig3(segment.to_rate)} requests an hour: {name}."
    return f"At any rate: {name}."


def later_sentence(later: Repriced) -> str:
    """The same traffic on other prices, in words."""
    if later.total_change == 0:
        return "Costs the same: no change of the list price is known until then."
    direction = "more" if later.total_change > 0 else "less"
    change = dollars(abs(later.total_change))
    return f"Costs {change} {direction} a month, with caching. {later.reason}".strip()


def workload_sentences(workload: Workload) -> Iterator[str]:
    """The answers the estimate rests on, one sentence each."""
    yield (
        f"{count(workload.prefix_tokens)} stable tokens, {count(workload.changing_tokens)} that "
        f"change, {count(workload.answer_tokens)} in the answer."
    )
    yield (
        f"{sig3(workload.requests_per_hour)} requests an hour, {workload.hours_per_day:g} hours a "
        f"day, {workload.days_per_month:g} days a month: {count(workload.requests_per_month)} a "
        "month."
    )
    if workload.prefixes > 1:
        spread = "unevenly used" if workload.uneven else "evenly used"
        yield f"{count(workload.prefixes)} different prefixes, {spread}."
    if workload.calls > 1:
        yield (
            f"Conversations of {workload.turns} turns with {workload.calls_per_turn} calls each, "
            f"{workload.seconds_between_turns:g} s between turns."
        )
    if workload.parallel > 1:
        yield f"{workload.parallel} at once with the same prefix."
    arrivals = {
        "poisson": "at random",
        "schedule": "on a fixed schedule",
        "recorded": "as recorded",
    }
    yield f"Requests arrive {arrivals[workload.arrivals]}."


def _choices(estimate: Estimate) -> Table:
    rows = []
    for model in estimate.models:
        rows.append((model.model, NO_CACHING, dollars(model.without.total), "", ""))
        rows += [
            (
                model.model,
                outcome.name + ("" if outcome.option.certain else " (not certain)"),
                dollars(outcome.bill.total),
                dollars(outcome.saving),
                percent(outcome.read_share),
            )
            for outcome in model.outcomes
        ]
    columns = ("Model", "Lifetime", "A month", "Saved", "Input read from the cache")
    return Table(columns, tuple(rows))


def _loss_blocks(found: Sequence[Loss]) -> Iterator[Block]:
    lost = tuple(worth_sentence(loss) for loss in found if not loss.avoided)
    avoided = tuple(
        f"{loss.cause}: {dollars(loss.dollars)} a month." for loss in found if loss.avoided
    )
    if lost:
        yield Heading("What costs money, and the fix")
        yield Paragraph("Each by itself; causes overlap, so the amounts do not add up.")
        yield Bullets(lost)
    if avoided:
        yield Heading("Mistakes that would cost")
        yield Bullets(avoided)


def _sources(model: ModelEstimate | None) -> Iterator[Block]:
    yield Heading("Where the numbers come from")
    items = [f"Prices: {ENGINE}, offline; provider rules checked on {as_of():%Y-%m-%d}."]
    if model is not None:
        items.append(f"Prices of {model.rates.at:%Y-%m-%d} for {model.model} at {model.provider}.")
        codes = re.split(r", ?", model.rules.source)
        items += [f"{code}: {sources()[code]}." for code in codes if code in sources()]
        uncertain = [o for o in model.rules.options if not o.certain]
        items += [f"Not certain, {option.name}: {option.note}" for option in uncertain]
        minimum = model.rules.minimum
        if minimum is not None and not minimum.certain:
            items.append(f"Not certain, the minimum of {minimum.tokens:,} tokens: {minimum.note}")
    yield Bullets(tuple(items))


def summary_markdown(estimate: Estimate, **options: object) -> str:
    """The page as Markdown; text from outside cannot turn into markup."""
    return "\n\n".join(_markdown(b) for b in summary_blocks(estimate, **options)) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_plain(text)}"
        case Paragraph(text):
            return _plain(text)
        case Bullets(items):
            return "\n".join(f"- {_plain(item)}" for item in items)
        case Table(columns, rows):
            lines = [columns, ("---",) * len(columns), *rows]
            return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", " ".join(text.split()))


def _cell(text: str) -> str:
    return text if text == "---" else _plain(text)


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse }}
th, td {{ text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def summary_html(estimate: Estimate, **options: object) -> str:
    """The page as HTML that stands alone; all text is escaped."""
    blocks = summary_blocks(estimate, **options)
    title = next(block.text for block in blocks if isinstance(block, Heading))
    return _PAGE.format(title=escape(title), body="\n".join(map(_html, blocks)))


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
        case Table(columns, rows):
            head = "".join(f"<th>{escape(column)}</th>" for column in columns)
            body = "".join(
                "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
                for row in rows
            )
            return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
