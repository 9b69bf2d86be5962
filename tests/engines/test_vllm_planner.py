"""Every plan that vLLM 0.32's own planner made, to the block, the token and four decimals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvcore.architecture import Architecture
from kvcore.engines import vllm
from kvcore.engines.reference_models import architecture
from tests.shared_data import shared_data

PLANS = json.loads((Path(__file__).parents[1] / "data" / "vllm_planner.json").read_text())

NAMES = {
    "meta-llama/Meta-Llama-3.1-8B": "Llama-3.1-8B",
    "openai/gpt-oss-20b": "gpt-oss-20b",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "Llama-4-Scout",
    "deepseek-ai/DeepSeek-V3": "DeepSeek-V3",
}


def planned(a: Architecture, expected: dict) -> vllm.Plan:
    return vllm.plan(
        a,
        expected["available_bytes"],
        expected["max_model_len"],
        max_num_batched_tokens=expected["max_num_batched_tokens"],
        version="0.32",
    )


def check(p: vllm.Plan, expected: dict) -> None:
    assert p.block_size == 16
    assert p.num_blocks == expected["num_blocks"]
    assert p.kv_cache_tokens == expected["kv_cache_tokens"]
    assert round(p.max_concurrency, 4) == expected["max_concurrency"]
    assert len(p.groups) == expected["groups"]


@pytest.mark.parametrize(
    "expected", PLANS, ids=lambda e: f"{e['model'].split('/')[-1]}-{e['max_model_len']}"
)
def test_equals_vllms_own_plan(expected):
    check(
        planned(architecture(NAMES.get(expected["model"], expected["model"])), expected), expected
    )


def test_holds_for_the_real_configs_too():
    import gzip

    configs = json.loads(gzip.decompress(shared_data("model_configs.json.gz").read_bytes()))
    tested = 0
    for expected in PLANS:
        if expected["model"] in configs:
            check(planned(Architecture.from_config(configs[expected["model"]]), expected), expected)
            tested += 1
    assert tested == 16


def test_all_twenty_eight_plans_are_here():
    assert len(PLANS) == 28
