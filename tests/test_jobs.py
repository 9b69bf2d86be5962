import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kvcore.jobs import Job, Queue, State

ROOT = Path(__file__).resolve().parents[1]

PATIENCE_S = 20


def numbers(count):
    def work(job):
        job.total = count
        yield from range(count)

    return work


def until(gate):
    """Yields 0, then waits for the gate before each further step."""

    def work(job):
        yield 0
        while gate.wait(PATIENCE_S):
            yield 1

    return work


def wait_for(condition):
    deadline = threading.Event()
    for _ in range(PATIENCE_S * 100):
        if condition():
            return
        deadline.wait(0.01)
    pytest.fail("the condition never held")


def test_results_collect_in_order():
    job = Job(numbers(5), Queue()).start()
    job.join(PATIENCE_S)
    assert job.results == [0, 1, 2, 3, 4]
    assert job.state is State.DONE
    assert job.seconds_left is None


def test_a_second_job_waits_and_sees_its_place():
    queue, gate = Queue(), threading.Event()
    first = Job(until(gate), queue).start()
    wait_for(lambda: first.results)
    second = Job(numbers(1), queue).start()
    wait_for(lambda: len(queue) == 2)
    third = Job(numbers(1), queue).start()
    wait_for(lambda: len(queue) == 3)
    assert (first.ahead, second.ahead, third.ahead) == (0, 1, 2)
    assert second.state is State.WAITING
    assert second.results == []

    first.stop()
    gate.set()
    for job in (first, second, third):
        job.join(PATIENCE_S)
    assert first.state is State.STOPPED
    assert (second.state, third.state) == (State.DONE, State.DONE)
    assert len(queue) == 0


def test_stopping_ends_within_one_step_and_frees_the_place():
    queue, gate = Queue(), threading.Event()
    gate.set()
    job = Job(until(gate), queue).start()
    wait_for(lambda: len(job.results) > 1)
    job.stop()
    job.join(PATIENCE_S)
    assert job.state is State.STOPPED
    assert len(queue) == 0


def test_a_waiting_job_can_be_given_up():
    queue, gate = Queue(), threading.Event()
    first = Job(until(gate), queue).start()
    wait_for(lambda: first.results)
    second = Job(numbers(3), queue).start()
    wait_for(lambda: len(queue) == 2)
    second.stop()
    second.join(PATIENCE_S)
    assert second.state is State.STOPPED
    assert second.results == []
    assert len(queue) == 1
    first.stop()
    gate.set()
    first.join(PATIENCE_S)
    assert len(queue) == 0


def test_an_error_keeps_what_was_measured_and_frees_the_place():
    queue = Queue()

    def work(job):
        yield "kept"
        raise RuntimeError("the model is gone")

    job = Job(work, queue).start()
    job.join(PATIENCE_S)
    assert job.state is State.FAILED
    assert job.results == ["kept"]
    assert str(job.error) == "the model is gone"
    assert len(queue) == 0

    after = Job(numbers(2), queue).start()
    after.join(PATIENCE_S)
    assert after.state is State.DONE


def test_an_error_before_the_first_step_frees_the_place():
    queue = Queue()

    def work(job):
        raise ValueError("no model")

    job = Job(work, queue).start()
    job.join(PATIENCE_S)
    assert job.state is State.FAILED
    assert len(queue) == 0


def test_the_generator_is_closed_when_the_job_is_stopped():
    closed = threading.Event()

    def work(job):
        try:
            while True:
                yield 1
        finally:
            closed.set()

    job = Job(work, None).start()
    wait_for(lambda: job.results)
    job.stop()
    job.join(PATIENCE_S)
    assert closed.is_set()


def test_many_jobs_run_one_at_a_time():
    queue = Queue()
    running = []
    overlaps = []

    def work(job):
        running.append(job)
        for _ in range(20):
            overlaps.append(len(running))
            yield None
        running.remove(job)

    jobs = [Job(work, queue).start() for _ in range(8)]
    for job in jobs:
        job.join(PATIENCE_S)
    assert {job.state for job in jobs} == {State.DONE}
    assert set(overlaps) == {1}


def test_a_running_step_ends_before_the_interpreter_does():
    code = (
        "import time\n"
        "from kvcore.jobs import Job\n"
        "def work(job):\n"
        "    try:\n"
        "        while True:\n"
        "            time.sleep(0.05)\n"
        "            yield 1\n"
        "    finally:\n"
        "        print('the step ended')\n"
        "job = Job(work).start()\n"
        "while not job.results:\n"
        "    time.sleep(0.01)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "the step ended" in done.stdout
