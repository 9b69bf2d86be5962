"""The cache object: every known silent misuse is refused, and managing it changes no logits."""

import pytest
import torch

from kvcore.decoding import KVCache, forward
from kvcore.decoding.errors import CacheError, PromptError
from kvcore.decoding.rotary import angles, inverse_frequencies, rotate
from tests.decoding.checkpoints import random_ids
from tests.small_models import SHAPES, small_model

IDS = random_ids(60, vocab=256)
CLOSE = {"atol": 1e-4, "rtol": 0}


@pytest.fixture(params=SHAPES)
def model(request):
    return small_model(request.param)


@pytest.fixture
def filled(model):
    cache = model.new_cache()
    forward(model, IDS, cache)
    return cache


def assert_continues(model, cache, ids):
    """The cache gives the same logits for `ids` as no cache does."""
    torch.testing.assert_close(forward(model, ids, cache), forward(model, ids), **CLOSE)


# What goes wrong without a word elsewhere


def test_going_on_after_a_generation_with_the_prompt_is_refused(model, filled):
    with pytest.raises(CacheError, match="another text"):
        forward(model, IDS[:20] + [1, 2, 3], filled)


def test_a_prompt_that_is_fully_cached_is_refused(model, filled):
    with pytest.raises(CacheError, match=r"crop\(59\)"):
        forward(model, IDS, filled)


def test_a_cache_of_another_prefix_of_the_same_length_is_refused(model, filled):
    other = random_ids(60, seed=1, vocab=256)
    with pytest.raises(CacheError, match="another text"):
        forward(model, [*other, 1], filled)


def test_the_suffix_alone_is_refused(model, filled):
    with pytest.raises(CacheError, match="another text"):
        forward(model, [1, 2, 3], filled)


def test_a_mask_over_the_new_tokens_alone_is_refused(model, filled):
    with pytest.raises(ValueError, match=r"\[2, 62\]"):
        forward(model, [*IDS, 1, 2], filled, mask=torch.ones(2, 2, dtype=torch.bool))


def test_positions_go_on_and_the_mask_ends_with_the_keys(model, filled):
    assert_continues(model, filled, [*IDS, 7, 8, 9])
    assert filled.positions == list(range(63))


def test_a_cache_of_another_model_of_the_same_shape_is_refused(model, filled, request):
    shape = request.node.callspec.params["model"]
    with pytest.raises(CacheError, match="another model"):
        forward(small_model(shape, seed=1), [*IDS, 1], filled)


def test_a_full_cache_is_refused_and_left_as_it_was(model):
    cache = model.new_cache(60)
    forward(model, IDS, cache)
    with pytest.raises(CacheError, match="room for 60"):
        forward(model, [*IDS, 1], cache)
    cache.crop(59)
    assert_continues(model, cache, IDS)


def test_a_pass_that_breaks_off_leaves_the_cache_as_it_was(model, filled):
    def fail(layer, keys, values):
        if layer == 1:
            raise RuntimeError("half-way")
        return keys * 0, values * 0

    with pytest.raises(RuntimeError, match="half-way"):
        forward(model, [*IDS, 1, 2], filled, edit=fail)
    assert (len(filled), filled.token_ids) == (60, IDS)
    assert_continues(model, filled, [*IDS, 3])


def test_an_unfinished_text_past_the_context_is_refused(model):
    with pytest.raises(PromptError, match="513 tokens"):
        forward(model, [1] * 513)


def test_a_token_outside_the_vocabulary_is_refused(model):
    for token in (256, -1):
        with pytest.raises(PromptError, match="vocabulary"):
            forward(model, [1, token])


def test_an_empty_sequence_is_refused(model):
    with pytest.raises(PromptError, match="empty"):
        forward(model, [])


# Size


def test_bytes_follow_from_the_shape():
    gpt2 = KVCache(12, 12, 64, 1_024)
    smollm2 = KVCache(30, 3, 64, 16)
    assert (gpt2.bytes_per_token, smollm2.bytes_per_token) == (73_728, 46_080)
    assert (gpt2.nbytes, gpt2.allocated_bytes) == (0, 1_024 * 73_728)


def test_bytes_grow_by_a_token_and_nothing_is_copied(model, filled):
    place = filled.keys.data_ptr()
    before = filled.nbytes
    forward(model, [*IDS, 1], filled)
    assert filled.nbytes - before == filled.bytes_per_token
    assert filled.keys.data_ptr() == place


def test_a_cache_without_room_is_refused(model):
    with pytest.raises(CacheError, match="at least one"):
        model.new_cache(0)


# Cropping and reuse


@pytest.mark.parametrize("length", [1, 30, 59])
def test_cropping_then_going_on_with_another_text(model, filled, length):
    filled.crop(length)
    assert_continues(model, filled, IDS[:length] + [9, 8, 7])


def test_crop_0_empties(model, filled):
    filled.crop(0)
    assert (len(filled), filled.nbytes, filled.token_ids) == (0, 0, [])
    assert_continues(model, filled, [4, 5])


@pytest.mark.parametrize("length", [-1, 61])
def test_cropping_to_what_never_was_is_refused(filled, length):
    with pytest.raises(CacheError, match="Cannot crop"):
        filled.crop(length)


@pytest.mark.parametrize(
    ("ids", "shared"),
    [(IDS, 59), (IDS[:20], 19), ([*IDS, 1], 60), (IDS[:20] + [0, 0], 20), ([255, *IDS], 0)],
)
def test_reuse_keeps_the_common_prefix_but_the_last_token(model, filled, ids, shared):
    assert filled.reuse(ids) == shared
    assert_continues(model, filled, ids)


@pytest.mark.parametrize("length", [1, 40, 60])
def test_a_stored_prefix_gives_the_same_logits(model, filled, length):
    stored = filled.prefix(length)
    fresh = model.new_cache(80)
    fresh.restore(stored)
    assert stored.nbytes == fresh.nbytes == length * fresh.bytes_per_token
    filled.crop(0)  # the copy must not notice
    forward(model, [3] * 60, filled)
    assert_continues(model, fresh, IDS[:length] + [1, 2])


def test_part_of_a_stored_prefix(model, filled):
    fresh = model.new_cache()
    fresh.restore(filled.prefix(), 25)
    assert_continues(model, fresh, IDS[:30])


def test_restoring_where_it_cannot_be_right_is_refused(model, filled, request):
    stored = filled.prefix(10)
    with pytest.raises(CacheError, match="empty cache"):
        filled.restore(stored)
    with pytest.raises(CacheError, match="fit in 5"):
        model.new_cache(5).restore(stored)
    shape = request.node.callspec.params["model"]
    with pytest.raises(CacheError, match="another model"):
        small_model(shape, seed=1).new_cache().restore(stored)
    with pytest.raises(CacheError, match="Cannot take 61"):
        filled.prefix(61)


# Eviction


def test_streaming_eviction_is_one_pass_with_a_band_mask(model):
    """Four sinks and a window of twelve, each step seeing what was kept and itself."""
    sinks, window = 4, 12
    cache, rows = model.new_cache(sinks + window), []
    for end in range(1, len(IDS) + 1):
        if len(cache) == sinks + window:
            cache.keep(cache.kept[:sinks] + cache.kept[sinks + 1 :])
        rows.append(forward(model, IDS[:end], cache))
    here, back = torch.arange(len(IDS))[:, None], torch.arange(len(IDS))
    mask = (here - back < window) | (back < sinks)
    one_pass = forward(model, IDS, mask=mask, all_logits=True)
    torch.testing.assert_close(torch.cat(rows), one_pass, **CLOSE)
    assert cache.evicted
    assert cache.kept == [0, 1, 2, 3, *range(48, 60)]
    assert cache.nbytes == 16 * cache.bytes_per_token


def test_renumbered_keys_are_those_of_the_new_positions(model, filled):
    """First-layer keys depend on token and position alone, so a fresh pass shows what they are.

    Learned positions are part of the hidden state the keys were made from, so there they stay.
    """
    kept = [0, 1, *range(40, 60)]
    old = filled.keys[0, :, kept].clone()
    filled.keep(kept, renumber=True)
    fresh = model.new_cache()
    forward(model, [IDS[i] for i in kept], fresh)
    expected = old if model.network.frequencies is None else fresh.keys[0, :, :22]
    torch.testing.assert_close(filled.keys[0, :, :22], expected, **CLOSE)
    assert filled.positions == fresh.positions
    assert filled.next_position == 22


def test_renumbering_lets_a_text_go_on_past_the_context(model):
    cache, ids = model.new_cache(32), [1, 2, 3]
    for _ in range(520):
        if len(cache) == 32:
            cache.keep(cache.kept[:4] + cache.kept[16:], renumber=True)
        ids.append(int(forward(model, ids, cache).argmax()))
    assert len(ids) > model.context_length
    assert max(cache.positions) < 32


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([], "at least one"),
        ([3, 2], "ascending"),
        ([2, 2], "ascending"),
        ([99], "not in the cache"),
    ],
)
def test_keeping_what_cannot_be_kept_is_refused(filled, indices, message):
    with pytest.raises(CacheError, match=message):
        filled.keep(indices)


def test_what_was_evicted_cannot_be_kept_cropped_to_or_stored(filled):
    filled.keep([0, 1, *range(30, 60)])
    with pytest.raises(CacheError, match="not in the cache"):
        filled.keep([0, 5])
    with pytest.raises(CacheError, match="was evicted"):
        filled.crop(20)
    with pytest.raises(CacheError, match="no prefix"):
        filled.prefix(2)
    assert filled.reuse(IDS) == 0


def test_cropping_the_tail_after_an_eviction(model, filled):
    filled.keep([0, 1, *range(30, 60)])
    filled.crop(50)
    assert filled.kept == [0, 1, *range(30, 50)]
    assert filled.next_position == 50


# What it shows


def test_attention_adds_up_to_one_for_each_query_and_head(model):
    cache = model.new_cache(track_attention=True)
    forward(model, IDS[:40], cache)
    forward(model, IDS, cache)
    group = model.config.num_heads // model.config.num_kv_heads
    received = cache.attention_mass[:, :, :60].sum(dim=-1)
    torch.testing.assert_close(received, torch.full_like(received, 60.0 * group), rtol=1e-5, atol=0)


def test_attention_follows_what_is_kept_and_is_not_cropped_in_part(model):
    cache = model.new_cache(track_attention=True)
    forward(model, IDS, cache)
    kept = [0, 7, 59]
    expected = cache.attention_mass[:, :, kept].clone()
    cache.keep(kept)
    assert torch.equal(cache.attention_mass[:, :, :3], expected)
    assert not cache.attention_mass[:, :, 3:].any()
    forward(model, [*IDS, 1], cache)
    with pytest.raises(CacheError, match="track_attention"):
        cache.crop(60)
    cache.crop(0)
    assert not cache.attention_mass.any()


def test_norms_are_those_of_the_slots_in_use(model, filled):
    keys, values = filled.norms()
    c = model.config
    assert keys.shape == values.shape == (c.num_layers, c.num_kv_heads, 60)
    expected = filled.keys[1, 0, 59].square().sum().sqrt()
    torch.testing.assert_close(keys[1, 0, 59], expected)


def test_an_edit_is_what_is_stored_and_attended_to(model):
    cache = model.new_cache()
    edited = forward(model, IDS, cache, edit=lambda layer, keys, values: (keys, values * 0))
    assert not cache.values[:, :, :60].any()
    assert (edited - forward(model, IDS)).abs().max() > 0.1


def test_rotations_add_up():
    frequencies = inverse_frequencies(16, 10_000.0)
    vectors = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    there = rotate(vectors, *angles(torch.full((5,), 30), frequencies))
    back = rotate(there, *angles(torch.full((5,), -12), frequencies))
    at_18 = rotate(vectors, *angles(torch.full((5,), 18), frequencies))
    torch.testing.assert_close(back, at_18, atol=1e-5, rtol=0)
