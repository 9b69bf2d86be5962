"""The catalogue: sources, dates, units, and agreement with the real configs."""

from __future__ import annotations

import gzip
import json
from datetime import date

import pytest

from kvcore.architecture import Architecture
from kvcore.catalog import GIB, GPUS, MODELS
from tests.shared_data import shared_data


def test_at_least_forty_models_are_named():
    assert len(MODELS) >= 40


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_sized_and_sourced(name):
    model = MODELS[name]
    architecture = model.architecture
    assert architecture.name == name
    assert architecture.exact
    assert architecture.cache_bytes(1024) > 0
    assert architecture.max_context
    assert model.source
    assert date(2026, 1, 1) <= model.date
    assert 0 < model.active_parameters <= model.parameters


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Llama-2-7B", 6_738_415_616),
        ("Llama-3.1-8B", 8_030_261_248),
        ("Llama-3.1-70B", 70_553_706_496),
        ("Mistral-7B-v0.1", 7_241_732_096),
        ("Mixtral-8x7B", 46_702_792_704),
        ("GPT-2", 124_439_808),
        ("DeepSeek-V3", 671_026_404_352),
    ],
)
def test_counted_parameters_are_the_published_ones(name, parameters):
    """The counts of the checkpoints' own safetensors headers, as their model cards show them."""
    assert MODELS[name].parameters == parameters


@pytest.mark.parametrize(
    ("name", "growth", "fixed"),
    [
        ("Llama-3.1-8B", 131_072, 0),
        ("OPT-13B", 819_200, 0),
        ("GPT-2", 36_864, 0),
        ("DeepSeek-V3", 70_272, 0),
        ("Gemma-3-27B", 81_920, 436_207_616),
        ("gpt-oss-120b", 36_864, 4_718_592),
        ("Qwen3.5-27B", 65_536, 153_944_064),
        ("Nemotron-3-Nano-30B-A3B", 6_144, 49_082_368),
        ("Falcon-7B", 8_192, 0),
        ("Mistral-7B-v0.1", 0, 536_870_912),
        ("Whisper-large-v3", 163_840, 245_760_000),
    ],
)
def test_named_models_have_the_known_answer(name, growth, fixed):
    architecture = MODELS[name].architecture
    assert (architecture.growth_bytes(), architecture.fixed_bytes()) == (growth, fixed)


def test_named_models_agree_with_their_real_configs():
    real = json.loads(gzip.decompress(shared_data("model_configs.json.gz").read_bytes()))
    compared = 0
    for model in MODELS.values():
        if model.repository not in real:
            continue
        config = Architecture.from_config(real[model.repository])
        for tokens in (100, 5000, 100_000):
            assert model.architecture.cache_bytes(tokens) == config.cache_bytes(tokens), model.name
        assert model.architecture.layers[0].kind == config.layers[0].kind
        compared += 1
    assert compared >= 40


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_is_sourced_and_plausible(name):
    gpu = GPUS[name]
    assert gpu.source
    assert gpu.date
    assert gpu.bandwidth > 10**11
    assert gpu.flops is None or 10**13 < gpu.flops < 10**16
    assert gpu.memory_bytes > 0
    assert gpu.memory_source
    if gpu.driver_bytes and gpu.runtime_bytes:
        assert gpu.runtime_bytes <= gpu.driver_bytes


@pytest.mark.parametrize(
    ("name", "driver_gib", "runtime_gib"),
    [
        ("H100 80 GB SXM", 79.65, 79.10),
        ("B200 180 GB", 179.06, 178.35),
        ("RTX 3090 24 GB", 24.00, 23.58),
        ("RTX 4090 24 GB", 23.99, 23.68),
        ("MI300X 192 GB", None, 191.98),
        ("L4 24 GB", 22.49, None),
    ],
)
def test_memory_is_what_drivers_and_logs_say(name, driver_gib, runtime_gib):
    gpu = GPUS[name]
    for known, gib in ((gpu.driver_bytes, driver_gib), (gpu.runtime_bytes, runtime_gib)):
        if gib is None:
            assert known is None
        else:
            assert known / GIB == pytest.approx(gib, abs=0.005)


@pytest.mark.parametrize(
    ("name", "tflops"), [("MI300X 192 GB", 1307), ("H100 80 GB SXM", 989), ("RTX 5090 32 GB", 210)]
)
def test_flops_are_dense(name, tflops):
    assert GPUS[name].flops == tflops * 10**12


def test_unknown_stays_unknown():
    spark = GPUS["DGX Spark GB10 128 GB"]
    assert spark.flops is None
    assert spark.unverified
    assert "assumption" in spark.memory_source


def test_figures_nobody_looked_up_again_are_flagged():
    assert GPUS["RTX 3090 24 GB"].unverified
    assert not GPUS["H100 80 GB SXM"].unverified
