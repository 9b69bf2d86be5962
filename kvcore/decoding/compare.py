"""Both ways at once: with the cache and without, step by step in turn, and are they the same?"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kvcore.decoding.errors import SettingsError
from kvcore.decoding.generate import Clock, Step, Way, check_run, choose
from kvcore.decoding.threads import DEFAULT_THREADS, use_threads
from kvcore.decoding.timeline import Timeline

if TYPE_CHECKING:
    from torch import Tensor

    from kvcore.decoding.model import Model

DEFAULT_SAMPLES = 24
ROUNDING = 5e-5  # of the largest logit; fp32 in another order stays well below, another text above

Verdict = Literal["identical", "rounding", "wrong"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Pair:
    """The same step both ways.

    uncached: None where a sampled run did not measure it.
    difference: largest absolute difference of the two logit vectors; None when there is none to
        compare, or once the texts have parted.
    largest_logit: largest absolute logit, the scale of that difference.
    """

    index: int
    cached: Step
    uncached: Step | None
    difference: float | None
    largest_logit: float


def compare(
    model: "Model",
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    *,
    temperature: float = 0.7,
    seed: int = 0,
    samples: int | None = None,
    all_logits: bool = False,
    threads: int = DEFAULT_THREADS,
    clock: Clock = time.perf_counter,
) -> Iterator[Pair]:
    """Yield `max_new_tokens` pairs, both ways run in turn so that noise hits both alike.

    samples: None runs both ways in full, each on its own text. A number measures the uncached step
        at that many positions spread evenly over the range, on the cached way's text.
    all_logits: the uncached way computes the logits of every token, as a naive loop does.

    Raises PromptError or SettingsError before the first pair.
    """
    check_run(model, prompt_ids, max_new_tokens, temperature, seed, threads)
    if samples is not None and samples < 2:
        raise SettingsError(f"A sampled run measures at least two steps, not {samples}.")
    cached = Way(model, prompt_ids, max_new_tokens, True, temperature, seed, False, clock)
    if samples is None or samples >= max_new_tokens:
        uncached = Way(
            model, prompt_ids, max_new_tokens, False, temperature, seed, all_logits, clock
        )
        return _in_full(cached, uncached, max_new_tokens, threads)
    chosen = sample_positions(max_new_tokens, samples)
    return _sampled(cached, chosen, max_new_tokens, all_logits, threads, clock)


def sample_positions(count: int, samples: int) -> list[int]:
    """`samples` indices out of range(count), evenly spread, first and last included."""
    if samples >= count:
        return list(range(count))
    return sorted({round(i * (count - 1) / (samples - 1)) for i in range(samples)})


def _in_full(cached: Way, uncached: Way, count: int, threads: int) -> Iterator[Pair]:
    use_threads(threads)
    for index in range(count):
        same_text = cached.token_ids == uncached.token_ids
        first, second = (cached, uncached) if index % 2 else (uncached, cached)
        steps = {first: first.step(), second: second.step()}
        difference = max_difference(cached.logits, uncached.logits) if same_text else None
        yield Pair(index, steps[cached], steps[uncached], difference, _largest(cached.logits))


def _sampled(
    cached: Way,
    chosen: Sequence[int],
    count: int,
    all_logits: bool,
    threads: int,
    clock: Clock,
) -> Iterator[Pair]:
    use_threads(threads)
    wanted = set(chosen)
    for index in range(count):
        text = list(cached.token_ids)
        step = cached.step()
        if index not in wanted:
            yield Pair(index, step, None, None, _largest(cached.logits))
            continue
        logits, uncached = _recompute(cached, text, index, all_logits, clock)
        difference = max_difference(cached.logits, logits)
        yield Pair(index, step, uncached, difference, _largest(cached.logits))


def _recompute(
    cached: Way, text: list[int], index: int, all_logits: bool, clock: Clock
) -> tuple["Tensor", Step]:
    """The step the cached way has just made, once more without a cache and with the same draw."""
    from kvcore.decoding.model import forward

    began = clock()
    logits = forward(cached.model, text, all_logits=all_logits)[-1]
    token_id, gap = choose(logits, cached.noise)
    seconds = clock() - began
    phase = "decode" if index else "prefill"
    return logits, Step(index, token_id, seconds, len(text), 0, gap, phase)


def max_difference(a: "Tensor", b: "Tensor") -> float:
    """Largest absolute difference; infinite where either holds no number at all."""
    return float((a - b).abs().nan_to_num(nan=math.inf).max())


def _largest(logits: "Tensor") -> float:
    return float(logits.abs().max())


@dataclass
class Comparison:
    """What a run has shown so far. Feed it each pair; every figure can be read at any time.

    samples: as given to `compare`.
    """

    prompt_tokens: int
    new_tokens: int
    samples: int | None = None
    pairs: list[Pair] = field(default_factory=list)
    _known: dict[str, tuple[tuple[int, ...], Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self.cached = Timeline(self.prompt_tokens, self.new_tokens)
        self.uncached = Timeline(self.prompt_tokens, self.new_tokens)
        for pair in self.pairs:
            self._enter(pair)

    def add(self, pair: Pair) -> None:
        self.pairs.append(pair)
        self._enter(pair)

    def _enter(self, pair: Pair) -> None:
        self.cached.steps.append(pair.cached)
        if pair.uncached is not None:
            self.uncached.steps.append(pair.uncached)

    @property
    def is_sampled(self) -> bool:
        return self.samples is not None and self.samples < self.new_tokens

    def speed_up(self) -> list[float]:
        """Time without the cache over time with it, for 1, 2, 3, … new tokens."""
        return self._once(
            "speed_up", lambda: _ratios(self.uncached.cumulative(), self.cached.cumulative())
        )

    def expected_speed_up(self) -> list[float]:
        """The same from counts alone: tokens run through the model without the cache over with.

        An upper bound. A decode step costs far more than its one token's share of a long pass,
        because it has to read all the weights for it.
        """
        return expected_speed_up(self.prompt_tokens, self.cached.measured)

    def tokens_until(self, factor: float) -> int | None:
        """New tokens after which the speed-up first reached `factor`; None if it has not."""
        return next((n for n, ratio in enumerate(self.speed_up(), 1) if ratio >= factor), None)

    def seconds_left(self) -> float | None:
        """What the rest of the run will take, from the latest step of each way; None at first.

        An uncached step's time is taken to grow in proportion to the text.
        """
        if not self.uncached.steps or not self.cached.steps:
            return None
        done, last = self.cached.measured, self.uncached.steps[-1]
        rate = last.seconds / last.tokens_processed
        per_cached = self.cached.steps[-1].seconds
        share = self.samples / self.new_tokens if self.is_sampled else 1.0
        lengths = range(self.prompt_tokens + done, self.prompt_tokens + self.new_tokens)
        return share * rate * sum(lengths) + per_cached * (self.new_tokens - done)

    @property
    def agreement(self) -> "Agreement":
        return self._once("agreement", lambda: Agreement.of(self.pairs))

    def _once(self, name: str, work_out: Callable[[], Result]) -> Result:
        """What `work_out` gives, kept until there is a step more."""
        steps = (len(self.pairs), self.cached.measured, self.uncached.measured)
        if self._known.get(name, ((), None))[0] != steps:
            self._known[name] = (steps, work_out())
        return self._known[name][1]


@dataclass(frozen=True)
class Agreement:
    """ "Same reply?": every compared step of both ways.

    compared: steps measured both ways up to the point where the texts part, if they do.
    largest_difference: of the logits of those steps, None before there is one.
    narrowest_gap: the closest that a runner-up came to being chosen, in logits.
    first_difference: index of the first step whose tokens differ, else None.
    gap_there: the gap at that step, on the side where it is narrower.
    """

    compared: int
    largest_difference: float | None
    narrowest_gap: float | None
    first_difference: int | None
    gap_there: float | None
    largest_logit: float

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> "Agreement":
        both = [pair for pair in pairs if pair.difference is not None]
        parted = next((p for p in both if p.cached.token_id != p.uncached.token_id), None)
        if parted is not None:
            both = [pair for pair in both if pair.index <= parted.index]
        gaps = [min(pair.cached.gap, pair.uncached.gap) for pair in both]
        return cls(
            compared=len(both),
            largest_difference=max((pair.difference for pair in both), default=None),
            narrowest_gap=min(gaps, default=None),
            first_difference=parted.index if parted else None,
            gap_there=min(parted.cached.gap, parted.uncached.gap) if parted else None,
            largest_logit=max((pair.largest_logit for pair in both), default=0.0),
        )

    @property
    def rounding_limit(self) -> float:
        """Differences of logits above this are no matter of rounding in fp32."""
        return ROUNDING * max(1.0, self.largest_logit)

    @property
    def verdict(self) -> Verdict | None:
        """None before anything was compared.

        "identical": the same tokens, logits equal but for rounding. "rounding": the texts part at a
        near tie, closer than twice the difference that the order of arithmetic makes. "wrong":
        anything else; then a cache holds what it should not.
        """
        if self.largest_difference is None:
            return None
        if not self.largest_difference <= self.rounding_limit:
            return "wrong"
        if self.first_difference is None:
            return "identical"
        return "rounding" if self.gap_there < 2 * self.largest_difference else "wrong"


def expected_speed_up(prompt_tokens: int, new_tokens: int) -> list[float]:
    """Tokens run without a cache over tokens run with one, for 1 … new_tokens new ones."""
    without = accumulate(prompt_tokens + i for i in range(new_tokens))
    with_cache = (prompt_tokens + i for i in range(new_tokens))
    return _ratios(list(without), list(with_cache))


def _ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    pairs = zip(numerators, denominators, strict=False)
    return [a / b if b else math.nan for a, b in pairs]
