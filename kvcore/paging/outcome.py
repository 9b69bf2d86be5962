"""What a page keeps of a run: small enough to cache, complete enough for every chart and table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from kvcore.paging.results import (
    Moment,
    Parts,
    Preemption,
    Refusal,
    SimulationResult,
    Split,
    split_of,
)

KEPT_PREEMPTIONS = 200
KEPT_MOMENTS = 200

LABELS = {
    "contiguous-max": "Reserve the longest (Orca Max)",
    "contiguous-pow2": "Round the output up (Orca Pow2)",
    "contiguous-oracle": "Know the output (Orca Oracle)",
    "paged": "Blocks as needed (vLLM)",
    "demand-paged": "Large pages as needed (vAttention)",
}

SYSTEMS = {
    "contiguous-max": "Orca (Max)",
    "contiguous-pow2": "Orca (Pow2)",
    "contiguous-oracle": "Orca (Oracle)",
    "paged": "vLLM",
    "demand-paged": "vAttention",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run without its requests and its pool. Waits are in steps, from arrival to admission.

    `refusals` counts refused requests by kind; of `preemption_log` the first
    `KEPT_PREEMPTIONS` entries are kept, of the timeline `KEPT_MOMENTS` moments.
    """

    policy: str
    num_slots: int
    parts: Parts
    batch_size: float
    requests_per_step: float
    steps: int
    completed: int
    refusals: dict[str, int]
    first_refusal: Refusal | None
    preemptions: int
    most_preempted: int
    recomputed_tokens: int
    swapped_tokens: int
    generated_tokens: int
    recomputed_per_generated: float
    hit_share: float
    copied_blocks: int
    wait_p50: float
    wait_p95: float
    preemption_log: tuple[Preemption, ...]
    moments: tuple[Moment, ...]

    @property
    def label(self) -> str:
        return LABELS[self.policy]

    @property
    def system(self) -> str:
        """The system the paper takes to work so: short, for the axis of a chart."""
        return SYSTEMS[self.policy]

    @property
    def preemptions_per_request(self) -> float:
        return self.preemptions / max(1, self.completed)

    @property
    def refused(self) -> int:
        return sum(self.refusals.values())

    @property
    def runs_nothing(self) -> bool:
        """Whether not one request could be served."""
        return not self.completed

    def split(self, buddy_slack: str = "external", block_slack: str = "strict") -> Split:
        """See `SimulationResult.split`."""
        return split_of(self.policy, self.parts, self.num_slots, buddy_slack, block_slack)


def outcome_of(result: SimulationResult) -> Outcome:
    """Boil a run down to an `Outcome`."""
    waits = result.waits or [0.0]
    moments = result.timeline.moments
    return Outcome(
        policy=result.policy,
        num_slots=result.num_slots,
        parts=result.parts,
        batch_size=result.batch_size,
        requests_per_step=result.requests_per_step,
        steps=result.steps,
        completed=result.completed,
        refusals=dict(Counter(refusal.kind for refusal in result.refused)),
        first_refusal=result.refused[0] if result.refused else None,
        preemptions=result.preemptions,
        most_preempted=result.most_preempted[1],
        recomputed_tokens=result.recomputed_tokens,
        swapped_tokens=result.swapped_tokens,
        generated_tokens=result.generated_tokens,
        recomputed_per_generated=result.recomputed_per_generated,
        hit_share=result.hit_tokens / max(1, result.prompt_tokens),
        copied_blocks=result.copied_blocks,
        wait_p50=float(np.percentile(waits, 50)),
        wait_p95=float(np.percentile(waits, 95)),
        preemption_log=tuple(result.preemption_log[:KEPT_PREEMPTIONS]),
        moments=tuple(moments[:: max(1, -(-len(moments) // KEPT_MOMENTS))]),
    )
