"""What a run showed: the answer, both replies, the picture."""

from __future__ import annotations

import streamlit as st

from kvcore import units
from kvcore.charts import live_timing as charts
from kvcore.decoding import run_frames
from kvcore.decoding.explain import text_without_cache, times_per_token
from kvcore.decoding.run import Run
from pages.common.draw import draw
from pages.timing_parts import tabs

VERDICTS = {None: "–", "identical": "Yes", "rounding": "Until a near tie", "wrong": "No"}


def so_far(run: Run) -> None:
    """The figures and pictures of a run while it goes on."""
    if run.pairs:
        figures(run, live=True)


def whole(run: Run) -> None:
    """The same of a run that stands still, with the tabs."""
    if run.pairs:
        figures(run, live=False)
        tabs.show(run)


def figures(run: Run, live: bool) -> None:
    answer(run)
    texts(run, live)
    picture(run)


def answer(run: Run) -> None:
    comparison = run.comparison
    ratios = comparison.speed_up()
    faster, with_cache, without, same = st.columns(4)
    sampled = " (partly interpolated)" if comparison.is_sampled else ""
    faster.metric(
        "Faster with the cache",
        units.times(ratios[-1]) if ratios else "–",
        help="Time without the cache divided by time with it, for the same reply.",
    )
    faster.caption(f"after {len(ratios):,} tokens")
    with_cache.metric(
        "With the cache",
        units.seconds(comparison.cached.total_seconds),
        help="Time for the reply so far, and tokens that went through the model.",
    )
    with_cache.caption(f"{comparison.cached.tokens_processed:,} tokens run")
    without.metric(
        "Without a cache",
        units.seconds(comparison.uncached.total_seconds),
        help="Every step runs the whole text again.",
    )
    without.caption(f"{comparison.uncached.tokens_processed:,} tokens run{sampled}")
    agreement = comparison.agreement
    same.metric(
        "Same reply?",
        VERDICTS[agreement.verdict],
        help="Every token of both ways is compared, and all the logits behind it.",
    )
    same.caption(f"{agreement.compared:,} tokens compared")


def texts(run: Run, live: bool) -> None:
    left, right = st.columns(2)
    left.caption("With the cache")
    right.caption("Without a cache")
    boxes = {"border": True, "height": 190, "autoscroll": live}
    left.container(**boxes).text(run.settings.prompt + run.cached_text)
    right.container(**boxes).text(text_without_cache(run))


def picture(run: Run) -> None:
    times, growth = st.columns([3, 1])
    draw(
        charts.step_times,
        run_frames.step_times(run),
        alt=times_per_token(run),
        slot=times,
        log=st.session_state.get("live_timing_log", True),
        sampled=run.comparison.is_sampled,
    )
    held = run.comparison.cached.steps[-1].cache_bytes
    draw(
        charts.cache_growth,
        run_frames.cache_growth(run),
        alt=f"The cache grows by the same amount with every token, to {units.gib(held)}.",
        slot=growth,
    )
