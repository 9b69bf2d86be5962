"""How many weights a config describes: an estimate for configs that are in no catalogue.

Counts what is large: embeddings, attention projections, feed-forward layers and experts, and the
projections of recurrent layers. Norms, biases, vision parts and draft layers are left out, so the
result is a little low. Held against counted models in tests/test_parameters.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvcore.architecture import Architecture, LayerKind
from kvcore.config_json.classes import model_class
from kvcore.config_json.reader import NESTED

EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts")

OTHER_FEED_FORWARD = frozenset(
    {"bloom", "falcon", "gemma4", "gpt_neox", "gptj", "llama4", "nemotron", "phi", "starcoder2"}
)
"""Types whose feed-forward layers are not gated, or mix experts and dense layers in one."""


@dataclass(frozen=True)
class Estimate:
    """Weights in all, and those one token passes through."""

    parameters: int
    active_parameters: int


def estimate_parameters(config: Mapping[str, object]) -> Estimate | None:
    """An estimate for gated transformers with grouped or latent attention, dense or with experts.

    None for everything else, and where a size is missing: encoder-decoders, searched blocks, state
    space models, and old models whose feed-forward layers differ.
    """
    values = _language_part(config)
    architecture = Architecture.from_config(config)
    if not _is_gated(values, architecture):
        return None
    try:
        return _estimate(values, architecture)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _language_part(config: Mapping[str, object]) -> Mapping[str, object]:
    nested = next((config[key] for key in NESTED if isinstance(config.get(key), Mapping)), None)
    return config if nested is None or "num_hidden_layers" in config else nested


def _is_gated(values: Mapping[str, object], architecture: Architecture) -> bool:
    kinds = {group.kind for group in architecture.layers}
    known = model_class(architecture.model_type)
    return (
        known is not None
        and "intermediate_size" in values
        and "block_configs" not in values
        and not kinds & {LayerKind.CROSS_ATTENTION, LayerKind.RECURRENT, LayerKind.SHARED}
        and architecture.model_type.removesuffix("_text") not in OTHER_FEED_FORWARD
    )


def _estimate(values: Mapping[str, object], architecture: Architecture) -> Estimate:
    hidden = _whole(values, "hidden_size")
    embeddings = _whole(values, "vocab_size") * hidden
    if not values.get("tie_word_embeddings", False):
        embeddings *= 2
    attention = sum(
        group.count * _attention(values, group.head_dim, group.num_kv_heads, hidden)
        for group in architecture.layers
        if group.kind is not LayerKind.SPARSE_INDEX
    )
    total, active = _feed_forward(values, hidden, architecture.num_layers)
    return Estimate(embeddings + attention + total, embeddings + attention + active)


def _attention(values: Mapping[str, object], head_dim: int, kv_heads: int, hidden: int) -> int:
    heads = _whole(values, "num_attention_heads")
    if values.get("kv_lora_rank"):
        return _latent_attention(values, heads, hidden)
    return hidden * head_dim * (2 * heads + 2 * kv_heads)


def _latent_attention(values: Mapping[str, object], heads: int, hidden: int) -> int:
    rank, rope = _whole(values, "kv_lora_rank"), _whole(values, "qk_rope_head_dim")
    query = heads * (_whole(values, "qk_nope_head_dim") + rope)
    compressed = values.get("q_lora_rank")
    queries = compressed * (hidden + query) if isinstance(compressed, int) else hidden * query
    keys = hidden * (rank + rope) + rank * heads * (
        _whole(values, "qk_nope_head_dim") + _whole(values, "v_head_dim")
    )
    return queries + keys + heads * _whole(values, "v_head_dim") * hidden


def _feed_forward(values: Mapping[str, object], hidden: int, num_layers: int) -> tuple[int, int]:
    """Weights of all feed-forward layers, and those one token passes through."""
    dense = 3 * hidden * _whole(values, "intermediate_size")
    experts = next((values[key] for key in EXPERTS if values.get(key)), 0)
    if not experts:
        return num_layers * dense, num_layers * dense
    drawn = next(values[key] for key in EXPERTS_PER_TOKEN if values.get(key))
    width = values.get("moe_intermediate_size") or values["intermediate_size"]
    first = values.get("first_k_dense_replace") or 0
    step = values.get("interleave_moe_layer_step") or 1
    sparse = (num_layers - first) // step
    one = 3 * hidden * width
    shared = (values.get("n_shared_experts") or 0) * one
    common = (num_layers - sparse) * dense + sparse * (shared + hidden * experts)
    return common + sparse * experts * one, common + sparse * drawn * one


def _whole(values: Mapping[str, object], key: str) -> int:
    value = values[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(key)
    return value
