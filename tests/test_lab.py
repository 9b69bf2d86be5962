"""The lab on real caches: reuse changes nothing, eviction is what it says, misuse is refused."""

from __future__ import annotations

import inspect
import json
import random
from datetime import datetime

import pytest
import torch

from kvcore.decoding import CacheError, forward
from kvcore.decoding.block_store import BlockStore
from kvcore.eviction import evict, kept_positions
from kvcore.lab.experiment import timestamp_experiment
from kvcore.lab.prompts import QUESTION, SYSTEM, compose
from kvcore.lab.run import Lab, LabError, Policy, Settings
from kvcore.lab.trace import TokenState, from_json, ranges, to_json
from tests.small_models import SHAPES, small_model

both_shapes = pytest.mark.parametrize("shape", SHAPES)


def some_tokens(count: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(256), k=count)


def answer(lab: Lab, prompt: list[int], count: int) -> list[int]:
    trace = lab.ask(prompt)
    for _ in range(count):
        lab.step()
    return trace.token_ids[len(prompt) :]


# Prefix reuse


@both_shapes
def test_a_reused_prefix_gives_the_same_tokens_and_logits(shape):
    model, prompt = small_model(shape), some_tokens(100)
    cold = answer(Lab(model), prompt, 20)
    lab = Lab(model)
    lab.ask(prompt[:70] + some_tokens(20, seed=5))
    warm = answer(lab, prompt, 20)
    prefill = lab.trace.prefill
    assert prefill.cached_tokens == 64
    assert warm == cold
    assert len(set(cold)) > 5
    assert prefill.largest_difference <= 1e-4
    assert prefill.same_token


@both_shapes
def test_generated_text_is_reused_too(shape):
    model, prompt = small_model(shape), some_tokens(30)
    lab = Lab(model)
    first = prompt + answer(lab, prompt, 40)
    trace = lab.ask(first + some_tokens(5, seed=1))
    assert trace.prefill.cached_tokens == 64
    assert trace.prefill.largest_difference <= 1e-4


@both_shapes
def test_a_changed_first_token_reuses_nothing(shape):
    model, prompt = small_model(shape), some_tokens(80)
    lab = Lab(model)
    lab.ask(prompt)
    changed = lab.ask([(prompt[0] + 1) % 256, *prompt[1:]])
    assert changed.prefill.cached_tokens == 0
    assert changed.prefill.cold_seconds is None


@both_shapes
def test_a_prompt_known_in_full_recomputes_its_last_token(shape):
    model, prompt = small_model(shape), some_tokens(64)
    lab = Lab(model)
    first = lab.ask(prompt)
    again = lab.ask(prompt)
    assert again.prefill.cached_tokens == 48
    assert again.frames[0].tokens_processed == 16
    assert again.token_ids == first.token_ids
    assert again.prefill.largest_difference <= 1e-4


@both_shapes
def test_blocks_of_one_token_recompute_only_the_last(shape):
    model, prompt = small_model(shape), some_tokens(20)
    lab = Lab(model, Settings(block_size=1, num_blocks=60))
    lab.ask(prompt)
    assert lab.ask(prompt).prefill.cached_tokens == 19
    assert lab.trace.prefill.largest_difference <= 1e-4


def test_what_is_saved_is_measured():
    model, prompt = small_model("gpt2"), some_tokens(64)
    ticks = iter([0, 5, 10, 12, 20, 29])
    lab = Lab(model, clock=lambda: next(ticks))
    first = lab.ask(prompt)
    assert (first.prefill.seconds, first.prefill.saved_seconds) == (5, None)
    again = lab.ask(prompt)
    assert (again.prefill.seconds, again.prefill.cold_seconds) == (2, 9)
    assert again.prefill.saved_seconds == 7


def test_open_requests_share_blocks():
    model, prompt = small_model("llama"), some_tokens(50)
    lab = Lab(model)
    lab.ask(prompt)
    trace = lab.ask(prompt[:48] + [1, 2], leave_open=True)
    frame = trace.frames[0]
    assert frame.ref_counts == (2, 2, 2, 1)
    assert frame.others == (("request 1", (1, 2, 3, 4)),)
    lab.close_open()
    assert lab.step().ref_counts[:3] == (1, 1, 1)


def test_a_pool_that_is_full_says_so_and_goes_on_after_room_was_made():
    model = small_model("gpt2")
    lab = Lab(model, Settings(num_blocks=5))
    lab.ask(some_tokens(30))
    lab.ask(some_tokens(32, seed=1), leave_open=True)
    with pytest.raises(LabError, match="All 4 blocks are held"):
        lab.step()
    lab.close_open()
    assert lab.step().num_tokens == 33
    with pytest.raises(LabError, match="can never fit"):
        lab.ask(some_tokens(65))
    assert lab.step().num_tokens == 34


def test_the_policy_changes_with_the_next_request_and_the_pool_stays():
    lab, prompt = Lab(small_model("gpt2")), some_tokens(60)
    lab.ask(prompt)
    trace = lab.ask(prompt, policy=Policy("window", {"window": 20}))
    assert trace.prefill.cached_tokens == 48
    assert lab.step().cached_tokens == 20
    lab.ask(prompt, policy=Policy("heavy hitters", {"heavy": 10, "recent": 10}))
    assert lab.step().cached_tokens == 20
    with pytest.raises(ValueError, match="no policy"):
        Policy("lru")


def test_a_request_that_does_not_fit_now_is_told_apart():
    lab = Lab(small_model("gpt2"), Settings(num_blocks=5))
    lab.ask(some_tokens(40))
    with pytest.raises(LabError, match="do not fit now"):
        lab.ask(some_tokens(40, seed=1), leave_open=True)


def test_the_context_ends():
    lab = Lab(small_model("gpt2"))
    with pytest.raises(LabError, match="up to 512 tokens"):
        lab.ask(some_tokens(512))
    lab.ask(some_tokens(511))
    lab.step()
    with pytest.raises(LabError, match="up to 512 tokens"):
        lab.step()
    with pytest.raises(LabError, match="ask something first"):
        Lab(small_model("gpt2")).step()


@both_shapes
@pytest.mark.parametrize("policy", ["none", "sinks", "heavy hitters"])
def test_memory_used_before_leaves_no_trace(shape, policy):
    budget = {"none": {}, "sinks": {"sinks": 2, "window": 20}, "heavy hitters": {"budget": 20}}
    kept = Policy(policy, budget[policy], renumber=policy == "sinks")
    model, first, second = small_model(shape), some_tokens(60), some_tokens(50, seed=2)
    lab = Lab(model, policy=kept)
    answer(lab, first, 10)
    assert answer(lab, second, 10) == answer(Lab(model, policy=kept), second, 10)


# Eviction on the real cache


def kept_mask(length: int, prompt: int, policy: str, **budget: int) -> torch.Tensor:
    """[length, length]: the prompt looks at itself; each later token at what the policy keeps."""
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    for row in range(prompt, length):
        mask[row] = False
        mask[row, kept_positions(row + 1, policy, **budget)] = True
    return mask


@both_shapes
@pytest.mark.parametrize(
    ("policy", "budget"),
    [("window", {"window": 12}), ("sinks", {"sinks": 4, "window": 8}), ("none", {})],
)
@pytest.mark.parametrize("prompt", [1, 10, 40])
def test_attention_sees_exactly_the_kept_positions(shape, policy, budget, prompt):
    model, tokens = small_model(shape), some_tokens(80)
    mask = kept_mask(len(tokens), prompt, policy, **budget)
    expected = forward(model, tokens, mask=mask, all_logits=True)
    cache = model.new_cache()
    rows = [forward(model, tokens[:prompt], cache)]
    for length in range(prompt + 1, len(tokens) + 1):
        evict(cache, policy, incoming=1, **budget)
        rows.append(forward(model, tokens[:length], cache))
        assert cache.kept == kept_positions(length, policy, **budget)
    assert torch.allclose(torch.cat(rows), expected[prompt - 1 :], atol=1e-4)
    full = forward(model, tokens, all_logits=True)
    changed = (full[-1] - expected[-1]).abs().max()
    assert (changed > 0.01) == (policy != "none")


@both_shapes
def test_heavy_hitters_keep_what_received_most_attention(shape):
    model, tokens = small_model(shape), some_tokens(60)
    cache = model.new_cache(track_attention=True)
    forward(model, tokens[:30], cache)
    for length in range(31, 61):
        mass = cache.attention_mass.sum(dim=(0, 1))[: len(cache)].tolist()
        by_index = dict(zip(cache.kept, mass, strict=True))
        evict(cache, "heavy hitters", incoming=1, heavy=6, recent=6)
        dropped = set(by_index) - set(cache.kept)
        heavy = [index for index in cache.kept if index < length - 6]
        assert len(heavy) == 6
        assert min(by_index[i] for i in heavy) >= max(by_index[i] for i in dropped)
        forward(model, tokens[:length], cache)
        assert len(cache) == 12


def test_renumbering_a_window_changes_no_rotary_distance():
    model, tokens = small_model("llama"), some_tokens(50)
    logits = []
    for renumber in (False, True):
        cache = model.new_cache()
        forward(model, tokens[:20], cache)
        for length in range(21, 51):
            evict(cache, "window", incoming=1, window=10, renumber=renumber)
            last = forward(model, tokens[:length], cache)
        logits.append(last)
        assert cache.positions == (list(range(10)) if renumber else list(range(40, 50)))
    assert torch.allclose(*logits, atol=1e-4)


def test_renumbering_sinks_brings_them_near():
    model, tokens = small_model("llama"), some_tokens(60)
    logits = []
    for renumber in (False, True):
        cache = model.new_cache()
        forward(model, tokens[:20], cache)
        for length in range(21, 61):
            evict(cache, "sinks", incoming=1, sinks=4, window=8, renumber=renumber)
            last = forward(model, tokens[:length], cache)
        logits.append(last)
    assert not torch.allclose(*logits, atol=1e-2)


@both_shapes
def test_nothing_computed_after_an_eviction_is_offered_for_reuse(shape):
    model, prompt = small_model(shape), some_tokens(40)
    lab = Lab(model, policy=Policy("window", {"window": 24}))
    text = prompt + answer(lab, prompt, 60)
    trace = lab.ask(text)
    assert trace.prefill.cached_tokens == 32
    assert trace.prefill.largest_difference <= 1e-4


def test_an_evicted_token_inside_a_kept_block_frees_nothing():
    lab = Lab(small_model("gpt2"), policy=Policy("sinks", {"sinks": 4, "window": 20}))
    lab.ask(some_tokens(48))
    frame = lab.step()
    assert frame.cached_tokens == 24
    assert frame.evicted == tuple(range(4, 29))
    assert frame.block_ids == (1, 2, 3, 4)
    assert frame.freed == ()
    for _ in range(3):
        frame = lab.step()
    assert frame.block_ids == (1, 0, 3, 4)
    assert frame.freed == (2,)
    assert frame.free_list[-1] == 2
    assert 2 in frame.free_findable
    assert lab.trace.kv_bytes(frame) == 24 * lab.model.cache_bytes_per_token
    assert lab.trace.block_bytes(frame) == 48 * lab.model.cache_bytes_per_token


def test_evict_refuses_what_would_leave_nothing():
    model = small_model("gpt2")
    cache = model.new_cache()
    forward(model, some_tokens(5), cache)
    with pytest.raises(ValueError, match="leaves nothing"):
        evict(cache, "window", incoming=1, window=1)
    with pytest.raises(ValueError, match="track_attention"):
        evict(cache, "h2o", heavy=1, recent=1)


# Silent misuses of a cache: each refused, or not expressible


@both_shapes
def test_misuse_of_a_cache_is_refused(shape):
    model, prompt = small_model(shape), some_tokens(20)
    cache = model.new_cache()
    logits = forward(model, prompt, cache)
    with pytest.raises(CacheError, match="nothing is left"):
        forward(model, prompt, cache)
    forward(model, [*prompt, int(logits.argmax())], cache)
    with pytest.raises(CacheError, match="another text"):
        forward(model, prompt, cache)
    with pytest.raises(CacheError, match="another text"):
        forward(model, some_tokens(22, seed=9), cache)
    with pytest.raises(CacheError, match="another text"):
        forward(model, prompt[-5:], cache)
    with pytest.raises(ValueError, match="mask must be"):
        forward(model, [*cache.token_ids, 7], cache, mask=torch.ones(1, 1, dtype=torch.bool))
    other = small_model(shape, seed=1)
    with pytest.raises(CacheError, match="another model"):
        forward(other, [*cache.token_ids, 7], cache)
    assert len(cache) == 21


@both_shapes
def test_positions_go_on_where_the_cache_ends(shape):
    """Restarted positions cannot be asked for, and a pass over several new tokens is aligned."""
    assert not {"position_ids", "positions", "attention_mask"} & set(
        inspect.signature(forward).parameters
    )
    model, tokens = small_model(shape), some_tokens(40)
    cache = model.new_cache()
    forward(model, tokens[:25], cache)
    later = forward(model, tokens, cache, all_logits=True)
    whole = forward(model, tokens, all_logits=True)
    assert torch.allclose(later, whole[25:], atol=1e-4)


@both_shapes
def test_the_block_store_refuses_what_it_does_not_hold(shape):
    model, tokens = small_model(shape), some_tokens(40)
    store = BlockStore(model, 4, 16)
    cache = model.new_cache()
    forward(model, tokens, cache)
    store.put(1, b"one", cache, 0)
    fresh = model.new_cache()
    for block_id, name, text in (
        (1, b"two", tokens),
        (1, b"one", some_tokens(40, seed=1)),
        (2, b"one", tokens),
    ):
        with pytest.raises(CacheError, match="does not hold"):
            store.restore(fresh, [block_id], [name], text)
    with pytest.raises(CacheError, match="do not fit"):
        store.restore(model.new_cache(8), [1], [b"one"], tokens)
    store.restore(fresh, [1], [b"one"], tokens)
    assert fresh.token_ids == tokens[:16]
    assert torch.equal(fresh.keys[:, :, :16], cache.keys[:, :, :16])
    with pytest.raises(CacheError, match="empty cache"):
        store.restore(fresh, [1], [b"one"], tokens)
    with pytest.raises(CacheError, match="cannot be stored"):
        store.put(2, b"open", cache, 2)
    evict(cache, "window", window=20)
    with pytest.raises(CacheError, match="cannot be stored"):
        store.put(2, b"gone", cache, 1)
    other = small_model(shape, seed=1)
    foreign = other.new_cache()
    forward(other, tokens, foreign)
    with pytest.raises(CacheError, match="another model"):
        store.put(2, b"foreign", foreign, 0)
    with pytest.raises(CacheError, match="another model"):
        store.restore(other.new_cache(), [1], [b"one"], tokens)


# What is shown


def test_states_and_norms_of_a_step():
    lab = Lab(small_model("llama"), policy=Policy("sinks", {"sinks": 2, "window": 30}))
    prompt = some_tokens(40)
    lab.ask(prompt)
    trace = lab.ask(prompt)
    frame = trace.frames[0]
    assert trace.states(frame) == [TokenState.REUSED] * 32 + [TokenState.HELD] * 8
    keys, values = trace.norms(frame)
    assert keys.shape == values.shape == (3, 40)
    cache = lab._request.cache
    expected = cache.keys[:, :, :40].norm(dim=(1, 3))
    assert torch.allclose(torch.from_numpy(keys.copy()), expected)
    frame = lab.step()
    states = trace.states(frame)
    assert states[2:11] == [TokenState.EVICTED] * 9
    assert states[:2] == [TokenState.REUSED] * 2
    assert states[-1] == TokenState.HELD


def test_a_block_that_fills_becomes_findable():
    lab = Lab(small_model("gpt2"))
    trace = lab.ask(some_tokens(30))
    assert trace.states(trace.frames[0])[16:] == [TokenState.HELD] * 14
    lab.step()
    frame = lab.step()
    assert trace.states(frame)[:32] == [TokenState.FINDABLE] * 32


def test_a_trace_survives_writing_and_reading():
    lab = Lab(small_model("gpt2"), policy=Policy("sinks", {"sinks": 4, "window": 24}))
    prompt = some_tokens(40)
    lab.ask(prompt)
    trace = lab.ask(prompt, leave_open=True)
    for _ in range(12):
        lab.step()
    again = from_json(json.loads(json.dumps(to_json(trace))))
    assert again.frames == trace.frames
    assert again.about == trace.about
    assert again.prefill == trace.prefill
    assert again.texts == trace.texts
    last = trace.frames[-1]
    assert again.norms(last)[0] == pytest.approx(trace.norms(last)[0], rel=1e-3)


def test_ranges():
    assert ranges([0, 1, 2, 7, 9, 10]) == [[0, 2], [7, 7], [9, 10]]
    assert ranges([]) == []


# The timestamp experiment


@both_shapes
def test_a_timestamp_at_the_top_reuses_nothing(shape):
    model = small_model(shape)
    rows = list(
        timestamp_experiment(model, SYSTEM[:120], QUESTION, started=datetime(2026, 5, 4, 10, 41, 7))
    )
    first, again, top, top_later, end, end_later = (row.prefill for row in rows)
    assert first.cached_tokens == 0
    assert again.cached_tokens == (again.prompt_tokens - 1) // 16 * 16
    assert top.cached_tokens == 0
    plain = compose(model, SYSTEM[:120], QUESTION)
    assert end.cached_tokens == (len(plain) - len("\nAnswer:")) // 16 * 16
    assert end_later.cached_tokens >= end.cached_tokens
    assert top_later.cached_tokens == 0


def test_prompts_follow_the_models_way_of_talking():
    model = small_model("gpt2")
    assert compose(model, "S.", "Q?") == "S.\n\nQuestion: Q?\nAnswer:"
    assert compose(model, "S.", "Q?", time_first="10:41").startswith("10:41: S.")
    assert compose(model, "S.", "Q?", time_last="10:41").endswith("Q? (Asked at 10:41.)\nAnswer:")
