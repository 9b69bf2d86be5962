"""The run as a job: started, watched, and what is said of how it stands."""

from __future__ import annotations

from collections.abc import Iterator

import streamlit as st

from kvcore import units
from kvcore.decoding import DecodingError
from kvcore.decoding.compare import Pair
from kvcore.decoding.explain import disturbance
from kvcore.decoding.run import Run, Settings
from kvcore.jobs import Job, State
from pages.common.jobs import Slot, progress, session_job
from pages.common.links import lab
from pages.common.page import refuse
from pages.timing_parts import results


def slot() -> Slot:
    return session_job("live_timing")


def start(settings: Settings) -> None:
    run = Run(settings)

    def work(job: Job) -> Iterator[Pair]:
        job.total = settings.new_tokens
        yield from run.measure(stopped=lambda: job.stopping)

    slot().start(work, about=run)


@st.fragment(run_every=0.5)
def watch() -> None:
    """Draws what the job has appended; hands over to the whole page when it ends."""
    job = slot().job
    tell(job)
    results.so_far(job.about)
    if not job.active:
        st.rerun()


def tell(job: Job) -> None:
    """Where the job stands, what went wrong in one sentence, and whose weights they are."""
    run: Run = job.about
    standing(job, run)
    if job.state is State.STOPPED:
        st.caption(f"Stopped after {len(run.pairs):,} tokens. What was measured is below.")
    if job.state is State.DONE:
        tell_disturbance(run)
    notice(run)


def standing(job: Job, run: Run) -> None:
    if isinstance(job.error, DecodingError):
        refuse(str(job.error))
    elif job.state is State.RUNNING and not run.pairs:
        st.progress(0.0, run.status)
    elif job.state is State.RUNNING:
        left = run.comparison.seconds_left()
        remains = "" if left is None else f", about {units.seconds(left)} left"
        share = len(run.pairs) / run.settings.new_tokens
        st.progress(share, f"{len(run.pairs):,} of {run.settings.new_tokens:,} tokens{remains}")
    else:
        progress(job)


def tell_disturbance(run: Run) -> None:
    disturbed = disturbance(run)
    if disturbed:
        st.caption(disturbed)


def notice(run: Run) -> None:
    if run.facts is None or not run.facts.notice:
        return
    st.caption(run.facts.notice)
    if run.facts.source == "random" and run.facts.name != "smollm2":
        lab("live_timing", "Use SmolLM2, whose text can be read", {"live_timing_model": "smollm2"})
