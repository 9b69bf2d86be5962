"""One decode step of attention, timed: does the saving in bytes become a saving in time?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd
import streamlit as st

from kvcore import recordings, units
from kvcore.attention import (
    FORMULATIONS,
    PACKED,
    Sample,
    Shape,
    Sharing,
    Variant,
    check_room,
    explain,
    measure,
    thread_choices,
    timings,
    variants,
)
from kvcore.charts import gqa as charts
from kvcore.gqa import TIMED_CONTEXTS, Setting, timing_rows
from kvcore.jobs import Job, State, Work
from pages.common import query
from pages.common.draw import draw
from pages.common.jobs import Slot, progress, session_job
from pages.common.page import export_row, refuse
from pages.common.text import as_text

BATCHES = (1, 2, 4, 8)
ROUNDS = (5, 9, 15)
LIMITS_PER_ROUND = 2
NOISE = 1.1

RULES = {
    "gqa_batch": query.Choice(tuple(str(batch) for batch in BATCHES)),
    "gqa_longest": query.Named({context: f"{context:,}" for context in TIMED_CONTEXTS}),
    "gqa_rounds": query.Choice(tuple(str(rounds) for rounds in ROUNDS)),
    "gqa_threads": query.Choice(tuple(str(threads) for threads in thread_choices())),
}


class Measured(NamedTuple):
    shape: Shape
    threads: int
    sample: Sample


def body(setting: Setting) -> None:
    st.markdown(
        "At each new token every query head reads the whole cache. Sharing divides the bytes; "
        "whether it divides the time depends on how the attention is written. Four ways that "
        "give the same numbers, timed in turn in the same process:"
    )
    slot = session_job("gqa_timing")
    _start_and_stop(setting, slot)
    if slot.active:
        st.fragment(_watch, run_every=0.5)()
        return
    _result(slot)


def _start_and_stop(setting: Setting, slot: Slot) -> None:
    row = st.columns(4)
    batch = row[0].selectbox(
        "Requests in the batch",
        BATCHES,
        BATCHES.index(4),
        key="gqa_batch",
        bind="query-params",
        help="Each has a cache of its own; heads and dimension are those of the sliders above.",
    )
    longest = row[1].selectbox(
        "Longest context",
        TIMED_CONTEXTS,
        key="gqa_longest",
        bind="query-params",
        format_func=lambda context: f"{context:,}",
        help="Measured from 1,024 tokens up to this, doubling.",
    )
    rounds = row[2].selectbox(
        "Rounds",
        ROUNDS,
        key="gqa_rounds",
        bind="query-params",
        help="In each round every variant runs once, in rotating order; medians are shown.",
    )
    threads = row[3].selectbox(
        "Threads",
        thread_choices(),
        key="gqa_threads",
        bind="query-params",
        help="One is timed by the processor time it gets, so that neighbours disturb it least; two "
        "by the wall clock.",
    )
    heads = setting.sharing.num_query_heads
    chosen = variants(heads, sorted({setting.sharing.num_kv_heads, 1}, reverse=True))
    shapes = [
        Shape(batch, heads, setting.head_dim, context)
        for context in TIMED_CONTEXTS
        if context <= longest
    ]
    buttons = st.container(horizontal=True, vertical_alignment="center")
    if buttons.button(
        "Measure here", type="primary", key="gqa_measure", disabled=slot.active or heads == 1
    ):
        _start(slot, shapes, chosen, rounds, threads)
    if buttons.button("Stop", key="gqa_stop", disabled=not slot.active):
        slot.stop()
        slot.job.join(5)
        st.rerun()
    finished = slot.job is not None and not slot.active
    if finished and buttons.button("Back to the recorded run", key="gqa_recorded"):
        slot.job = None
        st.rerun()
    buttons.caption(
        f"Up to {units.gib(max(shape.cache_bytes(heads) for shape in shapes))} of keys and values "
        "as MHA, and as much again for the copy."
    )


def _start(
    slot: Slot, shapes: list[Shape], chosen: list[Variant], rounds: int, threads: int
) -> None:
    try:
        check_room(shapes[-1], chosen)
    except ValueError as error:
        refuse(str(error))
        return
    slot.start(timing_work(shapes, chosen, rounds, threads))
    st.rerun()


def timing_work(shapes: list[Shape], chosen: list[Variant], rounds: int, threads: int) -> Work:
    """One sample a step, context after context."""

    def work(job: Job) -> Iterator[Measured]:
        job.total = len(shapes) * rounds * (len(chosen) + LIMITS_PER_ROUND)
        for shape in shapes:
            for sample in measure(shape, chosen, rounds, threads):
                yield Measured(shape, threads, sample)

    return work


def _watch() -> None:
    slot = session_job("gqa_timing")
    progress(slot.job)
    rows = live_rows(slot.job)
    if rows:
        _draw(pd.DataFrame(rows))
    if not slot.active:
        st.rerun()


def live_rows(job: Job) -> list[dict[str, object]]:
    """What the samples so far come to, context by context."""
    rows = []
    results: list[Measured] = list(job.results)
    for shape in dict.fromkeys(result.shape for result in results):
        samples = [result.sample for result in results if result.shape == shape]
        rows += timing_rows(shape, timings(samples), results[0].threads)
    return rows


def _result(slot: Slot) -> None:
    if slot.job is not None:
        if slot.job.state is State.FAILED:
            progress(slot.job)
        rows = live_rows(slot.job)
        if rows:
            stopped = slot.job.state is State.STOPPED
            st.caption("Stopped; this is what was measured until then." if stopped else _here(rows))
            _draw(pd.DataFrame(rows))
            _export(rows, "measured here")
            return
        st.caption("Stopped before a round was complete; the recorded run is shown instead.")
    recording = recordings.read("gqa")
    st.caption(str(recording.label))
    rows = recording.data["timing"]
    _draw(pd.DataFrame(rows))
    _export(rows, str(recording.label))


def _here(rows: list[dict[str, object]]) -> str:
    threads = rows[0]["threads"]
    plural = "thread" if threads == 1 else "threads"
    return f"Measured here and now: {as_text(recordings.processor_name())}, {threads} {plural}."


def _draw(frame: pd.DataFrame) -> None:
    sharings = [name for name in dict.fromkeys(frame["sharing"]) if name != "MHA"]
    name = sharings[0]
    if len(sharings) > 1:
        name = st.segmented_control(
            "Against MHA",
            sharings,
            default=sharings[0],
            required=True,
            key="gqa_against",
            help="Which way to share the picture shows.",
        )
    shown = frame[frame["sharing"] == name]
    st.markdown(takeaway(shown))
    draw(
        charts.speed_up,
        frame,
        alt=takeaway(shown),
        sharing=name,
        formulations=tuple(FORMULATIONS),
    )
    if (frame["speed_up"] > NOISE * frame["ideal"]).any():
        st.caption(
            "Some ratios exceed what the bytes allow: the machine was busy with something else, or "
            "the smaller cache fitted into the processor's own."
        )
    st.dataframe(
        _table(frame),
        hide_index=True,
        column_config={
            "Median ms": st.column_config.NumberColumn(
                help="One decode step in one layer; " + frame["clock"].iloc[0] + "."
            ),
            "Share of bandwidth": st.column_config.NumberColumn(
                format="percent",
                help="Bytes it must read, over the median time, over what summing a block of "
                "memory reached in the same rounds. Above 100 %: the processor's own cache "
                "served it.",
            ),
            "Share of arithmetic": st.column_config.NumberColumn(
                format="percent",
                help="Against a large matrix product in the same rounds.",
            ),
        },
    )


def takeaway(shown: pd.DataFrame) -> str:
    """The longest context of one way to share, in a sentence."""
    last = shown[shown["context"] == shown["context"].max()].set_index("formulation")
    packed = last.loc[PACKED]
    words = [
        f"{_ratio(last.loc[name, 'speed_up'])} with {name}"
        for name in FORMULATIONS
        if name != PACKED
    ]
    return (
        f"At {units.count(packed['context'])} tokens {packed['sharing']} reads "
        f"{packed['ideal']:.0f} times fewer bytes than MHA and, with its queries packed as rows, "
        f"runs {units.times(packed['speed_up'])} as fast; {', '.join(words)}."
    )


def _why(row: dict[str, object]) -> str:
    return explain(
        row["query_heads"] // row["kv_heads"],
        row["formulation"],
        row["share_of_bandwidth"],
        row["share_of_arithmetic"],
    )


def _ratio(ratio: float) -> str:
    return units.times(ratio) if ratio >= 1 else f"{ratio:.2f}×"


def _table(frame: pd.DataFrame) -> pd.DataFrame:
    written = frame["formulation"].where(frame["sharing"] != "MHA", "SDPA")
    return pd.DataFrame(
        {
            "Context": frame["context"],
            "Sharing": frame["sharing"],
            "Written as": written,
            "Median ms": frame["median_ms"].round(2),
            "Faster than MHA": frame["speed_up"].map(_ratio),
            "Why": [_why(row) for row in frame.to_dict("records")],
            "Ideal": frame["ideal"].map(units.times),
            "Must read": frame["bytes_read"].map(units.mib),
            "Goes through": frame["bytes_gone_through"].map(units.mib),
            "Share of bandwidth": frame["share_of_bandwidth"].round(3),
            "Share of arithmetic": frame["share_of_arithmetic"].round(3),
        }
    )


def _export(rows: list[dict[str, object]], how: str) -> None:
    export_row("gqa_timing", pd.DataFrame(rows), {"measured": how})


def best_measured(sharing: Sharing) -> tuple[float, float, int] | None:
    """(times faster, ideal, context) of the recorded run for this sharing, if it was recorded."""
    rows = [
        row
        for row in recordings.read("gqa").data["timing"]
        if row["sharing"] == sharing.name
        and row["query_heads"] == sharing.num_query_heads
        and row["formulation"] == PACKED
    ]
    if not rows:
        return None
    last = max(rows, key=lambda row: row["context"])
    return last["speed_up"], last["ideal"], last["context"]
