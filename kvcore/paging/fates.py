"""What became of requests, in a sentence each: refused, waiting, running, finished."""

from __future__ import annotations

from collections.abc import Sequence

from kvcore.paging.outcome import Outcome
from kvcore.paging.results import SimulationResult
from kvcore.paging.snapshot import PoolState
from kvcore.units import count


def refusals(outcomes: Sequence[Outcome]) -> list[str]:
    """Who can never be served, a line a policy; one line if it is the same for all of them."""
    said = [(outcome.label, _refusal(outcome)) for outcome in outcomes if outcome.refused]
    if len(said) == len(outcomes) and len({sentence for _, sentence in said}) == 1:
        said = [("Every policy", said[0][1])]
    return [f"{label}: {sentence}" for label, sentence in said]


def _refusal(outcome: Outcome) -> str:
    kinds = " and ".join(f"{count(number)} {kind}" for kind, number in outcome.refusals.items())
    first = outcome.first_refusal
    return (
        f"{count(outcome.refused)} of {count(outcome.refused + outcome.completed)} "
        f"requests can never be served ({kinds}). Request {first.index}: {first.reason}"
    )


def fate(run: SimulationResult, state: PoolState, index: int) -> str:
    """How one request of a run stands at the step of `state`."""
    if index >= len(run.requests):
        return f"There is no request {index}."
    request = run.requests[index]
    what = f"Request {index} ({request.prompt:,} tokens in, {request.output:,} out)"
    if index in state.running:
        return f"{what} runs and holds {state.running[index]:,} tokens."
    refused = next((refusal for refusal in run.refused if refusal.index == index), None)
    if refused is not None:
        return f"{what} can never be served. {refused.reason}"
    finished = run.finished_at[index]
    if finished is not None and finished <= state.step:
        return f"{what} finished before step {finished:,}."
    return f"{what} waits." if request.arrival <= state.step else f"{what} has not arrived."
