import json

import pandas as pd
import pytest

from kvcore.charts.live_timing import CACHED, FLOOR, PEER, UNCACHED
from kvcore.decoding import PromptError, run_frames
from kvcore.decoding.run import Run, Settings, recorded
from tests.small_models import small_model

PROMPT = "a card for every page"


@pytest.fixture(params=["gpt2", "llama"])
def model(request, monkeypatch):
    chosen = small_model(request.param)
    monkeypatch.setattr("kvcore.decoding.run.SHELF.take", lambda name, **options: chosen)
    return chosen


def measured(**settings):
    run = Run(Settings(**{"prompt": PROMPT, "new_tokens": 20, "with_peer": False, **settings}))
    for _ in run.measure():
        pass
    return run


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_run_counts_its_tokens_and_finds_both_ways_the_same(model, temperature):
    run = measured(temperature=temperature)
    prompt = len(PROMPT)
    assert run.comparison.cached.tokens_processed == prompt + 19
    assert run.comparison.uncached.tokens_processed == sum(range(prompt, prompt + 20))
    assert run.comparison.agreement.verdict == "identical"
    assert run.cached_text == run.uncached_text
    assert run.pairs[-1].cached.cache_bytes == (prompt + 19) * model.cache_bytes_per_token


def test_a_sampled_run_measures_some_uncached_steps(model):
    run = measured(samples=5)
    assert run.comparison.is_sampled
    assert run.comparison.uncached.measured == 5
    assert run.comparison.uncached.reached == 20
    assert len(run.comparison.speed_up()) == 20
    assert run.comparison.agreement.compared == 5


def test_the_frames_hold_every_series(model):
    run = measured(with_peer=True)
    series = set(run_frames.step_times(run)["series"].to_pylist())
    assert series == {CACHED, UNCACHED, FLOOR, PEER}
    assert [index for index, _ in run.peer] == [8, 16]
    exported = run_frames.export(run)
    assert exported.cached_seconds.sum() == pytest.approx(run.comparison.cached.total_seconds)
    assert exported.cached_tokens_run.tolist() == [len(PROMPT)] + [1] * 19


def test_a_run_comes_back_from_its_data(model):
    run = measured()
    back = Run.from_data(json.loads(json.dumps(run.as_data())))
    assert back.settings == run.settings
    assert back.cached_text == run.cached_text
    pd.testing.assert_frame_equal(
        run_frames.speed_up(back).to_pandas(),
        run_frames.speed_up(run).to_pandas(),
        check_exact=False,
        atol=0.5,
    )
    same = ("verdict", "tokens_compared", "uncached_steps_measured", "weights")
    assert {key: run_frames.summary(back)[key] for key in same} == {
        key: run_frames.summary(run)[key] for key in same
    }


def test_an_empty_prompt_is_refused_before_a_model_is_loaded():
    with pytest.raises(PromptError, match="empty"):
        next(Run(Settings(prompt="")).measure())


def test_a_prompt_beyond_the_context_is_refused(model):
    with pytest.raises(PromptError, match="positions"):
        next(Run(Settings(prompt="x" * 600, with_peer=False)).measure())


def test_a_run_without_its_processor_was_disturbed():
    run = Run(Settings(threads=1), cpu_share=0.5)
    assert run.was_disturbed
    assert not Run(Settings(threads=1), cpu_share=0.99).was_disturbed
    assert not Run(Settings(threads=1)).was_disturbed


def test_the_recorded_run_is_whole():
    run = recorded()
    assert run.comparison.cached.measured == 1_000
    assert run.comparison.uncached.measured == 1_000
    assert not run.comparison.is_sampled
    assert run.comparison.agreement.verdict == "identical"
    assert run.comparison.agreement.compared == 1_000
    assert run.facts.source != "random"
