"""With the cache and without it: the same tokens, for greedy and for sampled text."""

import pytest

from kvcore.decoding import Agreement, Comparison, compare, forward, generate, load
from kvcore.decoding.errors import CacheError
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
