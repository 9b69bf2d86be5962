"""What became of requests: refused in one line or several, and one request step by step."""

import pytest

from kvcore.paging import POLICIES, Request, simulate
from kvcore.paging.explain import alpaca_note, sharing_note
from kvcore.paging.fates import fate, refusals
from kvcore.paging.scenario import ALPACA, SHAREGPT, Scenario
from kvcore.paging.snapshot import largest_for_one, pool_state

THREE = [Request(20, 4), Request(20, 4), Request(20, 4, arrival=6.0), Request(100, 4)]


@pytest.fixture(scope="module")
def run():
    """Room for one request at a time; the last is longer than the model takes."""
    return simulate(THREE, "contiguous-oracle", num_slots=32, max_model_len=64, record=True)


@pytest.mark.parametrize(
    ("step", "index", "said"),
    [
        (0, 0, "Request 0 (20 tokens in, 4 out) runs and holds "),
        (0, 1, "Request 1 (20 tokens in, 4 out) waits."),
        (0, 2, "Request 2 (20 tokens in, 4 out) has not arrived."),
        (0, 3, "Request 3 (100 tokens in, 4 out) can never be served. "),
        (0, 4, "There is no request 4."),
    ],
)
def test_one_request_at_one_step(run, step, index, said):
    assert fate(run, pool_state(run, step), index).startswith(said)


def test_who_is_done_has_finished(run):
    last = pool_state(run, run.steps)
    assert fate(run, last, 0).endswith(f"finished before step {run.finished_at[0]:,}.")


def test_a_refusal_common_to_all_policies_is_said_once():
    scenario = Scenario(max_model_len=64)
    outcomes = list(scenario.run_all([Request(20, 4), Request(100, 4)]))
    assert [outcome.policy for outcome in outcomes] == list(POLICIES)
    (line,) = refusals(outcomes)
    assert line.startswith("Every policy: 1 of 2 requests can never be served (1 ")
    assert "Request 1: " in line


def test_refusals_that_differ_name_their_policies():
    scenario = Scenario(num_slots=800)
    outcomes = list(scenario.run_all([Request(20, 4)]))
    (line,) = refusals(outcomes)
    assert line.startswith(f"{outcomes[0].label}: 1 of 1 requests can never be served")
    assert refusals(outcomes[1:]) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_one_request_gets_a_chunk_or_any_free_block(policy):
    requests = [Request(10, 2), Request(10, 6), Request(10, 2), Request(10, 6), Request(10, 10)]
    run = simulate(requests, policy, num_slots=64, max_model_len=32, page_bytes=2**16, record=True)
    for step in range(run.steps):
        state = pool_state(run, step)
        expected = max if policy.startswith("contiguous") else sum
        sizes = [size for _, size in state.free_chunks] or [0]
        assert largest_for_one(run, state) == expected(sizes)


def test_notes_quote_the_paper_and_put_these_runs_beside_it():
    outcome = Scenario(source=ALPACA, count=200).run("paged", Scenario(count=200).requests())
    assert f"({outcome.batch_size:.2f} here)" in alpaca_note([outcome])
    assert "132.44" in alpaca_note([outcome])
    note = sharing_note()
    assert "16.2 to 30.5 % for ShareGPT" in note
    assert "37.56 % with 2, 53.13 % with 4, 55.16 % with 6 beams" in note


def test_figures_of_the_paper_belong_to_its_own_pool():
    assert Scenario(source=SHAREGPT).is_the_papers
    assert Scenario(source=ALPACA).is_figure_13
    assert not Scenario(source=ALPACA).is_the_papers
    assert not Scenario(source=ALPACA, num_slots=1_000).is_figure_13
