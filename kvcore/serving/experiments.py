"""Three experiments on a running server, as requests laid out beforehand.

An experiment is a list of waves; the requests of a wave are sent at once, the waves one after the
other. So what it will send is known, counted and priced before anything is sent.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from kvcore.costs.price import price_counts
from kvcore.costs.prices import PriceError, rates, snapshot
from kvcore.costs.usage import TokenCounts, UsageError
from kvcore.serving.errors import CapReached
from kvcore.serving.prompts import changed_early, passage, to_count, with_question, words_for

WARM_UP = "warm-up"
COLD, WARM = "cold", "warm"
FIRST, AGAIN, CHANGED, BACK = "first time", "same prefix", "one character changed", "old prefix"
CONTEXT, LEVEL = "context", "concurrent"

MOST_REQUESTS = 500
MOST_TOKENS = 3_000_000
MOST_CONCURRENT = 32
RETRIES = 5
MARGIN = 1.5
"""Prompts may turn out longer than planned by this factor before the cap ends the experiment."""

WARM_UP_TOKENS, WARM_UP_OUTPUT = 100, 2
_WARM_UP_SIZE = Counter({(WARM_UP_TOKENS, WARM_UP_OUTPUT): 1})


class ExperimentError(ValueError):
    """Settings that cannot be run; the message names what to change."""


@dataclass(frozen=True)
class Request:
    """One request as planned. target_tokens: the length aimed at; place: of the changed word."""

    series: str
    prompt: str
    target_tokens: int
    max_tokens: int = 1
    repeat: int = 0
    whole_length: bool = False


@dataclass(frozen=True)
class Wave:
    """Requests sent at once."""

    requests: tuple[Request, ...]
    watch: bool = False
    """Whether to watch the fill of the server's cache meanwhile."""


Sizes = Counter[tuple[int, int]]
"""How many requests there are of each size: (tokens aimed at, output tokens)."""


@dataclass(frozen=True)
class FirstToken:
    """First token against prompt length: a prefix never seen (cold), then the same again (warm).

    Cold and warm alternate, and so do the lengths, so that a drift of the server hits all alike.
    """

    lengths: Sequence[int] = (250, 500, 1_000, 2_000)
    repeats: int = 3

    def check(self) -> None:
        _check_lengths(self.lengths)
        _within("Repeats", self.repeats, 1, 20)

    def sizes(self) -> Sizes:
        return _WARM_UP_SIZE + Counter([(n, 1) for n in self.lengths] * 2 * self.repeats)

    def waves(self, dice: random.Random) -> Iterator[Wave]:
        yield _warm_up(dice)
        for repeat in range(self.repeats):
            for length in dice.sample(list(self.lengths), len(self.lengths)):
                words = passage(words_for(length), dice)
                for series in (COLD, WARM):
                    prompt = with_question(words, dice)
                    yield Wave((Request(series, prompt, length, 1, repeat),))


@dataclass(frozen=True)
class EarlyChange:
    """One prefix, then again with one character near its start changed, then as it was."""

    length: int = 1_000
    repeats: int = 3
    place: int = 2

    def check(self) -> None:
        _check_lengths([self.length])
        _within("Repeats", self.repeats, 1, 20)

    def sizes(self) -> Sizes:
        return _WARM_UP_SIZE + Counter({(self.length, 1): 4 * self.repeats})

    def waves(self, dice: random.Random) -> Iterator[Wave]:
        yield _warm_up(dice)
        for repeat in range(self.repeats):
            words = passage(words_for(self.length), dice)
            other = changed_early(words, self.place, dice)
            steps = ((FIRST, words), (AGAIN, words), (CHANGED, other), (BACK, words))
            for series, used in steps:
                prompt = with_question(used, dice)
                yield Wave((Request(series, prompt, self.length, 1, repeat),))


@dataclass(frozen=True)
class TokenTime:
    """Time for each output token: against the length of the context, then against load."""

    contexts: Sequence[int] = (250, 1_000, 2_000)
    levels: Sequence[int] = (1, 2, 4, 8)
    output_tokens: int = 32
    repeats: int = 2

    def check(self) -> None:
        _check_lengths(self.contexts)
        _within("Output tokens", self.output_tokens, 4, 1_024)
        _within("Repeats", self.repeats, 1, 20)
        if not self.levels:
            raise ExperimentError("Choose at least one number of concurrent requests.")
        for level in self.levels:
            _within("Concurrent requests", level, 1, MOST_CONCURRENT)

    def sizes(self) -> Sizes:
        alone = Counter([(n, self.output_tokens) for n in self.contexts] * self.repeats)
        together = {(min(self.contexts), self.output_tokens): self.repeats * sum(self.levels)}
        return _WARM_UP_SIZE + alone + Counter(together)

    def waves(self, dice: random.Random) -> Iterator[Wave]:
        yield _warm_up(dice)
        shortest = min(self.contexts)
        for repeat in range(self.repeats):
            for length in dice.sample(list(self.contexts), len(self.contexts)):
                yield Wave((self._request(CONTEXT, length, repeat, dice),), watch=True)
            for level in sorted(self.levels):
                requests = (self._request(LEVEL, shortest, repeat, dice) for _ in range(level))
                yield Wave(tuple(requests), watch=True)

    def _request(self, series: str, length: int, repeat: int, dice: random.Random) -> Request:
        prompt = to_count(passage(words_for(length), dice))
        return Request(series, prompt, length, self.output_tokens, repeat, whole_length=True)


Experiment = FirstToken | EarlyChange | TokenTime


@dataclass(frozen=True)
class Plan:
    """What an experiment will send, and where it is cut off whatever happens.

    dollars: for all of it at list prices without any caching; None where no price is known.
    """

    requests: int
    prompt_tokens: int
    output_tokens: int
    dollars: Decimal | None = None
    priced_as: str = ""

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    @property
    def most_requests(self) -> int:
        return self.requests + RETRIES

    @property
    def most_tokens(self) -> int:
        return int(self.tokens * MARGIN)

    @property
    def most_dollars(self) -> Decimal | None:
        return None if self.dollars is None else self.dollars * Decimal(str(MARGIN))


def plan(experiment: Experiment, priced_model: str | None = None, api_url: str = "") -> Plan:
    """Count and price an experiment without sending anything.

    priced_model: as its provider sells it; None for a server of one's own. api_url: of the
    provider, which settles whose prices hold. Raises ExperimentError for settings out of range or
    an experiment beyond the hard limits.
    """
    experiment.check()
    sizes = experiment.sizes()
    requests = sizes.total()
    prompt = sum(tokens * count for (tokens, _), count in sizes.items())
    output = sum(written * count for (_, written), count in sizes.items())
    if requests > MOST_REQUESTS or prompt + output > MOST_TOKENS:
        raise ExperimentError(
            f"That would be {requests:,} requests and {prompt + output:,} tokens; at most "
            f"{MOST_REQUESTS:,} and {MOST_TOKENS:,} are sent. Take fewer lengths or repeats."
        )
    dollars, name = None, ""
    if priced_model:
        dollars, name = _priced(priced_model, _provider_at(api_url), sizes)
    return Plan(requests, prompt, output, dollars, name)


class Budget:
    """Counts what is sent, retries included, and refuses to go past a plan's caps."""

    def __init__(self, agreed: Plan) -> None:
        self.agreed = agreed
        self.requests = 0
        self.tokens = 0
        self._lock = threading.Lock()

    def take(self, request: Request) -> None:
        """Count a request as planned, before it is sent. Raises CapReached."""
        tokens = request.target_tokens + request.max_tokens
        with self._lock:
            if self.requests + 1 > self.agreed.most_requests:
                raise CapReached(f"The cap of {self.agreed.most_requests:,} requests is reached.")
            if self.tokens + tokens > self.agreed.most_tokens:
                raise CapReached(f"The cap of {self.agreed.most_tokens:,} tokens is reached.")
            self.requests += 1
            self.tokens += tokens

    def correct(self, request: Request, used: int | None) -> None:
        """Replace what was planned for a request by what the server counted."""
        if used is not None:
            with self._lock:
                self.tokens += used - request.target_tokens - request.max_tokens


def _warm_up(dice: random.Random) -> Wave:
    """One request that is not measured: the first may load or compile something."""
    prompt = with_question(passage(words_for(WARM_UP_TOKENS), dice), dice)
    return Wave((Request(WARM_UP, prompt, WARM_UP_TOKENS, WARM_UP_OUTPUT),))


def _provider_at(api_url: str) -> str | None:
    """The provider whose API has this address, by genai-prices' list; None where it is none."""
    if not api_url:
        return None
    try:
        return snapshot().find_provider(None, None, api_url).id
    except LookupError:
        return None


def _priced(model: str, provider: str | None, sizes: Sizes) -> tuple[Decimal | None, str]:
    try:
        prices = rates(model, provider)
        costs = [
            count * price_counts(TokenCounts(tokens, output=written), prices).total
            for (tokens, written), count in sizes.items()
        ]
    except (PriceError, UsageError):
        return None, ""
    return sum(costs, Decimal(0)), f"{prices.model} at {prices.provider}"


def _check_lengths(lengths: Sequence[int]) -> None:
    if not lengths:
        raise ExperimentError("Choose at least one length.")
    for length in lengths:
        _within("A length", length, 60, 200_000)


def _within(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ExperimentError(f"{what} must be from {low:,} to {high:,}, not {value:,}.")
