"""Runs that go wrong: whatever happens, the place is free for whoever comes next."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from kvcore.jobs import MEASUREMENTS, Job, JobError, Queue, State
from kvcore.settings import settings

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 20


def a_good_run(queue):
    job = Job(lambda job: iter([1, 2]), queue).start()
    job.join(PATIENCE_S)
    return job


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("kernel fault"),
        MemoryError("no room"),
        SystemExit(3),
        KeyboardInterrupt(),
        OSError(28, "No space left on device"),
        RecursionError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("when", ["at once", "after a step"])
def test_a_worker_that_raises_frees_the_place(error, when):
    queue = Queue()

    def work(job):
        if when == "after a step":
            yield "kept"
        raise error
        yield

    job = Job(work, queue).start()
    job.join(PATIENCE_S)
    assert job.state is State.FAILED
    assert job.error is error
    assert job.results == (["kept"] if when == "after a step" else [])
    assert len(queue) == 0
    assert a_good_run(queue).state is State.DONE


def test_a_worker_that_fails_while_it_cleans_up_frees_the_place():
    queue = Queue()

    def work(job):
        try:
            yield 1
            yield 2
        finally:
            raise OSError("the temporary file is gone")

    job = Job(work, queue)
    job.stop()
    job.start()
    job.join(PATIENCE_S)
    job = Job(work, queue).start()
    job.join(PATIENCE_S)
    assert job.state is State.FAILED
    assert "temporary file" in str(job.error)
    assert len(queue) == 0
    assert a_good_run(queue).state is State.DONE


def test_a_wait_that_breaks_leaves_the_line():
    queue, gate = Queue(), threading.Event()

    def work(job):
        yield 0
        gate.wait(PATIENCE_S)

    first = Job(work, queue).start()
    while not first.results:
        time.sleep(0.01)

    def broken():
        raise RuntimeError("the session is gone")

    with pytest.raises(RuntimeError, match="session"), queue.turn(object(), broken):
        pass
    assert len(queue) == 1
    gate.set()
    first.join(PATIENCE_S)
    assert a_good_run(queue).state is State.DONE


def test_a_full_line_refuses_with_a_sentence():
    queue, gate = Queue(most=2), threading.Event()

    def work(job):
        yield 0
        gate.wait(PATIENCE_S)

    running = [Job(work, queue).start(), Job(work, queue).start()]
    while len(queue) < 2:
        time.sleep(0.01)
    refused = Job(work, queue).start()
    refused.join(PATIENCE_S)
    assert refused.state is State.FAILED
    assert str(refused.error).startswith("2 measurements are running or waiting")
    assert len(queue) == 2
    gate.set()
    for job in running:
        job.join(PATIENCE_S)
    assert a_good_run(queue).state is State.DONE


def test_the_line_of_the_server_is_as_long_as_its_setting():
    assert settings().max_waiting == MEASUREMENTS.most


def test_a_run_past_its_time_ends_and_keeps_what_it_has():
    queue = Queue()

    def endless(job):
        while True:
            time.sleep(0.01)
            yield 1

    job = Job(endless, queue, max_seconds=0.1).start()
    job.join(PATIENCE_S)
    assert isinstance(job.error, JobError)
    assert "minutes on this server" in str(job.error)
    assert job.results
    assert len(queue) == 0


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
def test_a_jumping_clock_changes_no_duration(monkeypatch, jump):
    true_time, shift = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: true_time() + shift[0])
    seen = []

    def work(job):
        job.total = 3
        for _ in range(3):
            shift[0] += jump
            seen.append(job.seconds_left)
            yield job.seconds

    job = Job(work, None).start()
    job.join(PATIENCE_S)
    assert all(0 <= seconds < PATIENCE_S for seconds in [*job.results, job.seconds])
    assert all(left is None or 0 <= left < PATIENCE_S for left in seen)


def test_durations_are_never_taken_from_the_clock_on_the_wall():
    """`time.time` may jump; nothing that is measured or waited for may depend on it."""
    wall_clock = re.compile(r"\btime\.time\(|from time import .*\btime\b")
    sources = [*(ROOT / "kvcore").rglob("*.py"), *(ROOT / "pages").rglob("*.py")]
    assert [path for path in sources if wall_clock.search(path.read_text(encoding="utf-8"))] == []
    assert wall_clock.search("start = time.time()")
    assert wall_clock.search("from time import sleep, time")
