"""Loading from folders and falling back: what is used, what is said, what is refused."""

import json
import pickle
import shutil
import struct
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvcore.decoding import LoadError, forward, load, memory
from kvcore.decoding.config import parse_config
from kvcore.decoding.errors import NoRoomError
from kvcore.decoding.known import KNOWN, find
from tests.decoding.checkpoints import random_ids, save_network

IDS = random_ids(20)


@pytest.fixture
def folder(networks, tmp_path):
    """A copy of a GPT-2 checkpoint to do things to."""
    return shutil.copytree(networks["gpt2"][1], tmp_path / "model")


def change_config(folder, **changes):
    path = folder / "config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(raw))


def same_logits(a, b, tolerance=1e-5):
    difference = (forward(load(a), IDS) - forward(load(b), IDS)).abs().max()
    return float(difference) <= tolerance


def test_importing_the_package_imports_no_torch():
    code = "import sys, os, kvcore.decoding; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_waiting_threads_sleep():
    code = "import os, kvcore.decoding; print(os.environ['OMP_WAIT_POLICY'])"
    environment = {"PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.stdout == b"PASSIVE\n"


def test_a_folder_without_a_tokenizer_says_so(folder):
    model = load(folder)
    assert model.source == "local"
    assert "no tokenizer" in model.notice.lower()
    assert "bytes" in model.notice
    assert model.decode(model.encode("naïve 😀")) == "naïve 😀"


def test_names_with_and_without_a_prefix_are_read(folder, networks):
    tensors = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    bare["h.0.attn.bias"] = torch.ones(1, 1, 8, 8)  # the hub's GPT-2 carries its old mask
    save_file(bare, folder / "model.safetensors")
    assert same_logits(folder, networks["gpt2"][1])


def test_sharded_weights_are_read(folder, networks):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / shard)
    weight_map = {name: shard for shard, held in shards.items() for name in held}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert same_logits(folder, networks["gpt2"][1])
    (folder / "b.safetensors").unlink()
    with pytest.raises(LoadError, match=r"names b\.safetensors, which is not in the folder"):
        load(folder)


def test_half_precision_weights_are_run_in_fp32(folder, networks):
    tensors = load_file(folder / "model.safetensors")
    save_file({n: t.bfloat16() for n, t in tensors.items()}, folder / "model.safetensors")
    model = load(folder)
    assert model.network.head.weight.dtype == torch.float32
    assert not same_logits(folder, networks["gpt2"][1])
    assert same_logits(folder, networks["gpt2"][1], tolerance=1.0)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1000])


def garbage(path):
    path.write_bytes(b"\x80" * 5000)


def huge_header(path):
    path.write_bytes(struct.pack("<Q", 2**62) + b"{}")


def pickled(path):
    path.with_name("pytorch_model.bin").write_bytes(pickle.dumps({}))
    path.unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "damaged or incomplete"),
        (garbage, "damaged or incomplete"),
        (huge_header, "damaged or incomplete"),
        (pickled, "holds no model.safetensors"),
    ],
)
def test_weights_that_cannot_be_read_are_one_sentence(folder, damage, message):
    damage(folder / "model.safetensors")
    with pytest.raises(LoadError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_layer": 4}, "no tensor 'h.3"),
        ({"n_embd": 32}, r"shape \[256, 64\]"),
        ({"n_embd": 66}, "cannot be split over 4 heads"),
        ({"n_layer": 0}, "n_layer as a whole number above 0, not 0"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"model_type": "bert"}, "'bert'"),
        ({"model_type": None}, "None"),
        ({"activation_function": "magic"}, "'magic'"),
        ({"scale_attn_weights": False}, "scale_attn_weights"),
    ],
)
def test_a_config_that_does_not_fit_is_named(folder, changes, message):
    change_config(folder, **changes)
    with pytest.raises(LoadError, match=message):
        load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "\0"])
def test_a_config_that_is_no_config(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(LoadError, match=r"config\.json"):
        load(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "gelu"},
        {"model_type": "mistral", "sliding_window": 4096},
        {"num_key_value_heads": 4},
        {"head_dim": 7},
        {"rope_parameters": {"rope_type": "yarn", "factor": 2}},
    ],
)
def test_llama_shapes_that_are_not_supported_are_refused(networks, tmp_path, changes):
    folder = shutil.copytree(networks["llama"][1], tmp_path / "llama")
    change_config(folder, **changes)
    with pytest.raises(LoadError):
        load(folder)


def test_a_missing_config_and_a_missing_folder(folder, tmp_path):
    (folder / "config.json").unlink()
    with pytest.raises(LoadError, match=r"no config\.json"):
        load(folder)
    with pytest.raises(LoadError, match="There is no model"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["gtp2", "", "🙂", "a/b/c", "../x", "x" * 5000])
def test_an_unknown_name_lists_those_there_are(name):
    with pytest.raises(LoadError, match="gpt2, distilgpt2, gpt2-medium, smollm2"):
        load(name)


def test_a_damaged_tokenizer_is_one_sentence(folder):
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(LoadError, match=r"tokenizer\.json cannot be read"):
        load(folder)


def test_nothing_answers_and_the_fallback_says_what_it_is(small_known):
    model = load("distilgpt2")
    assert model.source == "random"
    assert "cannot be reached" in model.notice
    assert "random weights" in model.notice
    assert model.notice.count(". ") == 0


def test_random_weights_follow_their_seed(small_known):
    a, b, c = (load("distilgpt2", sources=("random",), seed=seed) for seed in (1, 1, 2))
    ids = [1, 2, 3]
    assert torch.equal(forward(a, ids), forward(b, ids))
    assert not torch.equal(forward(a, ids), forward(c, ids))


def test_a_model_larger_than_free_memory_is_refused_before_loading(folder, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 300 * 2**20)
    with pytest.raises(NoRoomError, match=r"GPT-2 needs .* GiB of memory and 0\.29 GiB are free"):
        load("gpt2")
    assert load(folder).source == "local"  # a small one still fits


@pytest.mark.parametrize("name", ["GPT2", "gpt-2", "openai-community/gpt2", " gpt2 "])
def test_a_model_is_found_by_any_of_its_names(name):
    assert find(name) is KNOWN["gpt2"]


def test_only_allowed_sources_are_tried():
    with pytest.raises(LoadError, match="GPT-2 cannot be loaded"):
        load("gpt2", sources=("cache",))
    with pytest.raises(ValueError, match="'pickle'"):
        load("gpt2", sources=("pickle",))


@pytest.mark.parametrize(
    ("name", "parameters"),
    # as counted by transformers on the published configurations
    [("gpt2", 124_439_808), ("gpt2-medium", 354_823_168), ("smollm2", 134_515_008)],
)
def test_parameter_counts_of_the_known_models(name, parameters):
    assert memory.parameter_count(KNOWN[name].config) == parameters


def test_bytes_read_per_token_are_the_references():
    model = load("gpt2", sources=("random",))
    assert round(model.bytes_read_per_token() / 1e6, 1) == 494.6
    assert model.bytes_read_per_token(1_000) - model.bytes_read_per_token() == 73_728_000
    assert model.weight_bytes == 124_439_808 * 4
    held = sum(t.untyped_storage().nbytes() for t in storages(model))
    assert held == model.weight_bytes


def storages(model):
    """One tensor of each storage: tied and transposed views are the same memory."""
    by_place = {t.untyped_storage().data_ptr(): t for t in model.network.checkpoint().values()}
    return by_place.values()


def test_untied_weights_are_counted(tmp_path):
    _, folder = save_network("llama", tmp_path, tie_word_embeddings=False, attention_bias=True)
    model = load(folder)
    in_blocks = 3 * (2 * 96 + 96 * (96 + 32 + 32) + 96 + 32 + 32 + 96 * 96 + 96 + 3 * 96 * 200)
    assert model.weight_bytes == 4 * (2 * 300 * 96 + 96 + in_blocks)


def test_the_known_shapes_are_those_transformers_knows():
    from transformers import GPT2Config

    assert parse_config(GPT2Config().to_dict()) == KNOWN["gpt2"].config
