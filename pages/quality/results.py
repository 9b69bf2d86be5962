"""What came out: the answer, the pictures, the tables, the same for a recorded and a live run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from kvcore import units
from kvcore.charts import cache_quality as charts
from kvcore.quality import FULL, REFERENCE, hits_by_place
from pages.common.draw import draw
from pages.common.text import as_text

Row = dict[str, Any]


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
    cells = {(cell["treatment"], cell["place"]): cell for cell in hits_by_place(outcome.recall)}
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


def scores_frame(outcome: Outcome) -> pd.DataFrame:
    """The scores with a number each, as the picture and the table beside it use."""
    frame = pd.DataFrame(outcome.scores)
    frame = frame[frame["treatment"] != REFERENCE.name].reset_index(drop=True)
    frame.insert(0, "number", range(1, len(frame) + 1))
    frame["cache_mib"] = frame["cache_bytes"] / units.MIB
    return frame


def picture(outcome: Outcome, measure: str) -> None:
    """Quality against memory, and which number is which."""
    if len(outcome.scores) < 2:
        st.caption("The first scores take a few seconds each.")
        return
    frame = scores_frame(outcome)
    draw(
        charts.quality,
        frame[
            ["number", "treatment", "kind", "cache_mib", "perplexity", "divergence", "unchanged"]
        ],
        alt=takeaway(outcome),
        measure=measure,
    )
    st.dataframe(
        {
            "": frame["number"],
            "Cache": frame["treatment"],
            "Size": frame["cache_bytes"].map(units.mib),
            "Perplexity": frame["perplexity"].map(lambda value: f"{value:.2f}"),
            "Divergence": frame["divergence"].map(lambda value: f"{value:.4f}"),
            "Unchanged": frame["unchanged"].map(units.percent),
        },
        hide_index=True,
    )


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
    cells = pd.DataFrame(hits_by_place(outcome.recall))
    full = cells[cells["treatment"] == FULL.name]
    right, asked = int(full["hits"].sum()), int(full["asked"].sum())
    words = f"The full cache answers {right} of {asked} questions right"
    forgetful = cells[cells["treatment"].str.contains("indow") & (cells["place"] != "late")]
    if len(forgetful):
        found, tried = int(forgetful["hits"].sum()), int(forgetful["asked"].sum())
        words += f"; windows, with and without sinks, {found} of {tried} about what left them"
    st.markdown(f"{words}.")
    left, right_column = st.columns([3, 2], gap="large")
    with left:
        draw(charts.hits, cells, alt=f"{words}.")
    with right_column:
        table = cells.pivot_table(
            index="treatment", columns="place", values="shown", aggfunc="first", sort=False
        )
        st.dataframe(table.rename_axis("Cache").reset_index(), hide_index=True)
        st.caption(
            "Right means that the first number of the model's own greedy answer is the one hidden."
        )
    with st.expander("Every question and answer"):
        st.dataframe(
            pd.DataFrame(outcome.recall)[
                ["seed", "place", "distance", "fact", "treatment", "answer", "hit"]
            ],
            hide_index=True,
        )
    if outcome.texts:
        with st.expander("The texts as the model read them"):
            for text in outcome.texts:
                st.caption(f"Seed {text['seed']}")
                st.code(text["text"], language=None, wrap_lines=True, height=260)


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
