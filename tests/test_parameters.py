"""The estimate of weights, held against models whose weights were counted."""

from __future__ import annotations

import pytest

from kvcore.catalog import MODELS
from kvcore.config_json.parameters import estimate_parameters

ESTIMATED = [
    model.name
    for model in MODELS.values()
    if estimate_parameters(model.config) is not None and "-VL-" not in model.name
]


def test_most_transformers_can_be_estimated():
    assert len(ESTIMATED) >= 25


@pytest.mark.parametrize("name", ESTIMATED)
def test_estimates_are_close_to_the_count(name):
    model = MODELS[name]
    estimate = estimate_parameters(model.config)
    assert estimate.parameters == pytest.approx(model.parameters, rel=0.01)
    assert estimate.active_parameters == pytest.approx(model.active_parameters, rel=0.03)


@pytest.mark.parametrize("name", ["GPT-2", "Falcon-7B", "Whisper-large-v3", "Qwen3.5-27B"])
def test_what_cannot_be_estimated_stays_unknown(name):
    assert estimate_parameters(MODELS[name].config) is None


def test_a_missing_size_stays_unknown():
    config = dict(MODELS["Llama-3.1-8B"].config)
    del config["vocab_size"]
    assert estimate_parameters(config) is None
