"""Your own usage: an uploaded export, priced, and what its cache really did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import pandas as pd
import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from kvcore import units
from kvcore.charts import prompt_caching as charts
from kvcore.costs.exports import Format, Usage, steps_expected, usage_steps
from kvcore.costs.prices import Contract
from kvcore.costs.summaries import (
    InvoiceGap,
    Summary,
    other_lifetimes,
    recorded_arrivals,
    summarise,
)
from kvcore.jobs import Job, State, Work
from pages.caching.questions import KEPT, PREFIX, Answers
from pages.common.draw import draw
from pages.common.jobs import Slot, progress, session_job
from pages.common.page import export_row, refuse
from pages.common.text import as_text

MODELS_DRAWN = 5
REFUSED_SHOWN = 200
FORGOTTEN = f"{PREFIX}forgotten"
READING = f"{PREFIX}reading"
AT_ONCE_BYTES = 3 * 10**6
"""Files up to this size are read within about a second: no job to watch."""


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
    if file is None:
        session_job(READING).stop()
    elif not _is_kept(file, contract):
        _read(file, contract)
    kept: Kept | None = st.session_state.get(KEPT)
    if kept is None:
        st.caption(f"Known formats: {formats}.")
        return
    _show(kept)


def _is_kept(file: UploadedFile, contract: Contract | None) -> bool:
    kept: Kept | None = st.session_state.get(KEPT)
    return kept is not None and kept.file_id == file.file_id and kept.contract == contract


def _read(file: UploadedFile, contract: Contract | None) -> None:
    """Read a file: a small one at once, a large one as a job that can be watched and stopped.

    Returns only where an earlier file is to stay on show.
    """
    slot, about = session_job(READING), (file.file_id, contract)
    if slot.job is None or slot.job.about != about:
        slot.start(reading(file, contract), queue=None, about=about)
        if file.size <= AT_ONCE_BYTES:
            slot.job.join()
    job = slot.job
    if job.active:
        st.button("Stop reading", on_click=slot.stop, key=f"{PREFIX}stop")
        st.fragment(_follow, run_every=0.5)(job)
        st.stop()
    if job.state is State.DONE:
        st.session_state[KEPT] = job.results[-1]
        slot.job = None
        st.rerun()
    if job.error is not None:
        st.error("The file could not be read to its end, and nothing of it is counted.")
        st.text(str(job.error))
    else:
        st.caption("Stopped: nothing of this file is counted.")
    st.button("Read it again", on_click=_forget_job, args=(slot,), key=f"{PREFIX}again")


def _forget_job(slot: Slot) -> None:
    slot.job = None


def _follow(job: Job) -> None:
    if not job.active:
        st.rerun()
    rows = job.results[-1] if job.results else 0
    st.caption(f"{rows:,} rows read; keys and messages among them are not kept.")
    progress(job)


def reading(file: UploadedFile, contract: Contract | None) -> Work:
    """Rows read so far, step by step, and last what is kept of the file; not the file itself."""
    held = [file]

    def work(job: Job) -> Iterator[int | Kept]:
        upload = held.pop()
        data = upload.getvalue()
        job.total = steps_expected(data)
        for step in usage_steps(data, upload.name, contract=contract):
            if isinstance(step, int):
                yield step
            else:
                yield _kept(upload.file_id, upload.name, step, contract)

    return work


def _uploader() -> str:
    """The uploader's key: a new one after each file forgotten, so that the widget lets go too."""
    times = st.session_state.get(FORGOTTEN, 0)
    return f"{PREFIX}upload_{times}" if times else f"{PREFIX}upload"


def _kept(file_id: str, name: str, usage: Usage, contract: Contract | None) -> Kept:
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
