"""With the cache and without it: the same tokens, for greedy and for sampled text."""

import pytest
import torch

from kvcore.decoding import Agreement, Comparison, compare, forward, generate, load
from kvcore.decoding.errors import CacheError
from kvcore.decoding.generate import choose, draw
from tests.decoding.checkpoints import random_ids

TOKENS = 200
TEMPERATURES = (0.0, 0.7)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_200_tokens_are_the_same_both_ways(checkpoint, temperature):
    model, prompt = load(checkpoint[1]), random_ids(16)
    with_cache = list(generate(model, prompt, TOKENS, True, temperature, seed=3))
    without = list(generate(model, prompt, TOKENS, False, temperature, seed=3))
    assert [step.token_id for step in with_cache] == [step.token_id for step in without]
    if temperature:
        assert len({step.token_id for step in with_cache}) > TOKENS / 4


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_compare_finds_them_identical(checkpoint, temperature):
    model, prompt = load(checkpoint[1]), random_ids(16)
    result = Comparison(len(prompt), TOKENS)
    for pair in compare(model, prompt, TOKENS, temperature=temperature):
        result.add(pair)
    assert result.agreement.verdict == "identical"
    assert result.agreement.compared == TOKENS
    assert result.agreement.largest_difference <= 1e-4


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_a_cache_of_another_prefix_is_found_wrong(checkpoint, temperature, monkeypatch):
    model, prompt, other = load(checkpoint[1]), random_ids(16), random_ids(16, seed=1)

    def poisoned(*args, **options):
        cache = new_cache(*args, **options)
        forward(model, other[:-1], cache)
        cache.token_ids = prompt[:-1]
        return cache

    new_cache = model.new_cache
    monkeypatch.setattr(model, "new_cache", poisoned)
    pairs = list(compare(model, prompt, 40, temperature=temperature))
    assert Agreement.of(pairs).verdict == "wrong"
    assert Agreement.of(pairs).first_difference is not None


def test_a_cache_of_another_prefix_is_refused(checkpoint):
    model, prompt, other = load(checkpoint[1]), random_ids(16), random_ids(16, seed=1)
    cache = model.new_cache()
    forward(model, other, cache)
    with pytest.raises(CacheError, match="another text"):
        forward(model, [*prompt, 5], cache)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_smollm2_makes_200_tokens_as_one_uncached_pass_would(smollm2, smollm2_runs, temperature):
    """Row i of one pass over the whole text is the uncached step at i, for all steps at once."""
    run = smollm2_runs[temperature]
    rows = forward(smollm2, run.token_ids[:-1], all_logits=True)[-TOKENS:]
    generator = torch.Generator().manual_seed(run.seed)
    uncached = [choose(row, draw(row, temperature, generator))[0] for row in rows]
    assert run.token_ids[-TOKENS:] == uncached


def test_smollm2_writes_coherent_english(smollm2):
    question = "What is the capital of France?"
    steps = generate(smollm2, smollm2.encode_chat(question), 12, temperature=0)
    assert smollm2.source == "wheel"
    assert smollm2.decode([step.token_id for step in steps]).startswith(
        "The capital of France is Paris."
    )
