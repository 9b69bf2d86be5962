"""The story of the KV cache, in order, and the way into every lab."""

import pages.common.entry  # noqa: F401

# isort: split
import streamlit as st

from kvcore import recordings, tour
from kvcore.charts import tour as charts
from pages.common.draw import draw
from pages.common.links import lab
from pages.common.page import header
from pages.common.query import Number, check


def step_slider(key: str, label: str, value: int) -> int:
    return st.slider(
        label,
        1,
        tour.STEPS,
        value,
        key=key,
        help="Drag, or use the arrow keys: one step is one piece of the reply.",
        bind="query-params",
    )


def first_words() -> list[str]:
    return recordings.read("live_timing").data["pieces"][: tour.STEPS]


@st.fragment
def one_piece_at_a_time() -> None:
    st.header("1. One piece at a time")
    st.markdown(
        "A language model does not write sentences. It looks at everything so far, picks one "
        "more piece (a word, or part of one), and starts over. A reply of a thousand pieces is "
        "a thousand such rounds."
    )
    written = step_slider("tour_piece", "Pieces written", 9)
    st.text(recordings.read("live_timing").data["prompt"] + "".join(first_words()[:written]))
    st.caption(f"Piece {written} is “{first_words()[written - 1].strip()}”.")
    lab("live_timing", "Watch a model write")


@st.fragment
def cards() -> None:
    st.header("2. Every piece files a card")
    st.markdown(
        "Each piece leaves two things behind in every layer: a **key**, by which later pieces "
        "find it, and a **value**, which they read. It also asks a question of its own, the "
        "**query**, once, while it is being worked on. Nobody asks that question again, so it is "
        "thrown away; the key and the value are looked at by every piece that follows, so they "
        "are kept. The kept cards are the KV cache."
    )
    step = step_slider("tour_card", "Piece being worked on", 8)
    draw(
        charts.cards,
        tour.cards(step, first_words()),
        alt=f"At piece {step} there are {2 * step} cards on file; of {step} queries one is asked "
        f"now and {step - 1} are gone.",
    )
    lab("cache_lab", "Look into a real drawer")


@st.fragment
def with_and_without_notes() -> None:
    st.header("3. Twenty-four steps, with notes and without")
    st.markdown(
        "Without notes, every round runs **all** pieces so far through the model again. With "
        "notes it runs the newest one and looks the others up."
    )
    step = step_slider("tour_step", "Step", 12)
    counts = tour.pieces_run()
    now = counts[counts.step == step].set_index("way")
    left, right = st.columns(2)
    left.metric(
        "Without notes: pieces run so far",
        f"{now.loc[tour.WITHOUT, 'total']}",
        f"{now.loc[tour.WITHOUT, 'this_step']} in this step",
        delta_color="off",
        delta_arrow="off",
        border=True,
    )
    right.metric(
        "With notes: pieces run so far",
        f"{now.loc[tour.WITH, 'total']}",
        f"1 in this step, {step - 1} looked up",
        delta_color="off",
        delta_arrow="off",
        border=True,
    )
    draw(
        charts.one_step,
        tour.one_step(step, first_words()),
        alt=f"Step {step}: without notes {step} pieces are run, with notes one.",
    )
    draw(
        charts.pieces_run,
        counts,
        alt="After 24 steps 300 pieces were run without notes and 24 with them.",
    )
    st.caption("Counted, not measured: step n runs n pieces, so n steps run n × (n + 1) ÷ 2.")


header(
    "It does not reread your whole chat",
    "A model that writes keeps notes on everything it has read. Those notes are the KV cache: "
    "why replies are fast, why long chats need big GPUs, and why prompt caching is on the bill. "
    "Nine short steps, every number live.",
)
check({key: Number(1, tour.STEPS) for key in ("tour_piece", "tour_card", "tour_step")})

one_piece_at_a_time()
cards()
with_and_without_notes()
