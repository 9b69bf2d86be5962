"""How much of what was asked for was already there, counted so that it means something."""

from dataclasses import dataclass, field


@dataclass
class Tally:
    """Tokens of prompts that were looked up, and those of them that were found."""

    requests: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0

    def add(self, queried_tokens: int, hit_tokens: int) -> None:
        self.requests += 1
        self.queried_tokens += queried_tokens
        self.hit_tokens += hit_tokens

    @property
    def rate(self) -> float | None:
        """Hit tokens over queried tokens; None before the first request."""
        return self.hit_tokens / self.queried_tokens if self.queried_tokens else None


@dataclass
class HitRate:
    """Prefix hits by token, counted once per request, when it is admitted.

    - `admitted`: requests that came for the first time. Its rate is the honest one.
    - `preempted`: requests that return after they were put out. They find their own blocks, which
      says nothing about sharing (vllm-project/vllm#25780 saw 32 % on random prompts).
    - `refused`: look-ups of requests that then could not be admitted and will ask again
      (vllm-project/vllm#43736 counted these each time).
    """

    admitted: Tally = field(default_factory=Tally)
    preempted: Tally = field(default_factory=Tally)
    refused: Tally = field(default_factory=Tally)

    @property
    def rate(self) -> float | None:
        """Token-weighted hit rate of the requests admitted for the first time."""
        return self.admitted.rate

    @property
    def naive_rate(self) -> float | None:
        """What counting every look-up gives: retries and returns included."""
        tallies = (self.admitted, self.preempted, self.refused)
        queried = sum(tally.queried_tokens for tally in tallies)
        return sum(tally.hit_tokens for tally in tallies) / queried if queried else None
