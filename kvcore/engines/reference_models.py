"""Models of the conformance set, as the few config keys that decide their cache.

Values are those of each model's own config.json, or the default of its config class where the
config leaves the key out. They are read by Architecture.from_config like any pasted config.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kvcore.architecture import Architecture

Config = Mapping[str, object]


def _llama(layers: int, kv_heads: int, heads: int, hidden: int, **more: object) -> dict:
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": hidden,
        "torch_dtype": "bfloat16",
        **more,
    }


def _qwen3(layers: int, kv_heads: int, heads: int, hidden: int, moe: bool = False) -> dict:
    return _llama(
        layers,
        kv_heads,
        heads,
        hidden,
        model_type="qwen3_moe" if moe else "qwen3",
        head_dim=128,
        use_sliding_window=False,
    )


def _deepseek(layers: int, rank: int, rope: int, **more: object) -> dict:
    return {
        "model_type": "deepseek_v3",
        "num_hidden_layers": layers,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "hidden_size": 7168,
        "kv_lora_rank": rank,
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "torch_dtype": "bfloat16",
        **more,
    }


def _gated_delta(
    layers: int, kv_heads: int, value_heads: int, hidden: int, heads: int, **more: object
) -> dict:
    return {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": hidden,
        "head_dim": 256,
        "full_attention_interval": 4,
        "layer_types": [
            "full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(layers)
        ],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": value_heads,
        "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1,
        "max_position_embeddings": 262_144,
        "dtype": "bfloat16",
        **more,
    }


def _gpt_oss(layers: int) -> dict:
    return {
        "model_type": "gpt_oss",
        "num_hidden_layers": layers,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "hidden_size": 2880,
        "head_dim": 64,
        "sliding_window": 128,
        "layer_types": ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)],
        "max_position_embeddings": 131_072,
        "torch_dtype": "bfloat16",
    }


def _gemma(model_type: str, layers: int, kv_heads: int, head_dim: int, window: int) -> dict:
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "num_attention_heads": 2 * kv_heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": 2304,
        "head_dim": head_dim,
        "sliding_window": window,
        "torch_dtype": "bfloat16",
    }


CONFIGS: Mapping[str, Config] = {
    "Llama-2-7B": _llama(32, 32, 32, 4096),
    "Llama-3.1-8B": _llama(32, 8, 32, 4096, max_position_embeddings=131_072),
    "Llama-3.1-70B": _llama(80, 8, 64, 8192),
    "Llama-3.1-405B": _llama(126, 8, 128, 16384),
    "Mixtral-8x7B": _llama(32, 8, 32, 4096, model_type="mixtral", sliding_window=None),
    "Qwen3-0.6B": _qwen3(28, 8, 16, 1024),
    "Qwen3-8B": _qwen3(36, 8, 32, 4096),
    "Qwen3-14B": _qwen3(40, 8, 40, 5120),
    "Qwen3-32B": _qwen3(64, 8, 64, 5120),
    "Qwen3-30B-A3B": _qwen3(48, 4, 32, 2048, moe=True),
    "Qwen3-235B-A22B": _qwen3(94, 4, 64, 4096, moe=True),
    "Mistral-Nemo-12B": _llama(
        40, 8, 32, 5120, model_type="mistral", head_dim=128, sliding_window=None
    ),
    "Falcon-7B": {
        "model_type": "falcon",
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "hidden_size": 4544,
        "multi_query": True,
        "new_decoder_architecture": False,
        "num_kv_heads": 71,
    },
    "Falcon-40B": {
        "model_type": "falcon",
        "n_layer": 60,
        "n_head": 128,
        "n_head_kv": 8,
        "hidden_size": 8192,
        "new_decoder_architecture": True,
        "multi_query": True,
    },
    "GPT-2": {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_head": 12,
        "n_embd": 768,
        "n_positions": 1024,
    },
    "Mistral-7B-v0.1": _llama(
        32, 8, 32, 4096, model_type="mistral", head_dim=128, sliding_window=4096
    ),
    "Gemma-2-9B": _gemma("gemma2", 42, 8, 256, 4096),
    "Gemma-3-4B": _gemma("gemma3_text", 34, 4, 256, 1024),
    "Gemma-3-27B": _gemma("gemma3_text", 62, 16, 128, 1024),
    "Gemma-3n-E4B": {
        **_gemma("gemma3n_text", 35, 2, 256, 512),
        "num_kv_shared_layers": 15,
    },
    "Gemma-4-31B": {
        **_gemma("gemma4_text", 60, 16, 256, 1024),
        "global_head_dim": 512,
        "num_global_key_value_heads": 4,
        "attention_k_eq_v": True,
        "max_position_embeddings": 262_144,
    },
    "gpt-oss-20b": _gpt_oss(24),
    "gpt-oss-120b": _gpt_oss(36),
    "Llama-4-Scout": {
        "model_type": "llama4",
        "text_config": {
            "model_type": "llama4_text",
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "hidden_size": 5120,
            "head_dim": 128,
            "attention_chunk_size": 8192,
            "torch_dtype": "bfloat16",
        },
    },
    "DeepSeek-V2-Lite": _deepseek(
        27,
        512,
        64,
        model_type="deepseek_v2",
        num_attention_heads=16,
        num_key_value_heads=16,
        hidden_size=2048,
    ),
    "DeepSeek-V3": _deepseek(61, 512, 64, num_nextn_predict_layers=1),
    "DeepSeek-V3.2": _deepseek(
        61,
        512,
        64,
        model_type="deepseek_v32",
        index_head_dim=128,
        index_n_heads=64,
        index_topk=2048,
        num_nextn_predict_layers=1,
    ),
    "Mistral-Small-4-119B": _deepseek(
        36,
        256,
        64,
        num_attention_heads=32,
        num_key_value_heads=32,
        hidden_size=4096,
        qk_nope_head_dim=64,
        max_position_embeddings=1_048_576,
    ),
    "GLM-5 with its draft layer": _deepseek(
        79, 512, 64, num_attention_heads=64, num_key_value_heads=64, hidden_size=6144
    ),
    "Qwen3-Next-80B": _gated_delta(
        48, 2, 32, 2048, 16, model_type="qwen3_next", mtp_num_hidden_layers=0
    ),
    "Qwen3.5-27B": _gated_delta(64, 4, 48, 5120, 24),
    "Qwen3.5-35B-A3B": _gated_delta(40, 2, 32, 2048, 16),
    "Kimi-Linear-48B-A3B": {
        "model_type": "kimi_linear",
        "num_hidden_layers": 27,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "hidden_size": 2304,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "linear_attn_config": {
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
            "kda_layers": [i for i in range(1, 27) if i % 4],
            "head_dim": 128,
            "num_heads": 32,
            "short_conv_kernel_size": 4,
        },
        "torch_dtype": "bfloat16",
    },
    "Nemotron-3-Nano-30B": {
        "model_type": "nemotron_h",
        "num_hidden_layers": 52,
        "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "hidden_size": 2688,
        "mamba_num_heads": 64,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "n_groups": 8,
        "conv_kernel": 4,
        "mamba_ssm_cache_dtype": "float32",
        "torch_dtype": "bfloat16",
    },
    "Jamba-1.5-Mini": {
        "model_type": "jamba",
        "num_hidden_layers": 32,
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "torch_dtype": "bfloat16",
    },
    "Whisper-large-v3": {
        "model_type": "whisper",
        "decoder_layers": 32,
        "decoder_attention_heads": 20,
        "encoder_layers": 32,
        "encoder_attention_heads": 20,
        "d_model": 1280,
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "torch_dtype": "float16",
    },
    "Command-R7B": {
        "model_type": "cohere2",
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "head_dim": 128,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
        "torch_dtype": "bfloat16",
    },
    "Olmo-3-7B": {
        "model_type": "olmo3",
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "hidden_size": 4096,
        "sliding_window": 4096,
        "torch_dtype": "bfloat16",
    },
    "36 layers with 256-wide keys": _llama(36, 2, 16, 2048, model_type="qwen2", head_dim=128),
}


@cache
def architecture(name: str) -> Architecture:
    """The named model's architecture, read from its keys. Raises KeyError for another name."""
    return Architecture.from_config(CONFIGS[name])
