"""The same question asked again, and then with the time in it: what a cache makes of each."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kvcore.lab.prompts import compose
from kvcore.lab.run import Lab, Settings
from kvcore.lab.trace import Prefill


@dataclass(frozen=True)
class Asked:
    """One way of asking, and how its first token came about."""

    how: str
    what_happens: str
    prefill: Prefill


@dataclass(frozen=True)
class _Variant:
    how: str
    what_happens: str
    time_first: bool = False
    time_last: bool = False


VARIANTS = (
    _Variant("first time", "nothing is known yet"),
    _Variant("the same again", "all full blocks are found; the rest is computed"),
    _Variant(
        "time at the top",
        "the first block differs, and with it the name of every block after it",
        time_first=True,
    ),
    _Variant("time at the top, later", "a new time, so a new first block: nothing again", True),
    _Variant(
        "time at the end",
        "what stands before the time is found again",
        time_last=True,
    ),
    _Variant("time at the end, later", "only what follows the time is new", False, True),
)


def timestamp_experiment(
    model: Any,
    system: str,
    question: str,
    *,
    block_size: int = 16,
    started: datetime | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Asked]:
    """Ask in six ways, one after another, in a fresh pool; yield each with its measured prefill.

    Every time differs from the one before by two seconds. Raises LabError for a prompt that does
    not fit the model.
    """
    started = started or datetime.now()
    texts = [
        _text(model, system, question, variant, started + timedelta(seconds=2 * turn))
        for turn, variant in enumerate(VARIANTS)
    ]
    prompts = [model.encode(text) for text in texts]
    num_blocks = 1 + sum(-(-len(prompt) // block_size) for prompt in prompts)
    lab = Lab(model, Settings(block_size=block_size, num_blocks=num_blocks), clock=clock)
    _warm_up(model)
    for variant, prompt in zip(VARIANTS, prompts, strict=True):
        trace = lab.ask(prompt, compare=False)
        yield Asked(variant.how, variant.what_happens, trace.prefill)


def _text(model: Any, system: str, question: str, variant: _Variant, now: datetime) -> str:
    stamp = f"{now:%H:%M:%S} on {now:%Y-%m-%d}"
    return compose(
        model,
        system,
        question,
        time_first=stamp if variant.time_first else None,
        time_last=stamp if variant.time_last else None,
    )


def _warm_up(model: Any) -> None:
    """One short pass, so that the first measured one does not pay for what is done once."""
    lab = Lab(model, Settings(num_blocks=3))
    lab.ask(model.encode("The first pass.")[:16])
