"""What a policy pays no heed to does not change its run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvcore.paging import POLICIES
from kvcore.paging.recording import STILLS_KEPT, Recording
from kvcore.paging.scenario import POISSON, Scenario

ODD = Scenario(
    count=400,
    num_slots=6_000,
    block_size=64,
    watermark=0.08,
    preemption="swap",
    look_ahead=2,
    page_bytes=128 * 1024,
    tensor_bytes=4_096,
)


@pytest.mark.parametrize("policy", POLICIES)
def test_scenarios_that_look_alike_to_a_policy_run_alike(policy):
    seen = ODD.seen_by(policy)
    assert seen != ODD
    assert seen.run(policy, ODD.requests()) == ODD.run(policy, ODD.requests())


def test_what_a_policy_heeds_tells_scenarios_apart():
    for name, policies in (
        ("block_size", {"paged"}),
        ("watermark", {"paged", "demand-paged"}),
        ("page_bytes", {"demand-paged"}),
        ("seed", set(POLICIES)),
        ("look_ahead", set(POLICIES)),
    ):
        other = replace(ODD, **{name: getattr(Scenario(), name) + (name in ("seed",))})
        apart = {policy for policy in POLICIES if other.seen_by(policy) != ODD.seen_by(policy)}
        assert apart == policies, name


def test_poisson_arrivals_are_paced_by_paging_so_every_setting_counts():
    paced = replace(ODD, arrivals=POISSON)
    assert paced.seen_by("contiguous-max") == paced


def test_a_recording_keeps_the_last_few_steps():
    recording = Recording(ODD.record("paged", ODD.requests()), last_step=500)
    first = recording.still(100, None)
    assert recording.still(100, None) is first
    assert recording.still(100, 3) is not first
    for step in range(STILLS_KEPT):
        recording.still(step, None)
    again = recording.still(100, None)
    assert again is not first
    assert again.map == first.map
    assert again.free["now"].to_pylist()[-1] == 100
    assert max(recording.free["step"].to_pylist()) <= 500
