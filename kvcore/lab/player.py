"""A trace with a place in it: stepping, playing and going back, on a recording or a live model.

Whatever runs a model is a job's work (`kvcore.jobs`): a generator, one bounded step at a time. Each
measured step waits for its turn, so that it does not disturb what another session measures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kvcore import recordings
from kvcore.decoding.errors import DecodingError
from kvcore.jobs import MEASUREMENTS, Job, Work
from kvcore.lab.experiment import Asked, timestamp_experiment
from kvcore.lab.prompts import compose
from kvcore.lab.run import Lab, LabError, Policy, Settings
from kvcore.lab.trace import Frame, Prefill, Trace, from_json

LoadModel = Callable[[str], Any]
END_OF_TURN = ("<|im_end|>", "<|endoftext|>")


@dataclass(frozen=True)
class Wanted:
    """What is to be asked, of which model, and how the cache is kept."""

    model: str
    system: str
    question: str
    policy: Policy = field(default_factory=Policy)
    settings: Settings = field(default_factory=Settings)
    time_first: str | None = None
    time_last: str | None = None
    leave_open: bool = False

    def text(self, model: Any) -> str:
        return compose(model, self.system, self.question, self.time_first, self.time_last)


class Player:
    """What one visitor sees: a trace, the place in it, and the model behind it, once there is one.

    label: how the recording was made; None once the visitor's own model runs.
    error: the sentence to show when the last thing asked for could not be done.
    """

    def __init__(self, trace: Trace, experiment: list[Asked], label: str | None) -> None:
        self.trace = trace
        self.cursor = 0
        self.experiment = experiment
        self.label = label
        self.experiment_label = label
        self.notice: str | None = None
        self.doing = ""
        self.error: str | None = None
        self._lab: Lab | None = None
        self._lock = threading.Lock()
        self._ticket: object | None = None

    @property
    def frame(self) -> Frame:
        return self.trace.frames[self.cursor]

    @property
    def is_live(self) -> bool:
        return self._lab is not None

    @property
    def at_end(self) -> bool:
        """True when the next step has to be computed."""
        return self.cursor == len(self.trace.frames) - 1

    @property
    def ended(self) -> bool:
        """True when the model has ended its turn, or a recording is over."""
        if not self.at_end:
            return False
        return not self.is_live or self.trace.texts[-1] in END_OF_TURN

    @property
    def ahead(self) -> int:
        """Measurements of other sessions that the next step waits for."""
        ticket = self._ticket
        try:
            return MEASUREMENTS.place(ticket) if ticket is not None else 0
        except ValueError:
            return 0

    @property
    def num_open(self) -> int:
        """Earlier requests that still hold their blocks."""
        return len(self.trace.frames[-1].others)

    def back(self) -> None:
        """Show the step before. The model is not asked to undo anything: what it did is kept."""
        self.cursor = max(0, self.cursor - 1)

    def forward(self) -> None:
        """Show the next step that is known."""
        self.cursor = min(len(self.trace.frames) - 1, self.cursor + 1)

    def ask(self, wanted: Wanted, load: LoadModel) -> Work:
        """Load the model if need be and admit the prompt; the trace is the new request's."""

        def work(job: Job) -> Iterator[str]:
            with self._speaking():
                self.doing = "Loading the model"
                yield self.doing
                model = load(wanted.model)
                token_ids = model.encode(wanted.text(model))
                lab = self._lab_for(model, wanted.settings)
                self.doing = "Computing the first token"
                yield self.doing
                with self._measuring(job) as mine:
                    if not mine:
                        return
                    trace = lab.ask(token_ids, policy=wanted.policy, leave_open=wanted.leave_open)
                self._lab, self.trace, self.cursor = lab, trace, 0
                self.label, self.notice = None, model.notice
                yield "done"

        return work

    def step(self) -> Work:
        """One step: the next one known, or a new token."""

        def work(job: Job) -> Iterator[str]:
            with self._speaking():
                if self._advance(job):
                    yield "done"

        return work

    def play(self, steps_per_second: float, max_steps: int = 500) -> Work:
        """Step after step at this pace or as fast as they come, until the model ends its turn."""

        def work(job: Job) -> Iterator[str]:
            with self._speaking():
                for _ in range(max_steps):
                    began = time.monotonic()
                    if self.ended or not self._advance(job):
                        return
                    yield "step"
                    _rest(job, began + 1 / steps_per_second)

        return work

    def close_open(self) -> Work:
        """End the earlier requests; their blocks become free."""

        def work(job: Job) -> Iterator[str]:
            with self._speaking(), self._lock:
                if self._lab is not None:
                    self._lab.close_open()
                yield "done"

        return work

    def try_times(self, wanted: Wanted, load: LoadModel) -> Work:
        """The timestamp experiment with this system prompt and question."""

        def work(job: Job) -> Iterator[str]:
            with self._speaking():
                self.doing = "Loading the model"
                yield self.doing
                model = load(wanted.model)
                self.doing = "Asking in six ways"
                yield self.doing
                with self._measuring(job) as mine:
                    if not mine:
                        return
                    self.experiment, self.experiment_label = [], None
                    asked = timestamp_experiment(
                        model,
                        wanted.system,
                        wanted.question,
                        block_size=wanted.settings.block_size,
                    )
                    for row in asked:
                        self.experiment.append(row)
                        yield row.how

        return work

    def _advance(self, job: Job) -> bool:
        if not self.at_end:
            self.forward()
            return True
        if self._lab is None:
            return False
        with self._measuring(job) as mine:
            if not mine:
                return False
            self._lab.step()
        self.forward()
        return True

    def _lab_for(self, model: Any, settings: Settings) -> Lab:
        """The pool at hand, or a fresh one for another model or other blocks."""
        lab = self._lab
        if lab is not None and lab.model is model and lab.settings == settings:
            return lab
        return Lab(model, settings)

    @contextmanager
    def _measuring(self, job: Job) -> Iterator[bool]:
        self._ticket = object()
        with MEASUREMENTS.turn(self._ticket, lambda: job.stopping) as mine:
            self._ticket = None
            with self._lock:
                yield mine

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """Refusals become the sentence to show; anything else is a fault and goes on up."""
        self.error = None
        try:
            yield
        except (LabError, DecodingError, ValueError) as refusal:
            self.error = str(refusal)
        finally:
            self.doing = ""


def recorded(name: str = "cache_lab") -> Player:
    """A player of the recorded run. Raises FileNotFoundError when there is none."""
    trace, experiment, label = _recording(name)
    return Player(trace, list(experiment), label)


@lru_cache
def _recording(name: str) -> tuple[Trace, tuple[Asked, ...], str]:
    """Read once for all sessions: nobody changes a recorded trace."""
    recording = recordings.read(name)
    experiment = tuple(
        Asked(row["how"], row["what_happens"], Prefill(**row["prefill"]))
        for row in recording.data["experiment"]
    )
    return from_json(recording.data["trace"]), experiment, str(recording.label)


def _rest(job: Job, until: float) -> None:
    """Sleep in short naps, so that a stop is felt at once."""
    while not job.stopping and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))
