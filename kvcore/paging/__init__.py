"""Where the memory of a KV cache goes: contiguous reservations against paging, simulated."""

from kvcore.paging.blocks import BlockAllocator
from kvcore.paging.buddy import BuddyAllocator
from kvcore.paging.policies import POLICIES
from kvcore.paging.requests import (
    Request,
    lognormal_requests,
    paper_requests,
    with_poisson_arrivals,
)
from kvcore.paging.results import SimulationResult, Split
from kvcore.paging.simulation import simulate

__all__ = [
    "POLICIES",
    "BlockAllocator",
    "BuddyAllocator",
    "Request",
    "SimulationResult",
    "Split",
    "lognormal_requests",
    "paper_requests",
    "simulate",
    "with_poisson_arrivals",
]
