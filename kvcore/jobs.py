"""Work that outlives one run of a page: a thread that can be watched, stopped and queued.

Whatever is timed goes through one queue, `MEASUREMENTS`, because two measurements at once would
spoil each other. A job waits there in the order of arrival, shows its place, and frees it within
one step of being stopped.
"""

from __future__ import annotations

import atexit
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any
from weakref import WeakSet

from kvcore.settings import settings

Work = Callable[["Job"], Iterator[Any]]


class JobError(ValueError):
    """Why the server refused a job or ended it early, in one sentence for the visitor."""


class State(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class Queue:
    """One place, first come, first served. most: how many may stand in line, None for any."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self._changed = threading.Condition()
        self._line: deque[object] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def place(self, ticket: object) -> int:
        """How many are ahead of this ticket; 0 for whoever holds the place.

        Raises ValueError for a ticket that is not in the queue.
        """
        with self._changed:
            return self._line.index(ticket)

    @contextmanager
    def turn(self, ticket: object, given_up: Callable[[], bool]) -> Iterator[bool]:
        """Wait for the place; gives True with it, False when `given_up()` came first.

        Whatever happens inside, the place is free afterwards. Call `wake()` after anything
        that makes `given_up()` true. Raises JobError when the line is full.
        """
        with self._changed:
            if self.most is not None and len(self._line) >= self.most:
                raise JobError(
                    f"{self.most} measurements are running or waiting, which is as many as this "
                    "server keeps: try again in a few minutes."
                )
            self._line.append(ticket)
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._line[0] is ticket or given_up())
            yield not given_up()
        finally:
            with self._changed:
                self._line.remove(ticket)
                self._changed.notify_all()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


MEASUREMENTS = Queue(settings().max_waiting)


class Job:
    """A generator run in a thread of its own; what it yields collects in `results`.

    `work(job)` is called in the thread and yields results one bounded step at a time. It may set
    `job.total` (steps expected) so that progress can be shown. `queue` is `MEASUREMENTS` for
    anything timed, None for the rest. `about` is whatever the work fills in for those who watch.
    `max_seconds` is the time it may run, by default the server's setting; it ends with a JobError
    at the first step past it, so that nobody keeps the place for ever.
    """

    def __init__(
        self,
        work: Work,
        queue: Queue | None = MEASUREMENTS,
        about: Any = None,
        max_seconds: float | None = None,
    ) -> None:
        self.about = about
        self.max_seconds = 60.0 * settings().max_minutes if max_seconds is None else max_seconds
        self.results: list[Any] = []
        self.total: int | None = None
        self.error: BaseException | None = None
        self.trace = ""
        self.state = State.WAITING
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self._work = work
        self._queue = queue
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="workbench-job")

    def start(self) -> Job:
        _started.add(self)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ask the work to end; it does so before its next step."""
        self._stop.set()
        if self._queue is not None:
            self._queue.wake()

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def active(self) -> bool:
        return self.state in (State.WAITING, State.RUNNING)

    @property
    def ahead(self) -> int:
        """How many jobs stand before this one in its queue."""
        if self._queue is None or self.state is not State.WAITING:
            return 0
        try:
            return self._queue.place(self)
        except ValueError:
            return 0

    @property
    def seconds(self) -> float:
        """Time spent running so far, waiting not counted."""
        if self.started_at is None:
            return 0.0
        return (self.ended_at or time.monotonic()) - self.started_at

    @property
    def seconds_left(self) -> float | None:
        """What the pace so far says; None before the first result or without a total."""
        if not self.total or not self.results or self.state is not State.RUNNING:
            return None
        return self.seconds / len(self.results) * max(0, self.total - len(self.results))

    def _run(self) -> None:
        try:
            if self._queue is None:
                self._work_through()
                return
            with self._queue.turn(self, self._stop.is_set) as mine:
                if mine:
                    self._work_through()
        except BaseException as error:  # a thread has nobody above it to tell
            self._fail(error)
        finally:
            self.ended_at = time.monotonic()
            self.state = self._last_state()

    def _work_through(self) -> None:
        self.started_at = time.monotonic()
        self.state = State.RUNNING
        steps = None
        try:
            steps = self._work(self)
            for result in steps:
                self.results.append(result)
                if self._stop.is_set():
                    return
                if self.seconds > self.max_seconds:
                    raise JobError(
                        f"A run may take {self.max_seconds / 60:g} minutes on this server, and "
                        "this one was not done by then."
                    )
        except BaseException as error:  # SystemExit too, which some libraries raise
            self._fail(error)
        finally:
            if steps is not None and hasattr(steps, "close"):
                steps.close()

    def _fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            self.trace = "".join(traceback.format_exception(error))

    def _last_state(self) -> State:
        if self.error is not None:
            return State.FAILED
        return State.STOPPED if self._stop.is_set() else State.DONE


_started: WeakSet[Job] = WeakSet()
SECONDS_TO_END = 5.0


@atexit.register
def end_all() -> None:
    """Let running steps end before the interpreter does: torch aborts when its threads are cut."""
    running = [job for job in _started if job.active]
    for job in running:
        job.stop()
    deadline = time.monotonic() + SECONDS_TO_END
    for job in running:
        job.join(max(0.0, deadline - time.monotonic()))
