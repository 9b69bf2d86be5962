"""Record what transformers' configuration classes assume when a config.json leaves a key out.

Writes kvcore/data/class_defaults.json. Run after changing the pinned transformers:

    python -m scripts.record_class_defaults
"""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import date
from pathlib import Path

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
)

from kvcore.config_json.reader import SMELLS_OF_STATE

TARGET = Path(__file__).parents[1] / "kvcore" / "data" / "class_defaults.json"

SHAPE = re.compile(
    r"^(num_(hidden_)?layers|n_layers?|num_(decoder|encoder)_layers|(decoder|encoder)_layers|"
    r"num_attention_heads|num_heads|n_heads?|(decoder|encoder)_attention_heads|"
    r"hidden_size|n_embd|d_model|d_kv|vocab_size|max_position_embeddings|n_positions|n_ctx|"
    r"max_seq_len|max_source_positions|max_target_positions|multi_query|new_decoder_architecture|"
    r"expand|conv_kernel|state_size|n_groups|num_local_experts|lru_width|block_types|rescale_every|"
    r"is_encoder_decoder|is_decoder|model_max_length)$"
)
STATE = re.compile(
    r"slid|window|pattern|layer_types|layers_block_type|state|conv|mamba|linear|lora|rope_head|kv|"
    r"key_value|chunk|index|compress|head_dim|head_size|head_channels|block_type|period|offset|"
    r"interval|share|lru|ssm|global|local|cross_attention|attn_layer|attn_type|attention_types|"
    r"recurrent|full_attn|group_size"
)
IRRELEVANT = re.compile(
    r"vision|image|video|audio|initial|token_id|token_index|dropout|bias|mlp|moe|expert|logit|"
    r"classifier|hidden_act|return_|output_|q_lora|o_lora|scal|alpha|beta|norm|seed|loss|router|feed_forward"
)


def main() -> None:
    speech = MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES
    generating = (
        set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
        | set(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
        | set(MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
        | set(speech)
        | {name for name in CONFIG_MAPPING_NAMES if name.endswith(("_text", "_text_model"))}
    )
    classes = {}
    for model_type in sorted(generating):
        record_class(model_type, config_class(model_type), classes)
    names = {
        architecture: model_type
        for mapping in (
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        )
        for model_type, architecture in mapping.items()
        if isinstance(architecture, str)
    }
    other = sorted(set(CONFIG_MAPPING_NAMES) - set(classes))
    payload = {
        "source": f"configuration classes of transformers {transformers.__version__}",
        "date": date.today().isoformat(),
        "classes": dict(sorted(classes.items())),
        "architectures": dict(sorted(names.items())),
        "without_generation": other,
    }
    TARGET.write_text(
        json.dumps(payload, indent=None, separators=(",", ":"), sort_keys=True) + "\n"
    )
    print(f"{len(classes)} classes, {len(names)} architectures, {TARGET.stat().st_size:,} bytes")


def config_class(model_type: str) -> type | None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    known = model_type in CONFIG_MAPPING
    return CONFIG_MAPPING[model_type] if known else None


def record_class(model_type: str, cls: type | None, classes: dict) -> None:
    if cls is None or model_type in classes:
        return
    entry: dict = {}
    defaults = {
        key: value
        for key, value in field_defaults(cls).items()
        if (SHAPE.match(key) or STATE.search(key)) and not IRRELEVANT.search(key)
    }
    if defaults:
        entry["defaults"] = defaults
    state_keys = sorted(f.name for f in dataclasses.fields(cls) if SMELLS_OF_STATE.search(f.name))
    if state_keys:
        entry["state_keys"] = state_keys
    text = text_class(cls)
    if text:
        entry["text_type"] = text.model_type
    classes[model_type] = entry
    if text:
        record_class(text.model_type, text, classes)


def text_class(cls: type) -> type | None:
    for key in ("text_config", "thinker_config", "language_config", "decoder"):
        part = (getattr(cls, "sub_configs", None) or {}).get(key)
        if part is not None and getattr(part, "model_type", ""):
            return part
    return None


def field_defaults(cls: type) -> dict:
    """Defaults of the class's own fields, as they stand before the class works on them."""
    found = {}
    for field in dataclasses.fields(cls):
        value = field.default
        if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if isinstance(value, tuple):
            value = list(value)
        if value is dataclasses.MISSING or not isinstance(
            value, (int, float, str, list, type(None))
        ):
            continue
        found[field.name] = value
    return found


if __name__ == "__main__":
    main()
