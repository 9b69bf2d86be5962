"""Which model types are known, and what their configuration classes assume.

The defaults are those of transformers' own classes (kvcore/data/class_defaults.json); model types
that live outside transformers are listed here with the type whose config they share, if any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

SHARES_CONFIG_WITH: Mapping[str, str] = {
    "AquilaModel": "llama",
    "Yi": "llama",
    "aquila": "llama",
    "arctic": "mixtral",
    "deepseek": "llama",
    "deepseek_ref": "deepseek_v4",
    "deepseek_mtp": "deepseek_v3",
    "deepseek_vl_v2": "deepseek_v2",
    "ernie4_5_moe_vl": "ernie4_5_moe",
    "grok-1": "mixtral",
    "internlm": "llama",
    "internlm2": "llama",
    "kimi_k2": "deepseek_v3",
    "minicpm": "llama",
    "mimo": "qwen2",
    "minimax_m3": "minimax_m3_vl_text",
    "minimax_text_01": "minimax",
    "minimax_m1": "minimax",
    "mistral3_text": "mistral",
    "mpt": "mpt",
    "openai-gpt": "openai-gpt",
    "orion": "llama",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_5": "qwen3_5_text",
    "solar": "llama",
    "stablelm_epoch": "stablelm",
    "step3p5": "step3p5",
    "telechat": "llama",
    "xverse": "llama",
}
"""Model types outside transformers 5.24 whose config.json reads like that of the second type."""

REMOTE_TYPES: frozenset[str] = frozenset(
    {
        "baichuan",
        "bailing_moe",
        "bailing_moe_v2",
        "chatglm",
        "exaone",
        "nemotron-nas",
        "phi-msft",
        "plamo",
        "plamo2",
        "qwen",
        "step1",
        "step3",
        "step3_text",
        "step3_vl",
        "teleflm",
    }
)
"""Types outside transformers that this reader has its own rules for, without class defaults."""

ENCODERS: frozenset[str] = frozenset(
    {
        "albert",
        "bert",
        "bert-generation",
        "big_bird",
        "camembert",
        "data2vec-text",
        "deberta",
        "deberta-v2",
        "distilbert",
        "electra",
        "ernie",
        "esm",
        "eurobert",
        "megatron-bert",
        "modernbert",
        "mpnet",
        "nomic_bert",
        "openai_privacy_filter",
        "rembert",
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "roformer",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xlm",
        "xmod",
    }
)
"""Types that read a text all at once, unless `is_decoder` is true."""

UNSIZED: Mapping[str, str] = {
    "blt": "its patches of bytes vary in length",
    "cpmant": "it keeps a prompt cache of its own",
    "diffusion_gemma": "it writes whole blocks at once instead of a token at a time",
    "dots3_note": "its windowed layers keep latent vectors of their own",
    "dory": "its layers run in loops, each with a cache of its own",
    "glm5_next": "its index keys are pooled and its layers mix two kinds of state",
    "inkling_mm_model": "its layers keep convolution states beside the keys",
    "inkling2": "its layers keep convolution states beside the keys",
    "inkling2_loop": "its layers run in loops, each with a cache of its own",
    "moshi": "it keeps one cache for text and one for sound",
    "musicgen": "it keeps a cache for each codebook",
    "musicgen_melody": "it keeps a cache for each codebook",
    "neomme": "its windows differ from layer to layer",
    "qwen4_exp": "its layers keep index keys and three kinds of state",
    "t5gemma": "its encoder and decoder have layer patterns of their own",
    "t5gemma2": "its encoder and decoder have layer patterns of their own",
    "t5_gemma_module": "it is one half of an encoder-decoder",
    "reformer": "it keeps hashed chunks instead of keys and values",
    "rwkv": "it keeps five vectors a layer in an order of its own",
    "unlimited_ocr": "its layers keep a reference window beside the sliding one",
    "xlnet": "it keeps a memory of segments instead of keys and values",
    "xlstm": "it keeps a matrix memory with padded widths",
    "zaya": "its layers keep convolution states beside the keys",
}
"""Known types whose memory does not fit any layer kind here, and why."""


@dataclass(frozen=True)
class ModelClass:
    """A known model type: the defaults of its config class, and where they come from.

    state_keys are the keys of the class that speak of state; they are understood or change nothing.
    """

    model_type: str
    defaults: Mapping[str, object] = field(default_factory=dict)
    source: str = ""
    text_type: str | None = None
    state_keys: frozenset[str] = frozenset()

    def default(self, key: str) -> object:
        return self.defaults.get(key)


@cache
def _recorded() -> dict:
    return json.loads(files("kvcore.data").joinpath("class_defaults.json").read_text())


def model_class(model_type: str) -> ModelClass | None:
    """The class that reads `model_type`, or None when it is not known."""
    if model_type in REMOTE_TYPES:
        return ModelClass(model_type)
    data = _recorded()
    entry = data["classes"].get(SHARES_CONFIG_WITH.get(model_type, model_type))
    if entry is None:
        return None
    own = model_type in data["classes"]
    defaults = entry.get("defaults", {}) if own else {}
    return ModelClass(
        model_type,
        defaults,
        f"{model_type}, {data['source']}",
        entry.get("text_type"),
        frozenset(entry.get("state_keys", ())),
    )


def reading_type(model_type: str) -> str:
    """The type whose rules apply: itself, or the one it shares its config with."""
    return SHARES_CONFIG_WITH.get(model_type, model_type)


def type_of_architecture(architecture: str) -> str | None:
    """The model type whose class is called `architecture`, as in "LlamaForCausalLM"."""
    return _recorded()["architectures"].get(architecture)


def is_without_generation(model_type: str) -> bool:
    """Whether transformers knows the type but has no text generation for it."""
    return model_type in _recorded()["without_generation"]
