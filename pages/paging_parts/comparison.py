"""What is compared, and its runs: those of the same settings are kept."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cache

import streamlit as st

from kvcore.paging import POLICIES
from kvcore.paging.explain import pool_arithmetic
from kvcore.paging.outcome import Outcome
from kvcore.paging.recording import Recording
from kvcore.paging.requests import Request
from kvcore.paging.scenario import TRACE, Scenario
from kvcore.paging.sharing import Savings, savings, shared_runs
from kvcore.paging.traces import Trace
from pages.paging_parts.kept import Kept
from pages.paging_parts.player import LAST_STEP

AT_ONCE = 7_200


@dataclass(frozen=True)
class Comparison:
    """The scenario, and the trace it takes its requests from with the name of its upload."""

    scenario: Scenario
    trace: Trace | None = None
    file_id: str = ""

    @property
    def key(self) -> Hashable:
        """What tells comparisons apart without reading a whole trace."""
        return self.scenario, self.file_id

    @property
    def lacks_trace(self) -> bool:
        return self.scenario.source == TRACE and self.trace is None

    @property
    def is_quick(self) -> bool:
        """Whether all policies run while the visitor waits, rather than as a job."""
        return self.scenario.source != TRACE and self.scenario.count <= AT_ONCE

    def first(self, count: int) -> Comparison:
        return replace(self, scenario=self.scenario.first(count))

    def seen_by(self, policy: str) -> Comparison:
        return replace(self, scenario=self.scenario.seen_by(policy))

    def requests(self) -> list[Request]:
        return self.scenario.requests(self.trace)


KEY = {Comparison: lambda comparison: comparison.key}


RUNS: Kept[Outcome] = Kept(96)
RECORDINGS: Kept[Recording] = Kept(6)


def run_all(comparison: Comparison) -> list[Outcome]:
    """Every policy's run; a setting moved runs those anew that heed it."""
    requests = cache(comparison.requests)

    def run(policy: str) -> Outcome:
        seen = comparison.seen_by(policy)
        return RUNS.get(
            (seen.key, policy),
            lambda: seen.scenario.run(policy, requests()),
            "Running the policies",
        )

    return [run(policy) for policy in POLICIES]


def recorded(comparison: Comparison, policy: str) -> Recording:
    seen = comparison.seen_by(policy)
    return RECORDINGS.get(
        (seen.key, policy),
        lambda: Recording(seen.scenario.record(policy, seen.requests()), LAST_STEP),
        "Recording where every request lies",
    )


@st.cache_data(max_entries=12, hash_funcs=KEY, show_spinner="Running with and without sharing")
def sharing_runs(comparison: Comparison, samples: int, prefix: int) -> dict[str, Outcome]:
    scenario = comparison.scenario
    runs = shared_runs(comparison.requests(), samples, prefix, scenario.max_model_len)
    return {name: scenario.run("paged", requests) for name, requests in runs.items()}


@st.cache_data(max_entries=12, hash_funcs=KEY, show_spinner=False)
def sharing_saved(comparison: Comparison, samples: int, prefix: int) -> Savings:
    return savings(comparison.requests(), samples, prefix, comparison.scenario.block_size)


@st.cache_data(max_entries=24, hash_funcs=KEY, show_spinner=False)
def arithmetic(comparison: Comparison) -> list[str]:
    return pool_arithmetic(comparison.scenario, comparison.requests())
