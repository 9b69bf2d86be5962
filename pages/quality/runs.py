"""A run as a job, and what it has come to so far."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from kvcore import recordings
from kvcore.decoding.known import KNOWN
from kvcore.decoding.shelf import SHELF
from kvcore.jobs import Job, Work
from kvcore.quality import Haystack, Plan, recall_rows, run, score_rows
from kvcore.quality.plan import Result
from pages.common.text import as_text
from pages.quality.results import Outcome


class Texts(NamedTuple):
    """The first result of a run: the texts with facts, and whose weights read them."""

    stacks: list[Haystack]
    made: str


def measuring(name: str, text: str, source: str, plan: Plan) -> Work:
    """A run of the plan as a job."""

    def work(job: Job) -> Iterator[Texts | Result]:
        job.total = plan.steps + 1
        model = SHELF.take(name, should_stop=lambda: job.stopping)
        if model.source == "random":
            raise ValueError(
                f"{model.notice} Random weights have no quality to lose; choose SmolLM2, or load "
                "GPT-2 where the hub can be reached."
            )
        made = (
            f"Measured here and now: {as_text(KNOWN[name].title)} ({model.source}), "
            f"{as_text(source)}, budget {plan.budget}, on {as_text(recordings.processor_name())}."
        )
        yield Texts(plan.haystacks(model.encode, text), made)
        yield from run(model, text, plan, lambda: job.stopping)

    return work


def outcome_of(job: Job) -> Outcome:
    """What a job has measured so far."""
    found = list(job.results)
    texts = found[0] if found and isinstance(found[0], Texts) else Texts([], "")
    measured = [result for result in found if not isinstance(result, Texts)]
    return Outcome(
        score_rows(measured),
        recall_rows(measured),
        texts.made,
        [{"seed": stack.seed, "text": stack.text} for stack in texts.stacks],
    )


@lru_cache
def recorded() -> Outcome:
    recording = recordings.read("cache_quality")
    data = recording.data
    made = (
        f"{recording.label} Text: {as_text(data['text'])}; {data['tokens']:,} tokens, budget "
        f"{data['budget']}."
    )
    return Outcome(data["scores"], data["recall"], made, data["texts"])
