"""What the library is asked to do wrongly gets one sentence of the documented type."""

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest

from kvcore.architecture import Architecture
from kvcore.catalog import MODELS
from kvcore.costs import price
from kvcore.costs.prices import PriceError
from kvcore.engines import vllm
from kvcore.engines.common import PlanError
from kvcore.eviction import kept_positions
from kvcore.paging import Request, paper_requests, simulate
from kvcore.prefix import BlockPool, replay

LLAMA = MODELS["Llama-3.1-8B"].architecture
ONE = [Request(5, 5)]
USAGE = {"input_tokens": 100, "output_tokens": 10, "cache_read_input_tokens": 1_000}
NO_WHOLE = (0, -1, 1.5, "16", None, float("nan"), float("inf"), True, [16])
NO_NUMBER = ("x", float("nan"), float("inf"), [1])


def plan(available=10**10, length=8_192, **settings):
    return vllm.plan(LLAMA, available, length, **settings)


def costs(**of):
    return price(USAGE, **{"model": "claude-sonnet-4-5", "provider": "anthropic", **of})


# Call, the values it must refuse, the error it documents.
CALLS = {
    "num_slots": (lambda v: simulate(ONE, num_slots=v), (*NO_WHOLE, 10**12), ValueError),
    "buddy slots": (lambda v: simulate(ONE, "contiguous-max", num_slots=v), NO_WHOLE, ValueError),
    "slots": (lambda v: simulate(ONE, num_slots=v, block_size=1), (10**9,), ValueError),
    "block_size": (lambda v: simulate(ONE, block_size=v), NO_WHOLE, ValueError),
    "watermark": (lambda v: simulate(ONE, watermark=v), (*NO_NUMBER, None, -1, 1), ValueError),
    "look_ahead": (lambda v: simulate(ONE, look_ahead=v), ("x", -1, 1.5, None), ValueError),
    "page_bytes": (lambda v: simulate(ONE, "demand-paged", page_bytes=v), NO_WHOLE, ValueError),
    "policy": (lambda v: simulate(ONE, policy=v), ("x", "", None, [], 3), ValueError),
    "requests": (simulate, (None, [None], 5, "ab", [(5, 5)]), ValueError),
    "prompt": (lambda v: Request(v, 5), NO_WHOLE, ValueError),
    "output": (lambda v: Request(5, v), NO_WHOLE, ValueError),
    "samples": (lambda v: Request(5, 5, samples=v), NO_WHOLE, ValueError),
    "arrival": (lambda v: Request(5, 5, arrival=v), (*NO_NUMBER, None, -1), ValueError),
    "count": (paper_requests, (-1, 1.5, "3", None, True), ValueError),
    "seed": (lambda v: paper_requests(3, seed=v), (-1, 1.5, "a", None), ValueError),
    "num_blocks": (BlockPool, (*NO_WHOLE, 1, 10**12), ValueError),
    "pool block_size": (lambda v: BlockPool(8, block_size=v), NO_WHOLE, ValueError),
    "token ids": (BlockPool(8).allocate, ([], ["a"], "abc", [None], [1.5], [[1]]), ValueError),
    "capacity": (lambda v: replay([[1, 2]], capacity=v), (0, -1, 1.5, "x", True), ValueError),
    "positions": (lambda v: kept_positions(v, "none"), (-1, 1.5, "5", None, True), ValueError),
    "eviction": (lambda v: kept_positions(9, v), ("", "!", [], 3, "lru"), ValueError),
    "scores": (
        lambda v: kept_positions(3, "h2o", budget=2, scores=v),
        (None, [], [1.0], [float("nan")] * 3, ["a"] * 3),
        ValueError,
    ),
    "tensor_parallel": (lambda v: LLAMA.growth_bytes(tensor_parallel=v), NO_WHOLE, ValueError),
    "tokens": (LLAMA.cache_bytes, (-1, 1.5, "5", None, True), ValueError),
    "available_bytes": (
        plan,
        ("x", float("nan"), float("inf"), [None], None, 0, -1, True),
        PlanError,
    ),
    "max_model_len": (lambda v: plan(length=v), NO_WHOLE, PlanError),
    "speculative": (lambda v: plan(speculative_tokens=v), (-1, 1.5, "x", None, True), PlanError),
    "model": (lambda v: costs(model=v), (3, 1.5, ["gpt-5"], "nope"), PriceError),
    "provider": (lambda v: costs(provider=v), (3, ["openai"], "nope"), PriceError),
    "at": (lambda v: costs(at=v), ("2026", 3, 1.5, ["x"]), PriceError),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, call in CALLS.items() for value in call[1]], ids=str
)
def test_an_odd_argument_gets_one_sentence_of_the_documented_type(name, value):
    call, _, error = CALLS[name]
    with pytest.raises(error) as caught:
        call(value)
    assert type(caught.value) in (error, PlanError)
    assert re.fullmatch(r"[A-Za-z“].*[.]", str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


def test_numpy_numbers_are_numbers():
    assert LLAMA.growth_bytes(tensor_parallel=np.int64(2)) == LLAMA.growth_bytes(tensor_parallel=2)
    assert Request(np.int64(5), np.int32(5), arrival=np.float64(2)).length == 10
    assert BlockPool(np.int64(4)).num_blocks == 4
    assert plan(np.int64(10**10)) == plan()


def test_a_pool_takes_back_only_its_own_sequences():
    here, there = BlockPool(4), BlockPool(4)
    foreign = here.allocate(range(16))
    held = there.allocate(range(100, 132))
    for use in (there.free, lambda table: there.append(table, [1]), lambda t: there.drop(t, [0])):
        with pytest.raises(ValueError, match="no sequence of this pool"):
            use(foreign)
    assert there.free_list == [3]
    assert held.block_ids == [1, 2]
    with pytest.raises(ValueError, match="no sequence of this pool"):
        there.free(None)


@pytest.mark.parametrize("hours", [-14, 14])
@pytest.mark.parametrize("edge", [datetime.min, datetime.max])
def test_a_price_can_be_asked_for_at_the_edges_of_time(edge, hours):
    at = edge.replace(tzinfo=timezone(timedelta(hours=hours)))
    assert costs(at=at).total == costs(at=edge.replace(tzinfo=UTC)).total > Decimal(0)


def test_a_config_of_nothing_is_refused():
    with pytest.raises(ValueError, match="model_type"):
        Architecture.from_config({})
