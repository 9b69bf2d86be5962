"""Everything a comparison needs, as one value: which requests, which pool, which rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from kvcore.paging.experiments import saturated_rate
from kvcore.paging.outcome import Outcome, outcome_of
from kvcore.paging.paper import ALPACA_MEAN_OUTPUT, ALPACA_MEAN_PROMPT
from kvcore.paging.policies import LARGEST_PAGE_BYTES, OPT_13B_TENSOR_BYTES, POLICIES
from kvcore.paging.requests import (
    PAPER_MAX_MODEL_LEN,
    Request,
    lognormal_requests,
    paper_requests,
    with_poisson_arrivals,
)
from kvcore.paging.results import SimulationResult
from kvcore.paging.simulation import PAPER_NUM_SLOTS, simulate
from kvcore.paging.traces import Trace

SHAREGPT, ALPACA, LOGNORMAL, TRACE = "sharegpt", "alpaca", "lognormal", "trace"
QUEUE, POISSON, RECORDED = "queue", "poisson", "recorded"


# Settings that only some policies heed. Contiguous pools never run out under who is in.
_IN_BLOCKS = ("paged", "demand-paged")
_OF_A_POLICY = {
    "block_size": ("paged",),
    "page_bytes": ("demand-paged",),
    "tensor_bytes": ("demand-paged",),
    "watermark": _IN_BLOCKS,
    "preemption": _IN_BLOCKS,
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """Settings of a comparison; hashable, so that its runs can be cached.

    `source` is SHAREGPT, ALPACA, LOGNORMAL or TRACE. `arrivals`: QUEUE (all wait at step 0),
    POISSON at `load` times what "paged" serves, or RECORDED at `steps_per_second` (traces only).
    """

    source: str = SHAREGPT
    count: int = 4_000
    seed: int = 0
    mean_prompt: float = 161
    mean_output: float = 338
    variation: float = 1.0
    arrivals: str = QUEUE
    load: float = 0.9
    steps_per_second: float = 30.0
    num_slots: int = PAPER_NUM_SLOTS
    max_model_len: int = PAPER_MAX_MODEL_LEN
    block_size: int = 16
    watermark: float = 0.01
    preemption: str = "recompute"
    look_ahead: int = 0
    page_bytes: int = LARGEST_PAGE_BYTES
    tensor_bytes: int = OPT_13B_TENSOR_BYTES

    @property
    def is_the_papers(self) -> bool:
        """Whether the bars of Figure 2 describe the same requests in the same pool."""
        return self.source == SHAREGPT and self.num_slots == PAPER_NUM_SLOTS

    @property
    def is_figure_13(self) -> bool:
        """Whether the paper's batches of Figure 13b were counted in the same pool."""
        return self.source == ALPACA and self.num_slots == PAPER_NUM_SLOTS

    @property
    def settings(self) -> dict[str, Any]:
        """What `simulate` needs besides the requests and the policy."""
        return {
            "num_slots": self.num_slots,
            "max_model_len": self.max_model_len,
            "block_size": self.block_size,
            "watermark": self.watermark,
            "preemption": self.preemption,
            "look_ahead": self.look_ahead,
            "page_bytes": self.page_bytes,
            "tensor_bytes": self.tensor_bytes,
        }

    def requests(self, trace: Trace | None = None) -> list[Request]:
        """The requests with their arrivals; a TRACE scenario takes them from `trace`.

        Raises ValueError when that is missing.
        """
        if self.source != TRACE:
            return self._arriving(self._drawn())
        if trace is None:
            raise ValueError("This scenario needs a trace.")
        pace = self.steps_per_second if self.arrivals == RECORDED else None
        return self._arriving(trace.requests(pace)[: self.count])

    def run(self, policy: str, requests: Sequence[Request]) -> Outcome:
        """One policy on these requests."""
        return outcome_of(simulate(requests, policy, **self.settings))

    def run_all(self, requests: Sequence[Request]) -> Iterator[Outcome]:
        """Every policy on these requests, one after the other."""
        return (self.run(policy, requests) for policy in POLICIES)

    def record(self, policy: str, requests: Sequence[Request]) -> SimulationResult:
        """The same, keeping who owned which slots at every step."""
        return simulate(requests, policy, record=True, **self.settings)

    def seen_by(self, policy: str) -> Scenario:
        """The same with every setting that this policy pays no heed to at its default.

        Two scenarios that look alike to a policy run alike. Poisson arrivals are paced by what
        "paged" serves, so there every setting counts.
        """
        if self.arrivals == POISSON:
            return self
        ignored = {
            field.name: field.default
            for field in fields(self)
            if field.name in _OF_A_POLICY and policy not in _OF_A_POLICY[field.name]
        }
        return replace(self, **ignored)

    def first(self, count: int) -> Scenario:
        """The same with at most `count` requests."""
        return replace(self, count=min(count, self.count))

    def _drawn(self) -> list[Request]:
        if self.source == SHAREGPT:
            return paper_requests(self.count, self.seed)
        if self.source == ALPACA:
            means, variations = (ALPACA_MEAN_PROMPT, ALPACA_MEAN_OUTPUT), (0.5, 1.0)
        else:
            means, variations = (self.mean_prompt, self.mean_output), (self.variation,) * 2
        return lognormal_requests(
            self.count, *means, *variations, self.seed, max_model_len=self.max_model_len
        )

    def _arriving(self, requests: list[Request]) -> list[Request]:
        if self.arrivals != POISSON or not requests:
            return requests
        capacity = saturated_rate(requests, "paged", self.settings)
        return with_poisson_arrivals(requests, self.load * capacity, self.seed)
