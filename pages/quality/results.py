"""What came out: the answer, the pictures, the tables, the same for a recorded and a live run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import streamlit as st

from kvcore import units
from kvcore.charts import cache_quality as charts
from kvcore.quality import FULL, REFERENCE, hits_by_place
from pages.common.draw import draw
from pages.common.text import as_text

Row = dict[str, Any]

SCORES = pa.schema(
    [
        ("treatment", pa.string()),
        ("kind", pa.string()),
        ("perplexity", pa.float64()),
        ("divergence", pa.float64()),
        ("unchanged", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Outcome:
    """Rows of scores and of recall, and how they were made. `texts`: those with hidden facts."""

    scores: Sequence[Row]
    recall: Sequence[Row]
    made: str
    texts: Sequence[Row] = ()

    def score(self, part: str) -> Row | None:
        """The first score with this in its treatment's name."""
        return next((row for row in self.scores if part in row["treatment"]), None)

    @cached_property
    def numbered(self) -> list[tuple[int, Row]]:
        """The scores with a number each, as the picture and the table beside it use."""
        rows = [row for row in self.scores if row["treatment"] != REFERENCE.name]
        return list(enumerate(rows, start=1))

    @cached_property
    def cells(self) -> list[Row]:
        """Hits by treatment and place."""
        return hits_by_place(self.recall)


def metrics(outcome: Outcome) -> None:
    """The answer: what forgetting and rounding cost, and whether an early fact is still there."""
    columns = st.columns(4)
    full = outcome.score(FULL.name)
    _score_metric(columns[0], "Forget all but a window", outcome.score("Window of "), full)
    _score_metric(columns[1], "Keep the first tokens too", outcome.score(" + window of "), full)
    _score_metric(columns[2], "Round to 8 bits", outcome.score("8 bits (q8_0)"), full)
    _recall_metric(columns[3], outcome)


def _score_metric(
    column: st.delta_generator.DeltaGenerator, label: str, row: Row | None, full: Row | None
) -> None:
    if row is None or full is None:
        column.metric(label, "not measured", help="Not part of this run, or not reached yet.")
        return
    change = row["perplexity"] / full["perplexity"] - 1
    shown = "unchanged" if abs(change) < 0.0005 else f"{change * 100:+.1f} % perplexity"
    column.metric(
        label, shown.replace("-", "−"), help=f"{row['treatment']}, against the full cache."
    )
    column.caption(f"with {units.percent(row['share_of_full'])} of the cache")


def _recall_metric(column: st.delta_generator.DeltaGenerator, outcome: Outcome) -> None:
    cells = {(cell["treatment"], cell["place"]): cell for cell in outcome.cells}
    windows = [name for name, place in cells if name.startswith("Window") and place == "early"]
    kept = cells.get((FULL.name, "early"))
    if not windows or kept is None:
        column.metric("Early facts recalled", "not measured", help="Not reached yet.")
        return
    lost = cells[windows[0], "early"]
    column.metric(
        "Early facts recalled by the window",
        lost["shown"],
        help=f"{windows[0]}; the fact stood about {lost['distance']:.0f} tokens back.",
    )
    column.caption(f"{kept['shown']} with the full cache")


def scores_table(outcome: Outcome) -> pa.Table:
    """What the picture of quality against memory draws."""
    table = pa.Table.from_pylist([row for _, row in outcome.numbered], schema=SCORES)
    mib = [row["cache_bytes"] / units.MIB for _, row in outcome.numbered]
    numbers = [number for number, _ in outcome.numbered]
    return table.append_column("cache_mib", pa.array(mib)).append_column("number", [numbers])


def scores_shown(outcome: Outcome) -> pa.Table:
    """The same in words, a line each."""
    rows = [row for _, row in outcome.numbered]
    return pa.table(
        {
            "": [number for number, _ in outcome.numbered],
            "Cache": [row["treatment"] for row in rows],
            "Size": [units.mib(row["cache_bytes"]) for row in rows],
            "Perplexity": [f"{row['perplexity']:.2f}" for row in rows],
            "Divergence": [f"{row['divergence']:.4f}" for row in rows],
            "Unchanged": [units.percent(row["unchanged"]) for row in rows],
        }
    )


def picture(outcome: Outcome, measure: str) -> None:
    """Quality against memory, and which number is which."""
    if len(outcome.scores) < 2:
        st.caption("The first scores take a few seconds each.")
        return
    draw(charts.quality, scores_table(outcome), alt=takeaway(outcome), measure=measure)
    st.dataframe(scores_shown(outcome), hide_index=True)


def takeaway(outcome: Outcome) -> str:
    full = outcome.score(FULL.name)
    others = [row for row in outcome.scores if row["treatment"] not in (FULL.name, REFERENCE.name)]
    if full is None or not others:
        return "Quality against memory; only the full cache has been measured so far."
    worst = max(others, key=lambda row: row["perplexity"])
    best = min(others, key=lambda row: row["divergence"])
    return (
        f"The full cache has a perplexity of {full['perplexity']:.2f}; {best['treatment']} stays "
        f"closest with {units.percent(best['share_of_full'])} of its bytes, {worst['treatment']} "
        f"is worst at {worst['perplexity']:.2f} with {units.percent(worst['share_of_full'])}."
    )


def recall_map(outcome: Outcome) -> None:
    """Hits by place and treatment, and every question with its answer."""
    if not outcome.recall:
        st.caption("No questions were asked in this run yet; recall comes after the scores.")
        return
    words = recall_words(outcome.cells)
    st.markdown(words)
    left, right_column = st.columns([3, 2], gap="large")
    with left:
        draw(charts.hits, pa.Table.from_pylist(outcome.cells), alt=words)
    with right_column:
        st.dataframe(recall_table(outcome.cells), hide_index=True)
        st.caption(
            "Right means that the first number of the model's own greedy answer is the one hidden."
        )
    with st.expander("Every question and answer"):
        st.dataframe(
            pa.Table.from_pylist(outcome.recall).select(
                ["seed", "place", "distance", "fact", "treatment", "answer", "hit"]
            ),
            hide_index=True,
        )
    if outcome.texts:
        with st.expander("The texts as the model read them"):
            for text in outcome.texts:
                st.caption(f"Seed {text['seed']}")
                st.code(text["text"], language=None, wrap_lines=True, height=260)


def recall_words(cells: Sequence[Row]) -> str:
    """How many questions the full cache answers, and how many windows do about what left them."""
    full = [cell for cell in cells if cell["treatment"] == FULL.name]
    words = f"The full cache answers {_hits(full)} questions right"
    windows = [each for each in cells if "indow" in each["treatment"] and each["place"] != "late"]
    if windows:
        words += f"; windows, with and without sinks, {_hits(windows)} about what left them"
    return f"{words}."


def _hits(cells: Sequence[Row]) -> str:
    return f"{sum(cell['hits'] for cell in cells)} of {sum(cell['asked'] for cell in cells)}"


def recall_table(cells: Sequence[Row]) -> pa.Table:
    """A line for each treatment, a column for each place, in the order they were asked."""
    shown = {(cell["treatment"], cell["place"]): cell["shown"] for cell in cells}
    treatments = list(dict.fromkeys(cell["treatment"] for cell in cells))
    places = list(dict.fromkeys(cell["place"] for cell in cells))
    columns = {place: [shown.get((name, place)) for name in treatments] for place in places}
    return pa.table({"Cache": treatments, **columns})


def gone(outcome: Outcome) -> None:
    """One fact that left the window, and what the model says with each cache."""
    rows = example(outcome.recall)
    if not rows:
        st.caption("No question about an early fact was asked in this run yet.")
        return
    fact, kept = rows[0], next((row for row in rows if row["treatment"] == FULL.name), rows[0])
    st.markdown(
        f"This sentence stood {fact['distance']:,} tokens before the question (text with seed "
        f"{fact['seed']}):"
    )
    st.code(fact["fact"], language=None, wrap_lines=True)
    st.markdown("Asked at the end:")
    st.code(fact["question"], language=None, wrap_lines=True)
    for start in range(0, len(rows), 3):
        for column, row in zip(st.columns(3), rows[start : start + 3], strict=False):
            with column.container(border=True):
                st.caption(f"{as_text(row['treatment'])}, {units.mib(row['cache_bytes'])}")
                st.text(row["answer"] or "(nothing)")
                st.caption("right" if row["hit"] else "wrong")
    lost = [row for row in rows if row["kind"] == "forgets" and not row["hit"]]
    if kept["hit"] and lost:
        st.markdown(
            "What left a window is not compressed or harder to find: its keys and values are no "
            "longer there, and the model answers with something that sounds right. Rounding keeps "
            "every position, only less exactly."
        )


def example(recall: Sequence[Row]) -> list[Row]:
    """Questions about the first early fact that a forgetful cache lost and the full one kept."""
    early = [row for row in recall if row["place"] == "early"]
    for seed in dict.fromkeys(row["seed"] for row in early):
        rows = [row for row in early if row["seed"] == seed]
        kept = any(row["treatment"] == FULL.name and row["hit"] for row in rows)
        if kept and any(row["kind"] == "forgets" and not row["hit"] for row in rows):
            return rows
    return [row for row in early if row["seed"] == early[0]["seed"]]
