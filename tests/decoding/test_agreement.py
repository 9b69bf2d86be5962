"""Our forward passes against `transformers` on the same weights: logits, cached and not."""

import pytest
import torch

from kvcore.decoding import forward, load
from kvcore.decoding.reference import TransformersSteps
from tests.decoding.checkpoints import (
    CONTEXT,
    assert_agree,
    random_ids,
    save_network,
    their_logits,
)

POSITIONS = 200


def cached_logits(model, ids):
    """[len(ids), vocab_size], one token at a time."""
    cache = model.new_cache()
    return torch.cat([forward(model, ids[: i + 1], cache) for i in range(len(ids))])


def test_uncached_and_cached_logits_are_theirs(checkpoint):
    network, folder = checkpoint
    model, ids = load(folder), random_ids(POSITIONS)
    theirs = their_logits(network, ids)
    assert theirs.std() > 1  # wide enough that a wrong position or head could not pass
    assert_agree(forward(model, ids, all_logits=True), theirs)
    assert_agree(cached_logits(model, ids), theirs)


def test_a_prompt_in_pieces_gives_their_logits(checkpoint):
    network, folder = checkpoint
    model, ids = load(folder), random_ids(POSITIONS)
    for cache in (model.new_cache(), model.new_cache(track_attention=True)):
        pieces = [forward(model, ids[:end], cache, all_logits=True) for end in (1, 70, 71, 200)]
        assert_agree(torch.cat(pieces), their_logits(network, ids))


def test_a_cache_of_another_prefix_fails_the_comparison(checkpoint):
    network, folder = checkpoint
    model, ids, other = load(folder), random_ids(POSITIONS), random_ids(POSITIONS, seed=1)
    cache = model.new_cache()
    forward(model, other[:-1], cache)
    cache.token_ids = ids[:-1]  # what no caller can do: make it claim the right text
    with pytest.raises(AssertionError):
        assert_agree(forward(model, ids, cache), their_logits(network, ids)[-1:])


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ("gpt2", {"activation_function": "gelu", "n_inner": 100}),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True, "tie_word_embeddings": False}),
        ("llama", {"num_key_value_heads": 6, "tie_word_embeddings": False}),
        ("llama", {"num_key_value_heads": 1, "attention_bias": True, "head_dim": 32}),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}}),
        (
            "llama",
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 5e5,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64,
                }
            },
        ),
    ],
)
def test_variants_of_both_shapes_agree(tmp_path, shape, changes):
    network, folder = save_network(shape, tmp_path, **changes)
    model, ids = load(folder), random_ids(CONTEXT)
    theirs = their_logits(network, ids)
    assert_agree(forward(model, ids, all_logits=True), theirs)
    assert_agree(cached_logits(model, ids[:40]), theirs[:40])


def test_gpt2_at_full_size_agrees_with_their_cached_steps():
    model = load("gpt2", sources=("random",))
    ids = random_ids(POSITIONS, vocab=model.vocab_size)
    reference = TransformersSteps(model)
    assert_agree(forward(model, ids, all_logits=True), their_logits(reference.network, ids))
    cache = model.new_cache()
    for end in [150, *range(POSITIONS - 9, POSITIONS + 1)]:
        theirs, _ = reference.step(ids[len(cache) : end])
        assert_agree(forward(model, ids[:end], cache)[0], theirs)
