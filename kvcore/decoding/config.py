"""What config.json says about the network to be run, for the two shapes this runner knows."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvcore.decoding.errors import LoadError

LLAMA_LIKE = ("llama", "mistral", "qwen2")


@dataclass(frozen=True)
class GPT2Config:
    """Learned positions, LayerNorm, one key head per query head (Radford et al. 2019)."""

    num_layers: int
    num_heads: int
    hidden_size: int
    inner_size: int
    vocab_size: int
    context_length: int
    norm_epsilon: float = 1e-5
    activation: str = "gelu_new"
    tied_head: bool = True
    scale_by_layer: bool = False

    @property
    def num_kv_heads(self) -> int:
        return self.num_heads

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads


@dataclass(frozen=True)
class LlamaConfig:
    """Rotary positions, RMSNorm, gated MLP, grouped queries (Touvron et al. 2023)."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    inner_size: int
    vocab_size: int
    context_length: int
    norm_epsilon: float = 1e-6
    rope_theta: float = 10_000.0
    rope_scaling: Mapping[str, Any] = field(default_factory=dict)
    tied_head: bool = False


Config = GPT2Config | LlamaConfig


def read_config(folder: Path) -> tuple[Config, dict]:
    """The network config and the raw mapping of a checkpoint folder's config.json, or LoadError."""
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LoadError(f"{folder.name} holds no config.json.") from error
    except (OSError, ValueError) as error:
        raise LoadError(f"config.json cannot be read ({error}).") from error
    return parse_config(raw), raw


def parse_config(raw: Mapping[str, Any]) -> Config:
    """The network that a config.json describes, or LoadError naming the key that is at fault."""
    if not isinstance(raw, Mapping):
        raise LoadError("config.json is not an object with named values.")
    kind = raw.get("model_type")
    if kind == "gpt2":
        config = _gpt2(raw)
    elif kind in LLAMA_LIKE:
        config = _llama(raw)
    else:
        raise LoadError(
            f"Models of type {kind!r} cannot be run here; GPT-2 and Llama shapes "
            f"({', '.join(LLAMA_LIKE)}) can."
        )
    _check(config)
    return config


def _gpt2(raw: Mapping[str, Any]) -> GPT2Config:
    hidden_size = _count(raw, "n_embd")
    if raw.get("add_cross_attention"):
        raise LoadError("config.json sets add_cross_attention, which this runner does not have.")
    if not raw.get("scale_attn_weights", True):
        raise LoadError("config.json turns scale_attn_weights off, which is not supported here.")
    return GPT2Config(
        num_layers=_count(raw, "n_layer"),
        num_heads=_count(raw, "n_head"),
        hidden_size=hidden_size,
        inner_size=_count(raw, "n_inner") if raw.get("n_inner") else 4 * hidden_size,
        vocab_size=_count(raw, "vocab_size"),
        context_length=_count(raw, "n_positions"),
        norm_epsilon=float(raw.get("layer_norm_epsilon", 1e-5)),
        activation=raw.get("activation_function", "gelu_new"),
        tied_head=raw.get("tie_word_embeddings", True),
        scale_by_layer=bool(raw.get("scale_attn_by_inverse_layer_idx", False)),
    )


def _llama(raw: Mapping[str, Any]) -> LlamaConfig:
    hidden_size, num_heads = _count(raw, "hidden_size"), _count(raw, "num_attention_heads")
    if raw.get("hidden_act", "silu") != "silu":
        raise LoadError(f"hidden_act {raw['hidden_act']!r} is not supported here, only 'silu'.")
    if raw.get("sliding_window") and raw.get("use_sliding_window", raw["model_type"] == "mistral"):
        raise LoadError("config.json sets a sliding_window, which this runner does not apply.")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    return LlamaConfig(
        num_layers=_count(raw, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=_count(raw, "num_key_value_heads")
        if raw.get("num_key_value_heads")
        else num_heads,
        head_dim=_count(raw, "head_dim") if raw.get("head_dim") else hidden_size // num_heads,
        hidden_size=hidden_size,
        inner_size=_count(raw, "intermediate_size"),
        vocab_size=_count(raw, "vocab_size"),
        context_length=_count(raw, "max_position_embeddings"),
        norm_epsilon=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0),
        rope_scaling=rope,
        tied_head=raw.get("tie_word_embeddings", False),
    )


def _count(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LoadError(f"config.json must give {key} as a whole number above 0, not {value!r}.")
    return value


def _check(config: Config) -> None:
    if config.num_heads % config.num_kv_heads:
        raise LoadError(
            f"{config.num_heads} query heads cannot share {config.num_kv_heads} key-value heads "
            "evenly."
        )
    if isinstance(config, GPT2Config) and config.hidden_size % config.num_heads:
        raise LoadError(
            f"n_embd {config.hidden_size} cannot be split over {config.num_heads} heads evenly."
        )
    if isinstance(config, LlamaConfig) and config.head_dim % 2:
        raise LoadError(f"Rotary positions need an even head_dim, not {config.head_dim}.")
