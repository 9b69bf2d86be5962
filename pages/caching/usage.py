"""Your own usage: an uploaded export, priced, and what its cache really did."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import pandas as pd
import streamlit as st

from kvcore import units
from kvcore.charts import prompt_caching as charts
from kvcore.costs.exports import Format, Usage, read_usage
from kvcore.costs.prices import Contract
from kvcore.costs.summaries import (
    InvoiceGap,
    Summary,
    other_lifetimes,
    recorded_arrivals,
    summarise,
)
from pages.caching.questions import KEPT, PREFIX, Answers
from pages.common.draw import draw
from pages.common.page import export_row, refuse
from pages.common.text import as_text

MODELS_DRAWN = 5
REFUSED_SHOWN = 200
FORGOTTEN = f"{PREFIX}forgotten"


@dataclass
class Kept:
    """What this session keeps of an upload: counts and dollars, never the file."""

    file_id: str
    name: str
    usage: Usage
    summary: Summary | None
    contract: Contract | None
    arrivals: tuple[tuple[float, ...], tuple[str, ...]] = ((), ())
    lifetimes: pd.DataFrame | None = None


def show(asked: Answers | None) -> None:
    st.markdown(
        "Upload an export of usage. It is read in this session, nothing is written to disk or "
        "sent anywhere, and keys and messages in it are neither shown nor kept."
    )
    formats = ", ".join(form for form in Format if form != Format.UNKNOWN)
    file = st.file_uploader(
        "Usage export",
        key=_uploader(),
        help=f"CSV, TSV, JSON or JSONL up to 200 MB. Known: {formats}.",
    )
    contract = asked.main.contract if asked else None
    kept: Kept | None = st.session_state.get(KEPT)
    if file is not None and (
        kept is None or kept.file_id != file.file_id or kept.contract != contract
    ):
        with st.spinner("Reading and pricing the export", show_time=True):
            kept = _read(file.file_id, file.name, file.getvalue(), contract)
        st.session_state[KEPT] = kept
        st.rerun()
    if kept is None:
        st.caption(f"Known formats: {formats}.")
        return
    _show(kept)


def _uploader() -> str:
    """The uploader's key: a new one after each file forgotten, so that the widget lets go too."""
    times = st.session_state.get(FORGOTTEN, 0)
    return f"{PREFIX}upload_{times}" if times else f"{PREFIX}upload"


def _read(file_id: str, name: str, data: bytes, contract: Contract | None) -> Kept:
    usage = read_usage(data, name, contract=contract)
    tokens = not usage.frame.empty and not usage.is_cost
    summary = summarise(usage.frame) if tokens else None
    arrivals = recorded_arrivals(usage.frame) if tokens else ((), ())
    return Kept(file_id, name, usage, summary, contract, arrivals)


def _show(kept: Kept) -> None:
    usage = kept.usage
    row = st.container(horizontal=True, vertical_alignment="center")
    row.text(f"{kept.name}: {usage.format}, {len(usage.frame):,} rows")
    if row.button("Forget this file", key=f"{PREFIX}forget"):
        del st.session_state[KEPT]
        st.session_state[FORGOTTEN] = st.session_state.get(FORGOTTEN, 0) + 1
        st.rerun()
    if usage.format == Format.UNKNOWN:
        refuse(usage.rejected[0][1])
        return
    _refused(usage)
    if usage.is_cost:
        st.metric("In this export", units.dollars(usage.reported))
    elif kept.summary is not None:
        _answer(usage)
        _invoice(usage)
        _tables(usage, kept.summary)
        _lifetimes(kept)
        if len(kept.arrivals[0]) > 1:
            st.caption(
                f"The estimate above can replay the {len(kept.arrivals[0]):,} latest arrivals of "
                "this file: choose “As in the uploaded export” under Pauses, bursts and accidents."
            )
        export_row(
            "prompt_caching_usage",
            kept.summary.by_model,
            {"format": str(usage.format), "rows": len(usage.frame), "notes": usage.notes},
        )
    for note in usage.notes:
        st.caption(as_text(note, 400))


def _refused(usage: Usage) -> None:
    if usage.duplicates:
        repeats = "line repeats" if usage.duplicates == 1 else "lines repeat"
        st.caption(f"{usage.duplicates:,} {repeats} usage that was counted already.")
    if not usage.rejected:
        return
    st.warning(
        f"Lines that could not be counted and are in no sum: {len(usage.rejected):,}. "
        "The rest is counted."
    )
    with st.expander("Which lines, and why"):
        st.dataframe(
            pd.DataFrame(usage.rejected[:REFUSED_SHOWN], columns=["line", "reason"]),
            hide_index=True,
            key=f"{PREFIX}refused",
        )
        if len(usage.rejected) > REFUSED_SHOWN:
            st.caption(f"The first {REFUSED_SHOWN:,} of {len(usage.rejected):,}.")


def _answer(usage: Usage) -> None:
    total = usage.total
    share = units.percent(abs(float(total.saved / total.uncached))) if total.uncached else "0 %"
    sentence = (
        f"Caching saved {units.dollars(total.saved)}, {share} of what these requests would have "
        "cost without it."
        if total.saved >= 0
        else f"Caching cost {units.dollars(-total.saved)} more than no caching, {share} of what "
        "these requests would have cost without it."
    )
    st.subheader(as_text(sentence, 300), anchor=False)
    columns = st.columns(4)
    columns[0].metric("Paid, by the list", units.dollars(total.paid))
    columns[1].metric("Without caching", units.dollars(total.uncached))
    rate = total.hit_rate
    columns[2].metric(
        "Input read from the cache",
        "no input" if rate is None else units.percent(rate),
        help="Cached tokens over all input tokens, writes included.",
    )
    columns[3].metric("Input tokens", units.count(total.input_tokens))
    for entry in usage.unpriced:
        st.warning(
            f"{as_text(entry.model or 'Rows without a model', 120)}: {entry.rows:,} rows with "
            f"{entry.tokens:,} tokens have no price and are in no sum of money."
        )
        st.text(entry.reason)


def _invoice(usage: Usage) -> None:
    typed = st.text_input(
        "Total of the invoice for this period (dollars)",
        key=f"{PREFIX}invoice",
        max_chars=20,
        persist_state="session",
        placeholder="for example 1250.40",
        help="To see how far the invoice is from the tokens in the file. Not part of the link.",
    )
    invoices = []
    if typed.strip():
        try:
            amount = Decimal(typed.replace("$", "").replace(",", "").strip())
        except InvalidOperation:
            amount = Decimal("NaN")
        if not amount.is_finite() or amount <= 0:
            refuse("The invoice total must be dollars such as 1250.40.", typed)
        else:
            invoices.append(("the invoice", amount))
    if usage.reported:
        invoices.append(("the export's own account", usage.reported))
    for name, amount in invoices:
        gap = InvoiceGap(usage.total.paid, amount)
        more = "more" if gap.dollars >= 0 else "less"
        st.markdown(
            as_text(
                f"Against {name} of {units.dollars(amount)}: it has "
                f"{units.dollars(abs(gap.dollars))} {more} than these tokens cost by the list, "
                f"{units.percent(abs(gap.share))} of it.",
                300,
            )
        )


def _tables(usage: Usage, summary: Summary) -> None:
    table = summary.by_model
    st.dataframe(
        pd.DataFrame(
            {
                "provider": table["provider"],
                "model": table["model"],
                "rows": table["rows"],
                "input tokens": table["input_tokens"].map(units.count),
                "read from the cache": table["hit_rate"].map(_percent),
                "paid": table["paid"].map(units.dollars),
                "without caching": table["uncached"].map(units.dollars),
                "saved": table["saved"].map(units.dollars),
            }
        ),
        hide_index=True,
        key=f"{PREFIX}by_model",
    )
    by = "hour" if len(summary.by_hour) else "day"
    frame = summary.by_hour if by == "hour" else summary.by_day
    if frame.empty:
        return
    models = tuple(frame.groupby("model")["paid"].sum().nlargest(MODELS_DRAWN).index)
    draw(
        charts.hit_rate,
        frame[frame["model"].isin(models)][[by, "model", "hit_rate", "input_tokens", "paid"]],
        alt=f"The share of the input that was read from the cache, by model and {by}.",
        series=models,
        by=by,
    )


def _percent(share: float) -> str:
    return "no input" if pd.isna(share) else units.percent(share)


def _lifetimes(kept: Kept) -> None:
    if kept.lifetimes is None:
        found = other_lifetimes(kept.usage.frame, contract=kept.contract)
        kept.lifetimes = pd.DataFrame(
            [(o.name, float(o.paid), o.hit_rate, order) for order, o in enumerate(found)],
            columns=["lifetime", "paid", "hit_rate", "order"],
        )
    frame = kept.lifetimes
    if len(frame) < 3:
        st.caption(
            "Another lifetime cannot be priced from this file: it names no cache writes of a model "
            "whose lifetime can be chosen."
        )
        return
    cheapest = frame.loc[frame["paid"].idxmin()]
    st.markdown("**What another lifetime would have cost**")
    draw(
        charts.lifetimes,
        frame[["lifetime", "paid", "order"]],
        alt=f"The cheapest is {cheapest['lifetime']} at {units.dollars(cheapest['paid'])}.",
        rows=len(frame),
    )
    if kept.usage.frame["requests"].eq(1).all() and kept.usage.frame["at"].notna().all():
        st.caption(
            "Requests of one session, or of one model where there are no sessions, are taken to "
            "continue one another: a request reads what the one before it left in the cache, if "
            "that was no longer ago than the lifetime."
        )
    else:
        st.caption(
            "Rows that sum many requests, or have no time, keep their reads; only the price of "
            "their writes changes."
        )
