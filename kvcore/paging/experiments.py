"""The same requests under several policies or settings, one run at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvcore.paging.requests import Request, with_poisson_arrivals
from kvcore.paging.results import SimulationResult
from kvcore.paging.simulation import simulate


def compare(
    requests: Sequence[Request], policies: Sequence[str], **settings: Any
) -> Iterator[SimulationResult]:
    """Each policy on the same requests; `settings` are those of `simulate`."""
    for policy in policies:
        yield simulate(requests, policy, **settings)


def sweep(
    requests: Sequence[Request],
    setting: str,
    values: Sequence[float],
    policy: str = "paged",
    **settings: Any,
) -> Iterator[tuple[float, SimulationResult]]:
    """One run for each value of a setting of `simulate`, the others as given."""
    for value in values:
        yield value, simulate(requests, policy, **{**settings, setting: value})


def load_sweep(
    requests: Sequence[Request],
    loads: Sequence[float],
    policy: str,
    seed: int = 0,
    **settings: Any,
) -> Iterator[tuple[float, SimulationResult]]:
    """Poisson arrivals at each multiple of what the policy serves when requests never run out."""
    capacity = saturated_rate(requests, policy, settings)
    for load in loads:
        arriving = with_poisson_arrivals(requests, load * capacity, seed)
        yield load, simulate(arriving, policy, **settings)


def saturated_rate(requests: Sequence[Request], policy: str, settings: Mapping[str, Any]) -> float:
    """Requests served per step when the queue never empties: the policy's capacity.

    Raises ValueError when the policy can serve none of the requests.
    """
    waiting = [request.at(0.0) for request in requests]
    result = simulate(waiting, policy, **settings)
    if not result.completed:
        raise ValueError(f"{policy} can serve none of these requests.")
    return result.requests_per_step
