"""One job a session and page, stopped when the tab closes."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from kvcore import units
from kvcore.jobs import MEASUREMENTS, Job, Queue, State, Work


@dataclass
class Slot:
    """Where a session keeps the job of a page."""

    job: Job | None = None

    def start(self, work: Work, queue: Queue | None = MEASUREMENTS, about: object = None) -> Job:
        """Start `work` in place of whatever this session was running here."""
        self.stop()
        self.job = Job(work, queue, about).start()
        return self.job

    def stop(self) -> None:
        if self.job is not None:
            self.job.stop()

    @property
    def active(self) -> bool:
        return self.job is not None and self.job.active


def session_job(page: str) -> Slot:
    """The slot of this session for a page; its job stops when the session ends."""
    return _slot(page)


@st.cache_resource(scope="session", on_release=Slot.stop, show_spinner=False)
def _slot(page: str) -> Slot:
    return Slot()


def progress(job: Job) -> None:
    """What the job is doing and what remains, in one line."""
    if job.state is State.WAITING:
        ahead = job.ahead
        runs = "one measurement is" if ahead == 1 else f"{ahead} measurements are"
        st.progress(0.0, f"Waiting: {runs} ahead of this one. Only one runs at a time.")
        return
    if job.state is State.RUNNING:
        share = min(1.0, len(job.results) / job.total) if job.total else 0.0
        st.progress(share, _pace(job))
        return
    if job.state is State.FAILED:
        st.error("The run ended early. What it had measured is kept.")
        st.text(str(job.error))


def _pace(job: Job) -> str:
    done = f"{len(job.results):,} of {job.total:,} steps" if job.total else "Running"
    left = job.seconds_left
    return done if left is None else f"{done}, about {units.seconds(left)} left"
