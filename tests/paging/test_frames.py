"""Tables behind the pictures, and what the page says in words."""

from dataclasses import replace

import pytest

from kvcore.charts import paging as charts
from kvcore.charts.theme import spec
from kvcore.paging import POLICIES, Request, frames, paper_requests, simulate
from kvcore.paging.experiments import curve_points, curve_values
from kvcore.paging.explain import fit_table, paper_notes, pool_arithmetic
from kvcore.paging.hardware import named_pool, pooled_models
from kvcore.paging.outcome import KEPT_MOMENTS, KEPT_PREEMPTIONS, outcome_of
from kvcore.paging.scenario import ALPACA, LOGNORMAL, POISSON, RECORDED, TRACE, Scenario
from kvcore.paging.sharing import THESE, savings, shared_runs
from kvcore.paging.snapshot import pool_state
from kvcore.paging.traces import read_trace

SMALL = Scenario(count=300)
TWO_ROWS = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
    b"2023-11-16 18:15:46.0,374,44\n"
    b"2023-11-16 18:15:50.0,396,109\n"
)


@pytest.fixture(scope="module")
def outcomes():
    requests = SMALL.requests()
    return [SMALL.run(policy, requests) for policy in POLICIES]


def test_bars_of_paper_and_simulation_stand_in_pairs(outcomes):
    frame = frames.bars(outcomes, with_paper=True)
    names = list(dict.fromkeys(frame["bar"]))
    assert names[:3] == ["Orca (Max), paper", "Orca (Max), here", "Orca (Pow2), paper"]
    assert len(names) == 9
    for _, bar in frame.groupby("bar"):
        assert bar["start"].iloc[0] == 0
        assert list(bar["start"].iloc[1:]) == list(bar["end"].iloc[:-1])
    assert set(frames.bars(outcomes, with_paper=False)["source"]) == {"here"}


def test_gaps_are_here_minus_paper_and_only_where_the_paper_prints():
    outcome = outcome_of(simulate(paper_requests(300), "contiguous-max"))
    parts = replace(outcome.parts, tokens=0.224 * 15_728)
    row = frames.gaps([replace(outcome, parts=parts)]).iloc[0]
    assert row["Tokens"] == "+2.0"
    assert row["External"] == "0.0"
    assert row["At once (%)"] == "0.0"
    paged = frames.gaps([outcome_of(simulate(paper_requests(300)))]).iloc[0]
    assert paged["Reserved"] == paged["External"] == "not printed"


def test_the_table_holds_every_policy(outcomes):
    table = frames.table(outcomes)
    assert len(table) == len(POLICIES)
    shares = table.filter(like="(%)").iloc[:, :4].sum(axis=1)
    assert list(shares) == pytest.approx([100] * 5)


def test_an_outcome_stays_small():
    outcome = outcome_of(simulate(paper_requests(1_000)))
    assert len(outcome.preemption_log) <= KEPT_PREEMPTIONS < outcome.preemptions
    assert len(outcome.moments) <= KEPT_MOMENTS
    assert len(frames.preemption_log(outcome)) == len(outcome.preemption_log)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_map_covers_the_pool_and_nothing_twice(policy):
    run = SMALL.record(policy, SMALL.requests())
    state = pool_state(run, 200)
    frame, shown = frames.memory_map(state)
    assert shown == run.num_slots
    area = (frame["x2"] - frame["x"]).sum()
    unreachable = run.num_slots - sum(p.size for p in state.pieces) - state.usable
    assert area == pytest.approx(run.num_slots - unreachable)
    assert (frame["x2"] <= 512 + 1e-9).all()
    filled = frame[frame["what"] == "holds a token"]
    assert (filled["x2"] - filled["x"]).sum() == pytest.approx(sum(p.tokens for p in state.pieces))


def test_a_followed_request_is_framed_and_named_for_shared_blocks_too():
    requests = [Request(40, 8, prefix_id="a", prefix_tokens=32)] * 2
    state = pool_state(simulate(requests, num_slots=640, record=True), 0)
    frame, _ = frames.memory_map(state, followed=1)
    mine = frame[frame["followed"]]
    assert set(mine["request"]) == {1}
    assert "0, 1" in set(mine["owners"])


def test_a_large_pool_is_cut_where_the_rectangles_end():
    run = simulate(paper_requests(150), num_slots=100_000, block_size=2, record=True)
    frame, shown = frames.memory_map(pool_state(run, 150))
    assert shown < 100_000
    assert len(frame) <= frames.MAX_MAP_RECTANGLES + 200


def test_neighbouring_full_blocks_of_one_request_are_one_rectangle():
    run = simulate([Request(64, 5)], num_slots=640, record=True)
    frame, _ = frames.memory_map(pool_state(run, 0))
    first = frame.iloc[0]
    assert (first["x"], first["x2"], first["place"]) == (0, 65, "block 0 to 4")


@pytest.mark.parametrize(
    ("setting", "policy"),
    [
        ("block_size", "paged"),
        ("watermark", "paged"),
        ("load", "contiguous-max"),
        ("num_slots", "paged"),
    ],
)
def test_every_curve_has_its_points(setting, policy):
    requests = SMALL.requests()
    values = curve_values(setting, SMALL)
    runs = curve_points(requests, setting, values, policy, SMALL)
    frame = frames.curve((value, outcome_of(run)) for value, run in runs)
    assert list(frame["value"]) == list(values)
    assert frame["tokens"].between(0, 100).all()


def test_there_is_no_curve_of_anything_else():
    with pytest.raises(ValueError, match="no curve of 'seed'"):
        curve_values("seed", SMALL)


def test_charts_do_not_depend_on_the_rows(outcomes):
    """The built spec is cached for a shape of frame."""
    run = SMALL.record("paged", SMALL.requests())
    full, _ = frames.memory_map(pool_state(run, 10))
    for build, frame, options in (
        (charts.figure_2, frames.bars(outcomes, True), {}),
        (charts.memory_map, full, {}),
        (charts.free_space, frames.at_step(frames.free_table(outcomes[0], 500), 3).to_pandas(), {}),
        (
            charts.curve,
            frames.curve([(1.0, outcomes[0])]).assign(chosen=1.0),
            {"column": "tokens", "y_title": "a", "x_title": "b", "x_log": True},
        ),
        (charts.savings, savings(SMALL.requests(), 2, 0, 16).table, {}),
    ):
        assert spec(build(frame, **options)) == spec(build(frame.iloc[:0], **options))


def test_what_the_notes_say_is_computed():
    first, second = paper_notes()
    assert "30.42 requests is 498 tokens a request" in first
    assert "imply 430 to 458" in first
    assert "would fill 8" in first
    assert "1.04 %" in second


def test_the_arithmetic_carries_the_users_numbers():
    lines = "\n".join(pool_arithmetic(Scenario(), paper_requests(2_000)))
    assert "12,884,901,888 ÷ 819,200 = 15,728.64" in lines
    assert "8,192 + 4,096 + 2,048 + 1,024 + 256 + 64 + 32 + 16" in lines
    assert "7 chunks of 2,048 fit" in lines
    assert "⌊15,728 ÷ 16⌋ = 983; the watermark keeps ⌊0.01 × 983⌋ = 9" in lines
    other = "\n".join(pool_arithmetic(Scenario(num_slots=1_000), []))
    assert "GiB" not in other
    assert "⌊1,000 ÷ 16⌋ = 62" in other


def test_would_a_request_fit():
    """vllm-project/vllm#35541 on the page: 49 blocks, a prompt of 1,002 tokens."""
    table = fit_table(Request(1_002, 100), Scenario(num_slots=784)).set_index("Policy")
    assert table["Can it run"].str.contains("needs").all()
    fits = fit_table(Request(1_002, 100), Scenario()).set_index("Policy")
    assert fits.loc["Blocks as needed (vLLM)", "Slots when let in"] == 1_008
    assert fits.loc["Blocks as needed (vLLM)", "Never used"] == 2
    assert fits.loc["Reserve the longest (Orca Max)", "Never used"] == 2_048 - 1_102
    long = fit_table(Request(3_000, 1), Scenario())
    assert long["Can it run"].str.contains("more than the 2,048 the model takes").all()


def test_scenarios_draw_what_they_say():
    alpaca = Scenario(source=ALPACA, count=4_000).requests()
    assert sum(r.prompt for r in alpaca) / 4_000 == pytest.approx(19.31, rel=0.03)
    mine = Scenario(source=LOGNORMAL, count=500, mean_prompt=50, variation=0).requests()
    assert {request.prompt for request in mine} == {50}
    trace = read_trace(TWO_ROWS)
    recorded = Scenario(source=TRACE, arrivals=RECORDED, steps_per_second=10)
    assert [request.arrival for request in recorded.requests(trace)] == [0, 40]
    assert [r.arrival for r in Scenario(source=TRACE).requests(trace)] == [0, 0]
    assert len(Scenario(source=TRACE, count=1).requests(trace)) == 1
    with pytest.raises(ValueError, match="needs a trace"):
        recorded.requests()


def test_a_poisson_scenario_keeps_the_pool_as_full_as_its_load():
    busy = Scenario(count=2_000, arrivals=POISSON, load=0.5)
    outcome = busy.run("paged", busy.requests())
    assert outcome.split().token_states == pytest.approx(48, abs=3)


def test_only_the_papers_requests_in_the_papers_pool_are_the_papers():
    assert Scenario().is_the_papers
    assert not Scenario(num_slots=15_729).is_the_papers
    assert not Scenario(source=ALPACA).is_the_papers


def test_sharing_runs_do_the_same_work():
    runs = shared_runs([Request(10, 5), Request(2_000, 40)], 3, 20, max_model_len=2_048)
    assert len(runs["shared"]) == 1
    assert len(runs["apart"]) == 3
    assert {request.prompt for request in runs["apart"]} == {30}
    assert runs["shared"][0].samples == 3


def test_savings_stand_beside_the_papers():
    saved = savings(paper_requests(500), 4, 80, 16)
    row = saved.table.query("samples == 4 and series == @THESE").iloc[0]
    assert row["percent"] == pytest.approx(saved.by_samples)
    assert THESE in set(saved.table["series"])


def test_a_named_model_on_a_named_gpu():
    pool = named_pool("Llama-3.1-8B", "H100 80 GB SXM")
    assert pool.bytes_per_slot == 131_072
    assert pool.tensor_bytes == 2 * 8 * 128
    assert pool.num_slots == pool.free_bytes // 131_072
    both = named_pool("Llama-3.1-8B", "H100 80 GB SXM", num_gpus=2)
    assert both.bytes_per_slot == 65_536
    assert both.num_slots > 2 * pool.num_slots


def test_the_papers_own_model_is_among_them():
    assert named_pool("OPT-13B", "A100 40 GB").bytes_per_slot == 819_200


def test_pools_that_cannot_be_get_a_sentence():
    with pytest.raises(ValueError, match="leave no room for a cache on A10 24 GB; choose a larger"):
        named_pool("Llama-3.1-70B", "A10 24 GB")
    assert "DeepSeek-V3.2" not in pooled_models()
    with pytest.raises(ValueError, match="more than K and V of every token"):
        named_pool("DeepSeek-V3.2", "H100 80 GB SXM")
