"""A GGUF file becomes a checkpoint with the same logits."""

import errno

import pytest
import torch

from kvcore.decoding import LoadError, forward, load, wheel
from tests.decoding.checkpoints import VOCAB, random_ids, save_network

gguf = pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """(their network, folder converted from the GGUF that llama.cpp's tools would have made)."""
    folder = tmp_path_factory.mktemp("gguf")
    network, _ = save_network("llama", folder / "theirs")
    write_gguf(network, folder / "model.gguf")
    (folder / "ours").mkdir()
    wheel.convert(folder / "model.gguf", folder / "ours")
    return network, folder / "ours"


def write_gguf(network, path):
    c = network.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(c.vocab_size)
    letters = [chr(256 + i) for i in range(VOCAB - 1)]
    letters[2] = letters[0] + letters[1]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*letters, "<|end|>"])
    writer.add_token_types([1] * len(letters) + [3])
    writer.add_token_merges([f"{letters[0]} {letters[1]}"])
    writer.add_chat_template("{{ messages[0].content }}")
    theirs = {ours: name for name, ours in wheel.NAMES.items()}
    for name, tensor in network.state_dict().items():
        if name == "lm_head.weight":
            continue
        array = tensor.numpy()
        parts = name.split(".")
        if parts[1] == "layers":
            stem = theirs[".".join(parts[3:-1])]
            heads = {"attn_q": c.num_attention_heads, "attn_k": c.num_key_value_heads}.get(stem)
            array = side_by_side(array, heads) if heads else array
            writer.add_tensor(f"blk.{parts[2]}.{stem}.weight", array)
        else:
            writer.add_tensor(f"{theirs['.'.join(parts[:-1])]}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def side_by_side(weight, heads):
    """llama.cpp's conversion: rows i and i + head_dim / 2 of a head become neighbours."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns).copy()


def test_the_converted_checkpoint_has_their_logits(converted):
    network, folder = converted
    ids = random_ids(50)
    with torch.inference_mode():
        theirs = network(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(
        forward(load(folder), ids, all_logits=True), theirs, atol=1e-4, rtol=0
    )


def test_its_tokenizer_and_chat_form_come_along(converted):
    tokenizer = load(converted[1]).tokenizer
    assert tokenizer.encode("<|end|>\0\1") == [VOCAB - 1, 2]  # two bytes and the merge of them
    assert tokenizer.chat_template == "{{ messages[0].content }}"


def test_a_damaged_gguf_is_one_sentence(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + b"\xff" * 100)
    with pytest.raises(LoadError, match=r"model\.gguf is damaged"):
        wheel.convert(tmp_path / "model.gguf", tmp_path)


def test_a_full_disk_falls_back_and_leaves_nothing(monkeypatch, tmp_path):
    def full(source, folder):
        (folder / "half").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("KV_WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(wheel, "convert", full)
    with pytest.raises(LoadError, match="No space left on device"):
        load("smollm2", sources=("wheel",))
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_missing_wheel_is_named(monkeypatch):
    monkeypatch.setattr(wheel, "PACKAGE", "no-such-package")
    with pytest.raises(LoadError, match="no-such-package package is not installed"):
        load("smollm2", sources=("wheel",))


def test_a_damaged_conversion_is_made_again(monkeypatch, tmp_path, converted):
    """A half-written folder from elsewhere is replaced, not read."""
    import shutil

    monkeypatch.setenv("KV_WORKBENCH_CACHE", str(tmp_path))
    made = []

    def copy(source, folder):
        made.append(folder)
        shutil.copytree(converted[1], folder, dirs_exist_ok=True)

    monkeypatch.setattr(wheel, "convert", copy)
    model = load("smollm2", sources=("wheel",))
    weights = model.folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    again = load("smollm2", sources=("wheel",))
    assert len(made) == 2
    assert again.source == "wheel"
