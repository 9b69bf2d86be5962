"""Real configs, whole and mangled, through every engine: a plan or one sentence."""

from __future__ import annotations

import copy
import gzip
import json
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvcore.architecture import Architecture
from kvcore.config_json import ConfigError
from kvcore.engines import llamacpp, sglang, vllm
from kvcore.engines.common import PlanError
from kvcore.formats import FormatError
from kvcore.units import GIB
from tests.shared_data import shared_data


@cache
def configs() -> dict[str, dict]:
    return json.loads(gzip.decompress(shared_data("model_configs.json.gz").read_bytes()))


def plan_everywhere(a: Architecture, ranks: int, length: int) -> int:
    """Plans made; anything but a PlanError or FormatError escapes."""
    made = 0
    for plan in (
        lambda: vllm.plan(a, 40 * GIB, length, tensor_parallel=ranks, speculative_tokens=1),
        lambda: sglang.plan(a, 40 * GIB, tensor_parallel=ranks),
        lambda: llamacpp.plan(a, length),
    ):
        try:
            plan()
            made += 1
        except (PlanError, FormatError) as error:
            assert str(error).endswith(".")
            assert "\n" not in str(error)
    return made


def test_every_real_config_is_planned_or_refused_by_all_engines():
    made = {
        name: plan_everywhere(Architecture.from_config(config), 2, 8192)
        for name, config in configs().items()
    }
    unplanned = {name for name, count in made.items() if not count}
    assert all("DeepSeek-V4" in name for name in unplanned)
    assert sum(count == 3 for count in made.values()) >= 45


@pytest.mark.filterwarnings("ignore")
@given(data=st.data())
@settings(max_examples=120)
def test_a_mangled_config_gives_a_plan_or_a_sentence(data):
    config = copy.deepcopy(configs()[data.draw(st.sampled_from(sorted(configs())))])
    part = config.get("text_config", config)
    for key in data.draw(st.lists(st.sampled_from(sorted(part)), max_size=3)):
        part[key] = data.draw(
            st.sampled_from([None, 0, 1, 2, 7, 48, 129, 4096, True, [], "x", [1, 2], 1.5])
        )
    try:
        a = Architecture.from_config(config)
    except ConfigError:
        assume(False)
    ranks, length = st.sampled_from([1, 2, 8]), st.sampled_from([1, 300, 65_536])
    assert 0 <= plan_everywhere(a, data.draw(ranks), data.draw(length)) <= 3
