"""One step after another: counts, bytes, clock, threads, and what is refused before the first."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.decoding import generate
from kvcore.decoding.errors import PromptError, SettingsError
from kvcore.decoding.generate import Way, choose, draw
from tests.small_models import SHAPES, small_model

PROMPT = [5, 6, 7, 8]


@pytest.fixture(params=SHAPES)
def model(request):
    return small_model(request.param)


class Ticks:
    """A clock that goes on by one second each time it is read."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_with_a_cache_one_prefill_then_one_token_a_step(model):
    steps = list(generate(model, PROMPT, 6))
    assert [step.tokens_processed for step in steps] == [4, 1, 1, 1, 1, 1]
    assert [step.phase for step in steps] == ["prefill"] + ["decode"] * 5
    per_token = model.cache_bytes_per_token
    assert [step.cache_bytes for step in steps] == [n * per_token for n in range(4, 10)]


def test_without_a_cache_every_step_runs_everything(model):
    steps = list(generate(model, PROMPT, 6, use_cache=False))
    assert [step.tokens_processed for step in steps] == [4, 5, 6, 7, 8, 9]
    assert [step.cache_bytes for step in steps] == [0] * 6
    assert [step.index for step in steps] == list(range(6))


def test_seconds_are_those_of_the_clock_passed_in(model):
    assert [step.seconds for step in generate(model, PROMPT, 3, clock=Ticks())] == [1.0] * 3


def test_exactly_as_many_steps_as_asked_for_up_to_the_context(model):
    room = model.context_length - len(PROMPT)
    assert sum(1 for _ in generate(model, PROMPT, room)) == room


def test_the_naive_loop_makes_the_same_text(model):
    lean = [step.token_id for step in generate(model, PROMPT, 30, use_cache=False)]
    naive = [step.token_id for step in generate(model, PROMPT, 30, False, all_logits=True)]
    assert lean == naive


@pytest.mark.parametrize("all_logits", [False, True])
def test_logits_of_all_positions_are_never_kept(model, all_logits):
    way = Way(model, PROMPT, 3, False, 0.7, 0, all_logits)
    way.step()
    assert way.logits.untyped_storage().nbytes() == model.vocab_size * 4


def test_a_seed_makes_a_text_and_another_seed_another(model):
    texts = [
        [step.token_id for step in generate(model, PROMPT, 30, seed=seed)] for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_the_global_generator_is_left_alone(model):
    before = torch.random.get_rng_state()
    list(generate(model, PROMPT, 5))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_sampling_follows_the_softmax():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    generator = torch.Generator().manual_seed(0)
    count = 4_000
    chosen = torch.tensor([choose(logits, draw(logits, 0.7, generator))[0] for _ in range(count)])
    share = chosen.bincount(minlength=4) / count
    torch.testing.assert_close(share, (logits / 0.7).softmax(0), atol=0.03, rtol=0)


def test_the_gap_at_temperature_0_is_between_the_two_best_logits():
    assert choose(torch.tensor([0.5, 3.0, 2.25]), None) == (1, 0.75)


def test_it_runs_in_another_thread_with_the_threads_asked_for(model):
    seen = []

    def run():
        steps = generate(model, PROMPT, 3, threads=2)
        seen.extend((step.token_id, torch.get_num_threads()) for step in steps)

    worker = threading.Thread(target=run)
    worker.start()
    worker.join()
    here = [step.token_id for step in generate(model, PROMPT, 3, threads=1)]
    assert [token for token, _ in seen] == here
    assert {threads for _, threads in seen} == {2}


@pytest.mark.parametrize(
    ("prompt", "count", "message"),
    [
        ([], 5, "The prompt is empty"),
        ([1] * 512, 1, "512 tokens and .* 512 positions"),
        ([1] * 600, 1, "600 tokens"),
        ([1] * 500, 13, "at most 12 new ones"),
        ([1, 256], 5, "Token 256"),
        ([-1], 5, "Token -1"),
        ([1, None], 5, "whole number, not None"),
        ([1.5], 5, "whole number, not 1.5"),
        ([True], 5, "whole number, not True"),
        ([[1, 2]], 5, "whole number"),
        ("abc", 5, "whole number, not 'a'"),
        (None, 5, "list of token ids"),
        (5, 5, "list of token ids"),
    ],
)
def test_a_prompt_that_cannot_run_is_refused_before_the_first_step(model, prompt, count, message):
    with pytest.raises(PromptError, match=message) as refused:
        generate(model, prompt, count)
    assert str(refused.value).count(". ") == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": "hot"},
        {"temperature": None},
        {"seed": -1},
        {"seed": 2**63},
        {"seed": 0.5},
        {"seed": True},
        {"max_new_tokens": 0},
        {"max_new_tokens": True},
        {"max_new_tokens": "3"},
        {"threads": 0},
        {"threads": "2"},
    ],
)
def test_settings_out_of_range_are_refused(model, changes):
    with pytest.raises(SettingsError):
        generate(model, PROMPT, **{"max_new_tokens": 3} | changes)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=40), st.integers(0, 2**63 - 1))
def test_both_ways_agree_whatever_the_prompt_and_seed(prompt, seed):
    model = small_model("llama")
    ways = (generate(model, prompt, 4, use_cache, 1.3, seed) for use_cache in (True, False))
    with_cache, without = ([step.token_id for step in steps] for steps in ways)
    assert with_cache == without
