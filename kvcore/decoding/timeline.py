"""What one way of generating took: measured step by step, at all steps or at some."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median, quantiles

from kvcore.decoding.generate import Step


@dataclass(frozen=True)
class Spread:
    """Median and the 10th and 90th percentile, in seconds."""

    median: float
    p10: float
    p90: float


@dataclass
class Timeline:
    """The steps of one way in order of their index; `new_tokens` is how many the run makes."""

    prompt_tokens: int
    new_tokens: int
    steps: list[Step] = field(default_factory=list)

    @property
    def measured(self) -> int:
        return len(self.steps)

    @property
    def reached(self) -> int:
        """Steps up to and including the last one measured."""
        return self.steps[-1].index + 1 if self.steps else 0

    @property
    def is_complete(self) -> bool:
        """Every step up to the last one was measured, none interpolated."""
        return self.measured == self.reached

    def seconds(self) -> list[float]:
        """Seconds of every step up to the last measured; those between are interpolated.

        A straight line between neighbours: a step's cost grows steadily with the text's length.
        """
        if self.is_complete:
            return [step.seconds for step in self.steps]
        known = [step.index for step in self.steps]
        return [self._at(index, known) for index in range(self.reached)]

    def _at(self, index: int, known: Sequence[int]) -> float:
        right = bisect_left(known, index)
        if known[right] == index or right == 0:
            return self.steps[right].seconds
        before, after = self.steps[right - 1], self.steps[right]
        share = (index - before.index) / (after.index - before.index)
        return before.seconds + share * (after.seconds - before.seconds)

    def cumulative(self) -> list[float]:
        """Seconds until each token was there."""
        return list(accumulate(self.seconds()))

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds())

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds of the first step, the prefill; None while it was not measured."""
        if not self.steps or self.steps[0].index:
            return None
        return self.steps[0].seconds

    @property
    def decode_seconds(self) -> float:
        """Seconds of all steps after the first."""
        return sum(self.seconds()[1:])

    @property
    def per_token(self) -> Spread | None:
        """Over the measured steps after the first; None before there are two."""
        later = [step.seconds for step in self.steps if step.index]
        if len(later) < 2:
            return None
        tenths = quantiles(later, n=10, method="inclusive")
        return Spread(median(later), tenths[0], tenths[-1])

    @property
    def tokens_processed(self) -> int:
        """Tokens that ran through the model in the steps measured."""
        return sum(step.tokens_processed for step in self.steps)
