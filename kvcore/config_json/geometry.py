"""How wide keys, values and latent vectors are: heads and dimensions under all their names."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcore.architecture import Source
from kvcore.config_json.fields import Fields

HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim")
HEADS = (
    "num_attention_heads",
    "n_head",
    "num_heads",
    "n_heads",
    "decoder_attention_heads",
    "attention_heads",
)
KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "kv_n_heads",
    "num_attention_groups",
    "num_query_groups",
)
HEAD_DIM = ("head_dim", "hidden_size_per_head", "attention_head_dim", "kv_channels", "d_kv")

TWICE_HIDDEN = frozenset({"zamba", "zamba2"})
"""Attention over the hidden state and the embedding side by side: heads are twice as wide."""


@dataclass(frozen=True)
class Geometry:
    """Keys and values of one kind of layer: heads, width of a key, width of a value.

    fewest_kv_heads is lower than num_kv_heads where the config does not settle the count.
    """

    num_kv_heads: int
    head_dim: int
    value_head_dim: int
    fewest_kv_heads: int


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: one vector of rank + rope_dim, no values (DeepSeek-V2, 2.1)."""

    rank: int
    rope_dim: int


def attention_heads(fields: Fields) -> int:
    return fields.whole("num_attention_heads", *HEADS)


def read_geometry(fields: Fields, model_type: str) -> Geometry:
    """Heads and widths of the ordinary attention layers. Raises ConfigError, naming the key."""
    heads = attention_heads(fields)
    most, fewest = _kv_heads(fields, model_type, heads)
    if most > heads and not fields.says("head_dim"):
        raise fields.error(
            "num_key_value_heads",
            f"{{key}} is {most}, more than the {heads} attention heads there are.",
        )
    width = head_dim(fields, model_type, heads)
    value_width = width
    if model_type == "mimo_v2_flash":
        value_width = fields.whole("value_head_dim", "v_head_dim", assume=width, because="as keys")
    return Geometry(most, width, value_width, fewest)


def _kv_heads(fields: Fields, model_type: str, heads: int) -> tuple[int, int]:
    """The most and the fewest KV heads the config allows; nearly always the same."""
    special = _special_kv_heads(fields, model_type, heads)
    if special is not None:
        return special, special
    for key in KV_HEADS:
        if fields.says(key):
            found = fields.whole("num_kv_heads", key)
            return found, found
    nested = fields.inside("attn_config")
    if nested and nested.says("kv_n_heads"):
        found = nested.whole("num_kv_heads", "kv_n_heads")
        fields.sources.update(nested.sources)
        return found, found
    return _unsaid_kv_heads(fields, heads)


def _unsaid_kv_heads(fields: Fields, heads: int) -> tuple[int, int]:
    """Nothing said: as many as attention heads, unless the class has a number of its own.

    A nested section leaves out what its class assumes. At the top of a file nothing is left out, so
    there a class default is only one of two readings.
    """
    default = next(
        (fields.model_class.default(key) for key in KV_HEADS if key not in fields.values), None
    )
    if isinstance(default, int) and not isinstance(default, bool) and default != heads:
        if fields.path:
            return (fields.whole("num_kv_heads", "num_key_value_heads"),) * 2
        if default < heads and any(fields.says(key) for key in HEADS):
            fields.record(
                "num_kv_heads",
                heads,
                Source.ASSUMPTION,
                f"between {default} (default of {fields.model_class.source}) and one for each head",
            )
            return heads, default
    fields.record(
        "num_kv_heads", heads, Source.ASSUMPTION, "no key for it: one for each attention head"
    )
    return heads, heads


def _special_kv_heads(fields: Fields, model_type: str, heads: int) -> int | None:
    if model_type == "falcon":
        return _falcon_kv_heads(fields, heads)
    if model_type == "gpt_bigcode":
        return _multi_query(fields, "multi_query", heads, heads, default=True)
    if model_type == "chatglm":
        groups = fields.maybe_whole("num_kv_heads", "multi_query_group_num")
        return _multi_query(fields, "multi_query_attention", groups or 1, heads)
    if model_type == "plamo":
        shared = fields.whole("heads_per_kv_head", "n_shared_head", assume=1, because="none shared")
        found = -(-heads // shared)
        fields.record("num_kv_heads", found, Source.CONFIG, fields.name("n_shared_head"))
        return found
    return None


def _falcon_kv_heads(fields: Fields, heads: int) -> int:
    """Old falcon with multi_query has one KV head, whatever num_kv_heads says."""
    new = fields.truth("new_decoder_architecture")
    if not new and fields.truth("multi_query", True):
        for key in ("num_kv_heads", "n_head_kv", "num_key_value_heads"):
            fields.used.add(key)
        source = Source.CONFIG if fields.says("multi_query") else Source.CLASS_DEFAULT
        fields.record("num_kv_heads", 1, source, fields.name("multi_query"))
        return 1
    if not new and not (fields.says("n_head_kv") or fields.says("num_kv_heads")):
        fields.record("num_kv_heads", heads, Source.CONFIG, fields.name("multi_query"))
        return heads
    return fields.whole(
        "num_kv_heads",
        "num_kv_heads",
        "n_head_kv",
        "num_key_value_heads",
        assume=heads,
        because="one for each attention head",
    )


def _multi_query(
    fields: Fields, key: str, when_true: int, heads: int, default: bool = False
) -> int:
    """A switch that gives one KV head (or one group count) to all heads."""
    shared = fields.truth(key, default)
    found = (1 if key == "multi_query" else when_true) if shared else heads
    source = Source.CONFIG if fields.says(key) else Source.CLASS_DEFAULT
    fields.record("num_kv_heads", found, source, fields.name(key))
    return found


def head_dim(fields: Fields, model_type: str, heads: int) -> int:
    """The width of one head: explicit first, then the class, then hidden size ÷ heads."""
    named = fields.maybe_whole("head_dim", *HEAD_DIM, zero_is_absent=True)
    if named is not None:
        return named
    hidden = fields.whole("hidden_size", *HIDDEN)
    if model_type in TWICE_HIDDEN:
        hidden *= 2
    if hidden % heads:
        key = next((key for key in HIDDEN if fields.says(key)), HIDDEN[0])
        raise fields.error(
            key,
            f"{{key}} is {hidden}, which {heads} heads do not divide, and there is no head_dim.",
        )
    fields.record(
        "head_dim", hidden // heads, Source.CONFIG, f"hidden size {hidden} ÷ {heads} heads"
    )
    return hidden // heads


def read_latent(fields: Fields) -> Latent | None:
    """The latent vector of a model that has one, else None."""
    if fields.maybe_whole("latent_rank", "kv_lora_rank") is None:
        return None
    rank = fields.whole("latent_rank", "kv_lora_rank")
    rope = fields.whole("rope_dim", "qk_rope_head_dim", minimum=0)
    for key in ("num_key_value_heads", "head_dim", "v_head_dim", "qk_nope_head_dim"):
        fields.used.add(key)
    return Latent(rank, rope)


def global_geometry(fields: Fields, model_type: str, base: Geometry) -> Geometry:
    """Full-attention layers of models whose windows have another shape (Gemma 4)."""
    if model_type not in ("gemma4_text", "gemma4_unified_text"):
        return base
    width = fields.whole(
        "global_head_dim", "global_head_dim", assume=512, because="Gemma 4's class"
    )
    heads = base.num_kv_heads
    if fields.truth("attention_k_eq_v"):
        heads = fields.maybe_whole("global_kv_heads", "num_global_key_value_heads") or heads
    else:
        fields.used.add("num_global_key_value_heads")
    return Geometry(heads, width, width, heads)


def window_geometry(fields: Fields, model_type: str, base: Geometry) -> Geometry:
    """Windowed layers of models that give them a shape of their own (MiMo, Step 3.5)."""
    if model_type == "mimo_v2_flash":
        width = fields.whole(
            "window_head_dim", "swa_head_dim", assume=base.head_dim, because="as full"
        )
        value = fields.whole(
            "window_value_head_dim", "swa_v_head_dim", assume=base.value_head_dim, because="as full"
        )
        heads = fields.whole(
            "window_kv_heads",
            "swa_num_key_value_heads",
            assume=base.num_kv_heads,
            because="as full",
        )
        return Geometry(heads, width, value, heads)
    other = fields.inside("attention_other_setting")
    if other is None:
        return base
    heads = other.maybe_whole("window_kv_heads", "num_attention_groups") or base.num_kv_heads
    width = other.maybe_whole("window_head_dim", "head_dim") or base.head_dim
    fields.sources.update(other.sources)
    return replace(
        base, num_kv_heads=heads, head_dim=width, value_head_dim=width, fewest_kv_heads=heads
    )
