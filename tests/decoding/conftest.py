"""Small models to test with, saved by `transformers`."""

from dataclasses import replace

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
