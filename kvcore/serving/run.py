"""Running an experiment: waves sent, answers turned into samples as they come.

Every sample is yielded the moment its wave is over, so that whatever was measured before a fault
or a Stop is kept.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from kvcore import units
from kvcore.serving.answers import Answer
from kvcore.serving.client import IGNORES_EOS, Client
from kvcore.serving.errors import (
    BadRequest,
    Dropped,
    ServerFault,
    ServingError,
    Stopped,
    TimedOut,
    TooManyRequests,
)
from kvcore.serving.experiments import Budget, Experiment, Request, Wave
from kvcore.serving.metrics import EngineMetrics, grown

FAULTS_IN_A_ROW = 3
LONGEST_WAIT = 60.0
TRIES = 3
PAUSES = (1.0, 3.0)
"""Seconds before another try where a server limits requests without saying for how long."""
LOOK_EVERY = 0.1
METRICS_EVERY = 0.5
BIGGEST_SKEW = 30.0


@dataclass(frozen=True)
class Sample:
    """What one request showed. A field is None where nobody said.

    prompt_tokens: as the server counts. cached_tokens: from the answer. metric_hits: tokens the
    server's own counters rose by meanwhile. wave_seconds: from the first request of the wave sent
    to its last answer. kv_usage: the fullest seen meanwhile. preemptions: during the wave.
    problem: why there is no time, as a sentence.
    """

    series: str
    target_tokens: int
    repeat: int = 0
    concurrency: int = 1
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    first_token_seconds: float | None = None
    seconds_per_token: float | None = None
    total_seconds: float | None = None
    cached_tokens: int | None = None
    metric_hits: float | None = None
    wave_seconds: float | None = None
    kv_usage: float | None = None
    preemptions: float | None = None
    clock_ahead_seconds: float | None = None
    retries: int = 0
    problem: str = ""

    @property
    def tokens(self) -> int:
        """The length of the prompt: as counted by the server, else as aimed at."""
        return self.target_tokens if self.prompt_tokens is None else self.prompt_tokens

    @property
    def said_cached(self) -> float | None:
        """Tokens the server says it reused: in the answer, else by its counters."""
        return self.metric_hits if self.cached_tokens is None else self.cached_tokens


class Runner:
    """Runs one experiment against one model of a server, within a budget."""

    def __init__(
        self,
        client: Client,
        model: str,
        budget: Budget,
        *,
        owner: str = "",
        stopped: Callable[[], bool] = lambda: False,
        dice: random.Random | None = None,
    ) -> None:
        self.client = client
        self.model = model
        self.budget = budget
        self._knows_ignore_eos = owner.lower() in IGNORES_EOS
        self._stopped = stopped
        self._dice = dice or random.Random(secrets.randbits(64))
        self._has_metrics: bool | None = None
        self._faults = 0

    def samples(self, experiment: Experiment) -> Iterator[Sample]:
        """One for each request. Ends quietly when stopped.

        Raises ServingError where going on makes no sense: a key refused, nobody there, the third
        fault in a row, the cap.
        """
        experiment.check()
        try:
            for wave in experiment.waves(self._dice):
                if self._stopped():
                    return
                yield from self._wave(wave)
        except Stopped:
            return

    def _wave(self, wave: Wave) -> Iterator[Sample]:
        before = self._metrics()
        fullest = before.kv_usage if before else None
        started = time.monotonic()
        with ThreadPoolExecutor(len(wave.requests)) as pool:
            futures = [pool.submit(self._try, request) for request in wave.requests]
            fullest = self._wait(futures, wave.watch and before is not None, fullest)
        seconds = time.monotonic() - started
        after = self._metrics() if before else None
        outcomes = [future.result() for future in futures]
        fatal = next((error for _, _, error in outcomes if _is_fatal(error)), None)
        for request, (answer, retries, error) in zip(wave.requests, outcomes, strict=True):
            if error is not None and _is_fatal(error):
                continue
            yield self._sample(
                request, answer, retries, error, wave, seconds, before, after, fullest
            )
            self._faults = 0 if error is None else self._faults + 1
        if fatal is not None:
            raise fatal
        if self._faults >= FAULTS_IN_A_ROW:
            raise next(error for _, _, error in reversed(outcomes) if error is not None)

    def _wait(self, futures: list[Future], watch: bool, fullest: float | None) -> float | None:
        """Until all are done; ends them when stopped. Gives the fullest the cache was seen."""
        next_look = time.monotonic()
        while True:
            _, pending = wait(futures, timeout=LOOK_EVERY)
            if not pending:
                return fullest
            if self._stopped():
                self.client.abort()
                continue
            if watch and time.monotonic() >= next_look:
                now = self._metrics()
                if now is not None and now.kv_usage is not None:
                    fullest = max(fullest or 0.0, now.kv_usage)
                next_look = time.monotonic() + METRICS_EVERY

    def _try(self, request: Request) -> tuple[Answer | None, int, ServingError | None]:
        """Answer, retries and error of one request, waiting where the server limits them."""
        for attempt in range(TRIES):
            try:
                self.budget.take(request)
                answer = self.client.ask(
                    self.model,
                    request.prompt,
                    request.max_tokens,
                    whole_length=request.whole_length and self._knows_ignore_eos,
                )
            except TooManyRequests as limit:
                last = attempt == TRIES - 1
                pause = PAUSES[min(attempt, len(PAUSES) - 1)]
                pause = pause if limit.retry_after is None else limit.retry_after
                if last or pause > LONGEST_WAIT:
                    return None, attempt, limit
                if not self._pause(pause):
                    return None, attempt, Stopped("Stopped.")
            except Dropped as broken:
                return broken.partial, attempt, broken
            except ServingError as error:
                return None, attempt, error
            else:
                used = None if answer.usage is None else answer.usage.input + answer.usage.output
                self.budget.correct(request, used)
                return answer, attempt, None
        raise AssertionError("the last try returns")

    def _pause(self, seconds: float) -> bool:
        """Wait; False when stopped meanwhile."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._stopped():
                return False
            time.sleep(min(LOOK_EVERY, max(0.0, until - time.monotonic())))
        return True

    def _metrics(self) -> EngineMetrics | None:
        """A reading of /metrics, from servers that had one at first."""
        if self._has_metrics is False:
            return None
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(self.client.metrics, self.model)
            while not wait([future], timeout=LOOK_EVERY).done:
                if self._stopped():
                    self.client.abort()
            found = future.result()
        if self._has_metrics is None:
            self._has_metrics = found is not None and found.engine is not None
        return found if self._has_metrics else None

    def _sample(
        self,
        request: Request,
        answer: Answer | None,
        retries: int,
        error: ServingError | None,
        wave: Wave,
        seconds: float,
        before: EngineMetrics | None,
        after: EngineMetrics | None,
        fullest: float | None,
    ) -> Sample:
        answer = answer or Answer()
        alone = len(wave.requests) == 1
        hits = grown(before.prefix_hits, after.prefix_hits) if before and after else None
        preempted = grown(before.preemptions, after.preemptions) if before and after else None
        whole = error is None
        return Sample(
            series=request.series,
            target_tokens=request.target_tokens,
            repeat=request.repeat,
            concurrency=len(wave.requests),
            prompt_tokens=answer.prompt_tokens,
            output_tokens=answer.output_tokens if answer.piece_seconds or answer.usage else None,
            first_token_seconds=answer.first_token_seconds,
            seconds_per_token=answer.seconds_per_token if whole else None,
            total_seconds=answer.total_seconds if whole else None,
            cached_tokens=answer.cached_tokens,
            metric_hits=hits if alone else None,
            wave_seconds=seconds if whole else None,
            kv_usage=fullest if wave.watch else None,
            preemptions=preempted,
            clock_ahead_seconds=answer.clock_ahead_seconds,
            retries=retries,
            problem="" if error is None else str(error),
        )


def _is_fatal(error: ServingError | None) -> bool:
    """Whether the next request would fail in the same way."""
    passing = (Dropped, TimedOut, ServerFault, BadRequest)
    return error is not None and not isinstance(error, passing)


def skew_notice(samples: list[Sample]) -> str:
    """A sentence where the server's clock is far from this one; "" where it is not."""
    ahead = [s.clock_ahead_seconds for s in samples if s.clock_ahead_seconds is not None]
    if not ahead or abs(ahead[-1]) < BIGGEST_SKEW:
        return ""
    way = "ahead of" if ahead[-1] > 0 else "behind"
    gap = units.seconds(abs(ahead[-1]))
    return (
        f"The server's clock is {gap} {way} this one. All times here are taken on this machine "
        "alone, so none is affected; mind it when you read the server's log."
    )
