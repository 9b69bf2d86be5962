"""The way over the hub, with a hub served here: good, slow, broken off, lying, or not there."""

import json
import shutil
import time

import pytest

from kvcore.decoding import LoadError, hub, load
from tests.decoding.fake_hub import COMMIT, serving, silent_server

pytestmark = pytest.mark.usefixtures("small_known")

REPO = "openai-community/gpt2"
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="session")
def small_gpt2(networks, tmp_path_factory):
    """A small checkpoint as the hub would serve it, with a tokenizer."""
    folder = tmp_path_factory.mktemp("hub") / "gpt2"
    shutil.copytree(networks["gpt2"][1], folder)
    letters = {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": letters, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture
def served(small_gpt2, monkeypatch):
    with serving(REPO, small_gpt2) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        yield served


def downloaded():
    return hub.cache_folder() / "models--openai-community--gpt2" / "snapshots" / COMMIT / WEIGHTS


def partial_files():
    return list(hub.cache_folder().rglob("*.incomplete"))


def test_a_good_hub_then_its_cache(served):
    seen = []
    model = load("gpt2", progress=seen.append)
    assert (model.source, model.notice) == ("hub", None)
    assert model.encode("cab") == [2, 0, 1]
    size = (served.folder / WEIGHTS).stat().st_size
    assert hub.Progress(WEIGHTS, size, size) in seen
    assert f"Downloading {WEIGHTS}" in str(seen[-1]) or len({p.file for p in seen}) >= 3
    asked = len(served.requests)
    again = load("gpt2")
    assert (again.source, again.notice) == ("cache", None)
    assert len(served.requests) == asked


def test_the_old_name_of_a_repository_is_found_too(served):
    served.repo = "gpt2"
    assert load("gpt2").source == "hub"


def test_a_slow_hub_is_waited_for(served):
    served.slow = 0.1
    assert load("gpt2").source == "hub"


def test_a_download_past_its_time_limit_is_given_up(served):
    served.slow = 2.0
    began = time.monotonic()
    model = load("gpt2", sources=("cache", "hub", "random"), time_limit=4, answer_within=3)
    assert model.source == "random"
    assert "time limit" in model.notice
    assert time.monotonic() - began < 20
    assert not partial_files()


def test_a_download_can_be_stopped(served):
    served.slow = 0.2
    seen = []

    def with_half_a_file_there():
        seen.extend(partial_files())
        return bool(seen)

    with pytest.raises(LoadError, match="was stopped"):
        load("gpt2", should_stop=with_half_a_file_there)
    assert seen
    assert not partial_files()


def test_a_download_that_breaks_off_falls_back_and_leaves_nothing(served):
    served.cut = True
    model = load("gpt2")
    assert model.source == "random"
    assert "broke off" in model.notice
    assert not partial_files()
    assert not downloaded().exists()


def test_a_wrong_hash_once_is_fetched_again(served):
    served.wrong_hash = 1
    model = load("gpt2")
    assert (model.source, model.notice) == ("hub", None)
    assert downloaded().read_bytes() == (served.folder / WEIGHTS).read_bytes()


def test_a_wrong_hash_twice_falls_back(served):
    served.wrong_hash = 2
    model = load("gpt2")
    assert model.source == "random"
    assert "model.safetensors does not match its published checksum" in model.notice


def test_a_hub_in_trouble_falls_back(served):
    served.status = 503
    model = load("gpt2")
    assert model.source == "random"
    assert served.url in model.notice


def test_a_hub_without_the_model_falls_back(served):
    served.repo = "somebody/else"
    model = load("gpt2")
    assert model.source == "random"
    assert "there is no" in model.notice


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_file_in_the_cache_is_downloaded_again(served, damage):
    load("gpt2")
    whole = downloaded().read_bytes()
    broken = whole[: len(whole) // 2] if damage == "cut" else whole[:-4] + b"\0\0\0\1"
    downloaded().write_bytes(broken)
    model = load("gpt2")
    assert model.source == "hub"
    assert "cached copy" in model.notice
    assert downloaded().read_bytes() == whole


def test_a_damaged_file_in_the_cache_without_a_hub_falls_back(served, monkeypatch):
    load("gpt2")
    downloaded().write_bytes(downloaded().read_bytes()[:100])
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    model = load("gpt2")
    assert model.source == "random"
    assert "checksum" in model.notice
    assert "cannot be reached" in model.notice


def test_a_hub_that_says_nothing_is_given_up_in_time():
    """The three seconds that loading may lose; a bound on waiting, not a measurement of speed."""
    assert hub.ANSWER_WITHIN <= 2
    with silent_server() as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", url)
        began = time.monotonic()
        with pytest.raises(hub.HubError, match="did not answer within"):
            hub.download((REPO,))
        assert time.monotonic() - began < 3


def test_offline_mode_asks_nobody(served, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = load("gpt2")
    assert model.source == "random"
    assert "HF_HUB_OFFLINE" in model.notice
    assert served.requests == []


def test_a_folder_that_cannot_be_written_falls_back(served, monkeypatch, tmp_path):
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    monkeypatch.setenv("HF_HUB_CACHE", str(blocked / "cache"))
    model = load("gpt2")
    assert model.source == "random"
    assert model.notice
