"""Runs too long to wait for: watched as they come, stopped, run again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import streamlit as st

from kvcore.jobs import Job, Work
from kvcore.paging import POLICIES
from kvcore.paging.experiments import curve_points, curve_values
from kvcore.paging.outcome import Outcome, outcome_of
from pages.common.jobs import progress, session_job
from pages.paging_parts.comparison import Comparison


def all_policies(comparison: Comparison) -> Work:
    def work(job: Job) -> Iterator[Outcome]:
        job.total = len(POLICIES)
        return comparison.scenario.run_all(comparison.requests())

    return work


def curve_work(comparison: Comparison, setting: str, policy: str) -> Work:
    def work(job: Job) -> Iterator[tuple[float, Outcome]]:
        scenario = comparison.scenario
        values = curve_values(setting, scenario)
        job.total = len(values)
        points = curve_points(comparison.requests(), setting, values, policy, scenario)
        return ((value, outcome_of(run)) for value, run in points)

    return work


def ensure_job(page: str, settings: Hashable, work: Work) -> Job:
    """The job of these settings; started anew when they are not those it was started for."""
    slot = session_job(page)
    if slot.job is None or st.session_state.get(f"{page}_settings") != settings:
        st.session_state[f"{page}_settings"] = settings
        slot.start(work, queue=None)
    return slot.job


def watch(page: str, show: Callable[[list], None]) -> None:
    """Draw what the job has; while it runs, twice a second and with a button to stop it."""
    slot = session_job(page)
    if slot.active:
        st.button("Stop", on_click=slot.stop, key=f"{page}_stop")
        st.fragment(follow, run_every=0.5)(page, show)
        return
    if slot.job.error is not None:
        progress(slot.job)
    elif slot.job.stopping:
        done = f"{len(slot.job.results)} of {slot.job.total or '?'}"
        st.caption(f"Stopped after {done}. What was finished is shown.")
        st.button("Run again", on_click=forget, args=(page,), key=f"{page}_again")
    show(list(slot.job.results))


def follow(page: str, show: Callable[[list], None]) -> None:
    job = session_job(page).job
    if not job.active:
        st.rerun()
    progress(job)
    show(list(job.results))


def forget(page: str) -> None:
    st.session_state.pop(f"{page}_settings", None)
