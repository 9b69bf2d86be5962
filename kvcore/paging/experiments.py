"""The same requests under several policies or settings, one run at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvcore.paging.requests import Request, with_poisson_arrivals
from kvcore.paging.results import SimulationResult
from kvcore.paging.simulation import simulate

if TYPE_CHECKING:
    from kvcore.paging.scenario import Scenario

CURVE_VALUES: Mapping[str, Sequence[float]] = {
    "block_size": (1, 8, 16, 32, 64, 128, 256),
    "watermark": (0, 0.01, 0.02, 0.05, 0.10),
    "load": (0.5, 0.7, 0.9, 1.0, 1.5),
}


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


def curve_values(setting: str, scenario: Scenario) -> list[float]:
    """Where a curve of `setting` is sampled; pools from a quarter to four times the chosen one.

    Raises ValueError for a setting without a curve.
    """
    if setting == "num_slots":
        return [max(1, int(scenario.num_slots * share)) for share in (0.25, 0.5, 1, 2, 4)]
    if setting not in CURVE_VALUES:
        raise ValueError(f"There is no curve of {setting!r}.")
    return list(CURVE_VALUES[setting])


def curve_points(
    requests: Sequence[Request],
    setting: str,
    values: Sequence[float],
    policy: str,
    scenario: Scenario,
) -> Iterator[tuple[float, SimulationResult]]:
    """One run of `policy` for each value, everything else as in the scenario."""
    if setting == "load":
        return load_sweep(requests, values, policy, scenario.seed, **scenario.settings)
    return sweep(requests, setting, values, policy, **scenario.settings)
