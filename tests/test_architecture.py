"""What models store, against the per-architecture truth of the reference set."""

from __future__ import annotations

import pytest

from kvcore.architecture import (
    CONVOLUTION,
    Architecture,
    LayerGroup,
    LayerKind,
    Source,
    even_stages,
    heads_per_rank,
)
from kvcore.config_json import ConfigError
from kvcore.units import GIB


def llama(layers: int, kv_heads: int, heads: int = 32, hidden: int = 4096, **more: object) -> dict:
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": hidden,
        "torch_dtype": "bfloat16",
        **more,
    }


QWEN35_27B = {
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_size": 5120,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
        "dtype": "bfloat16",
    },
}

# name, config, growth in BF16 bytes per token, fixed bytes, GiB at 8k, 32k, 128k tokens
TRUTH = [
    ("Llama-2-7B", llama(32, 32), 524_288, 0, (4.0, 16.0, 64.0)),
    ("Llama-3.1-8B", llama(32, 8), 131_072, 0, (1.0, 4.0, 16.0)),
    ("Llama-3.1-70B", llama(80, 8, 64, 8192), 327_680, 0, (2.5, 10.0, 40.0)),
    ("Llama-3.1-405B", llama(126, 8, 128, 16384), 516_096, 0, (3.938, 15.75, 63.0)),
    (
        "Mixtral-8x7B",
        llama(32, 8, model_type="mixtral", sliding_window=None),
        131_072,
        0,
        (1.0, 4.0, 16.0),
    ),
    (
        "Qwen3-0.6B",
        llama(28, 8, 16, 1024, model_type="qwen3", head_dim=128),
        114_688,
        0,
        (0.875, 3.5, 14.0),
    ),
    (
        "Qwen3-32B",
        llama(64, 8, 64, 5120, model_type="qwen3", head_dim=128),
        262_144,
        0,
        (2.0, 8.0, 32.0),
    ),
    (
        "Qwen3-235B-A22B",
        llama(94, 4, 64, 4096, model_type="qwen3_moe", head_dim=128),
        192_512,
        0,
        (1.469, 5.875, 23.5),
    ),
    (
        "Mistral-Nemo-12B",
        llama(40, 8, 32, 5120, model_type="mistral", head_dim=128, sliding_window=None),
        163_840,
        0,
        (1.25, 5.0, 20.0),
    ),
    (
        "Falcon-7B",
        {
            "model_type": "falcon",
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "num_kv_heads": 71,
            "hidden_size": 4544,
            "multi_query": True,
        },
        8_192,
        0,
        (0.062, 0.25, 1.0),
    ),
    (
        "Falcon-40B",
        {
            "model_type": "falcon",
            "n_layer": 60,
            "n_head": 128,
            "n_head_kv": 8,
            "hidden_size": 8192,
            "new_decoder_architecture": True,
        },
        122_880,
        0,
        (0.938, 3.75, 15.0),
    ),
    (
        "GPT-2",
        {"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768},
        36_864,
        0,
        None,
    ),
    (
        "OPT-13B",
        {
            "model_type": "opt",
            "num_hidden_layers": 40,
            "num_attention_heads": 40,
            "hidden_size": 5120,
        },
        819_200,
        0,
        None,
    ),
    (
        "Mistral-7B-v0.1",
        llama(32, 8, model_type="mistral", sliding_window=4096),
        0,
        536_870_912,
        (0.5, 0.5, 0.5),
    ),
    (
        "Gemma-2-9B",
        llama(42, 8, 16, 3584, model_type="gemma2", head_dim=256, sliding_window=4096),
        172_032,
        704_643_072,
        (1.969, 5.906, 21.656),
    ),
    (
        "Gemma-3-4B",
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "num_hidden_layers": 34,
                "hidden_size": 2560,
                "sliding_window": 1024,
            },
        },
        20_480,
        121_634_816,
        (0.270, 0.738, 2.613),
    ),
    (
        "Gemma-3-27B",
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "num_hidden_layers": 62,
                "num_attention_heads": 32,
                "num_key_value_heads": 16,
                "head_dim": 128,
                "hidden_size": 5376,
                "sliding_window": 1024,
            },
        },
        81_920,
        436_207_616,
        (1.031, 2.906, 10.406),
    ),
    (
        "Gemma-3n-E4B",
        {"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}},
        8_192,
        16_777_216,
        (0.078, 0.266, 1.016),
    ),
    (
        "gpt-oss-20b",
        llama(24, 8, 64, 2880, model_type="gpt_oss", head_dim=64, sliding_window=128),
        24_576,
        3_145_728,
        (0.190, 0.753, 3.003),
    ),
    (
        "gpt-oss-120b",
        llama(36, 8, 64, 2880, model_type="gpt_oss", head_dim=64, sliding_window=128),
        36_864,
        4_718_592,
        (0.286, 1.129, 4.504),
    ),
    (
        "Llama-4-Scout",
        {
            "model_type": "llama4",
            "text_config": llama(
                48, 8, 40, 5120, model_type="llama4_text", head_dim=128, attention_chunk_size=8192
            ),
        },
        49_152,
        1_207_959_552,
        (1.5, 2.625, 7.125),
    ),
    (
        "DeepSeek-V2-Lite",
        llama(27, 16, 16, 2048, model_type="deepseek_v2", kv_lora_rank=512, qk_rope_head_dim=64),
        31_104,
        0,
        (0.237, 0.949, 3.797),
    ),
    (
        "DeepSeek-V3",
        llama(61, 128, 128, 7168, model_type="deepseek_v3", kv_lora_rank=512, qk_rope_head_dim=64),
        70_272,
        0,
        (0.536, 2.145, 8.578),
    ),
    (
        "Kimi-K2",
        llama(61, 64, 64, 7168, model_type="kimi_k2", kv_lora_rank=512, qk_rope_head_dim=64),
        70_272,
        0,
        (0.536, 2.145, 8.578),
    ),
    (
        "DeepSeek-V3.2",
        llama(
            61,
            128,
            128,
            7168,
            model_type="deepseek_v32",
            kv_lora_rank=512,
            qk_rope_head_dim=64,
            index_head_dim=128,
        ),
        85_888,
        0,
        (0.655, 2.621, 10.484),
    ),
    (
        "Qwen3-Next-80B",
        {
            "model_type": "qwen3_next",
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "hidden_size": 2048,
        },
        24_576,
        77_266_944,
        (0.259, 0.822, 3.072),
    ),
    ("Qwen3.5-27B", QWEN35_27B, 65_536, 153_944_064, (0.643, 2.143, 8.143)),
    (
        "Qwen3.5-35B-A3B",
        {
            "model_type": "qwen3_5_moe",
            "text_config": {
                **QWEN35_27B["text_config"],
                "model_type": "qwen3_5_moe_text",
                "num_hidden_layers": 40,
                "num_key_value_heads": 2,
                "linear_num_value_heads": 32,
            },
        },
        20_480,
        64_389_120,
        (0.216, 0.685, 2.560),
    ),
    (
        "Nemotron-3-Nano-30B",
        {
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
        },
        6_144,
        49_082_368,
        (0.093, 0.233, 0.796),
    ),
    (
        "Jamba-1.5-Mini",
        {
            "model_type": "jamba",
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "hidden_size": 4096,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_expand": 2,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
        },
        16_384,
        16_056_320,
        (0.140, 0.515, 2.015),
    ),
    (
        "Whisper-large-v3",
        {
            "model_type": "whisper",
            "decoder_layers": 32,
            "decoder_attention_heads": 20,
            "d_model": 1280,
            "max_source_positions": 1500,
            "max_target_positions": 448,
            "is_encoder_decoder": True,
        },
        163_840,
        245_760_000,
        None,
    ),
]

BY_NAME = {name: config for name, config, *_ in TRUTH}


@pytest.mark.parametrize(
    ("config", "growth", "fixed", "gib"), [row[1:] for row in TRUTH], ids=[row[0] for row in TRUTH]
)
def test_per_architecture_truth(config, growth, fixed, gib):
    architecture = Architecture.from_config(config)
    assert architecture.exact
    assert architecture.growth_bytes() == growth
    assert architecture.fixed_bytes() == fixed
    for tokens, expected in zip((8192, 32_768, 131_072), gib or (), strict=False):
        assert architecture.cache_bytes(tokens) / GIB == pytest.approx(expected, abs=0.0006)


def test_whisper_holds_its_whole_sound_beside_448_tokens():
    whisper = Architecture.from_config(BY_NAME["Whisper-large-v3"])
    assert whisper.cache_bytes(448) / GIB == pytest.approx(0.297, abs=0.0005)


def test_sparse_attention_in_fp8_keeps_656_and_132_bytes_a_layer():
    v32 = Architecture.from_config(BY_NAME["DeepSeek-V3.2"])
    assert v32.growth_bytes("fp8") == 61 * (656 + 132) == 48_068
    assert v32.growth_bytes("fp8_ds_mla") == 48_068
    assert v32.cache_bytes(131_072, "fp8") / GIB == pytest.approx(5.868, abs=0.0005)


def test_plain_latent_attention_in_fp8_keeps_one_byte_an_element():
    assert Architecture.from_config(BY_NAME["DeepSeek-V3"]).growth_bytes("fp8") == 61 * 576


@pytest.mark.parametrize(
    ("name", "tokens", "gib"),
    [
        ("Gemma-3-27B", 131_072, 10.406),
        ("DeepSeek-V3", 163_840, 10.723),
        ("Kimi-K2", 262_144, 17.156),
        ("Qwen3-0.6B", 40_960, 4.375),
    ],
)
def test_published_corrections(name, tokens, gib):
    """unslothai/unsloth#4757, the column of corrected figures."""
    size = Architecture.from_config(BY_NAME[name]).cache_bytes(tokens)
    assert size / GIB == pytest.approx(gib, abs=0.0005)


def test_a_window_bends_the_curve_at_its_length():
    gemma = Architecture.from_config(BY_NAME["Gemma-3-27B"])
    before = gemma.cache_bytes(1024) - gemma.cache_bytes(1023)
    after = gemma.cache_bytes(1025) - gemma.cache_bytes(1024)
    assert before == 62 * 8192
    assert after == gemma.growth_bytes()


def test_an_empty_sequence_holds_nothing():
    for config in BY_NAME.values():
        assert Architecture.from_config(config).cache_bytes(0) == 0


def test_tensor_parallel_never_goes_below_one_head():
    qwen = Architecture.from_config(llama(48, 4, 32, 2048, model_type="qwen3_moe", head_dim=128))
    assert [qwen.growth_bytes(tensor_parallel=tp) for tp in (1, 2, 4, 8)] == [
        98_304,
        49_152,
        24_576,
        24_576,
    ]
    assert 8 * qwen.growth_bytes(tensor_parallel=8) == 196_608


def test_latent_attention_is_copied_to_every_rank():
    v3 = Architecture.from_config(BY_NAME["DeepSeek-V3"])
    assert v3.growth_bytes(tensor_parallel=8) == 70_272
    assert 8 * v3.growth_bytes(tensor_parallel=8) == 562_176


def test_index_keys_are_copied_to_every_rank():
    v32 = Architecture.from_config(BY_NAME["DeepSeek-V3.2"])
    assert v32.growth_bytes(tensor_parallel=8) == v32.growth_bytes()


def test_state_is_shared_out_by_heads():
    qwen = Architecture.from_config(QWEN35_27B)
    assert qwen.fixed_bytes(tensor_parallel=2) * 2 == qwen.fixed_bytes()
    state = next(group for group in qwen.layers if group.kind is LayerKind.RECURRENT)
    convolution = next(part for part in state.state if part.name == CONVOLUTION)
    assert convolution.elements() == 30_720
    assert convolution.elements(extra_depth=3) == 61_440
    assert state.state_bytes(dtype="fp32") == (30_720 + 786_432) * 4


def test_state_groups_fewer_than_ranks_are_copied():
    """vLLM adds groups so that each rank has one (mamba_utils.extra_groups_for_head_shards)."""
    nano = Architecture.from_config(BY_NAME["Nemotron-3-Nano-30B"])
    state = next(group for group in nano.layers if group.kind is LayerKind.RECURRENT)
    convolution = state.state[0]
    assert convolution.elements(16) == (4096 // 16 + 2 * 1 * 128) * 3


def test_pipeline_stages_add_up_to_the_model():
    gemma = Architecture.from_config(BY_NAME["Gemma-3-27B"])
    stages = gemma.stages((20, 42))
    assert [stage.num_layers for stage in stages] == [20, 42]
    assert sum(stage.cache_bytes(50_000) for stage in stages) == gemma.cache_bytes(50_000)
    # Layers 5, 11 and 17 attend to everything; 7 of the other stage's 42 do.
    assert [stage.growth_bytes() for stage in stages] == [3 * 8192, 7 * 8192]


def test_pipeline_stages_must_hold_every_layer():
    with pytest.raises(ValueError, match="62"):
        Architecture.from_config(BY_NAME["Gemma-3-27B"]).stages((20, 20))


@pytest.mark.parametrize(
    ("layers", "stages", "split"),
    [(32, 4, (8, 8, 8, 8)), (61, 4, (15, 15, 16, 15)), (62, 4, (15, 16, 16, 15)), (5, 1, (5,))],
)
def test_even_stages_follow_vllm(layers, stages, split):
    assert even_stages(layers, stages) == split


def test_even_stages_refuse_more_stages_than_layers():
    with pytest.raises(ValueError, match="5 stages"):
        even_stages(4, 5)


def test_heads_per_rank_refuses_nonsense():
    with pytest.raises(ValueError, match="1 or more"):
        heads_per_rank(8, 0)


def test_uniform_reproduces_the_field_guide():
    slider = Architecture.uniform(32, 8, 128)
    assert slider.cache_bytes(8000) == 1_048_576_000
    assert slider.cache_bytes(8000, "fp8") == 524_288_000
    assert slider.growth_bytes() == 131_072


@pytest.mark.parametrize("bad", [(0, 8, 128), (32, 0, 128), (32, 8, -1), (32, 8, 1.5)])
def test_uniform_refuses_what_is_no_count(bad):
    with pytest.raises(ValueError, match="at least 1"):
        Architecture.uniform(*bad)


@pytest.mark.parametrize("tokens", [-1, 2.5, True, None])
def test_cache_bytes_refuses_what_is_no_length(tokens):
    with pytest.raises(ValueError, match="whole number"):
        Architecture.uniform(2, 2, 8).cache_bytes(tokens)


def test_every_field_says_where_it_came_from():
    scout = Architecture.from_config(BY_NAME["Llama-4-Scout"])
    chunked = next(group for group in scout.layers if group.kind is LayerKind.CHUNKED)
    sources = {each.field: each for each in chunked.provenance}
    assert sources["num_kv_heads"].source is Source.CONFIG
    assert sources["num_kv_heads"].detail == "text_config.num_key_value_heads"
    assert sources["schedule"].source is Source.CLASS_DEFAULT
    assert sources["window"].detail == "text_config.attention_chunk_size"


def test_a_missing_state_dtype_is_an_assumption():
    jamba = Architecture.from_config(BY_NAME["Jamba-1.5-Mini"])
    state = next(group for group in jamba.layers if group.kind is LayerKind.RECURRENT)
    dtype = next(each for each in state.provenance if each.field == "state_dtype")
    assert dtype.source is Source.ASSUMPTION


def test_ranges_bound_both_readings():
    unsaid = llama(40, 8, 32, 5120, model_type="mistral", head_dim=128)
    architecture = Architecture.from_config(unsaid)
    assert [each.key for each in architecture.uncertain] == ["sliding_window"]
    assert not architecture.exact
    assert architecture.growth_bytes() == 163_840
    bounds = architecture.growth_range()
    assert (bounds.low, bounds.high) == (0, 163_840)
    assert architecture.cache_range(2000).low == architecture.cache_range(2000).high
    wide = architecture.cache_range(50_000)
    assert (wide.low, wide.high) == (163_840 * 4096, 163_840 * 50_000)


def test_compressed_layers_store_one_entry_per_ratio():
    """DeepSeek-V4-Flash: kvfit and vramscout agree on 0.215 GiB at 32k tokens."""
    config = llama(
        43,
        1,
        64,
        4096,
        model_type="deepseek_v4",
        head_dim=512,
        qk_rope_head_dim=64,
        index_head_dim=128,
        sliding_window=128,
        compress_ratios=[0, 0] + [4, 128] * 20 + [4, 0],
    )
    flash = Architecture.from_config(config)
    assert flash.cache_bytes(32_768) / GIB == pytest.approx(0.215, abs=0.0005)
    assert flash.warnings


def test_groups_that_store_nothing_have_no_bytes():
    for kind in (LayerKind.NONE, LayerKind.SHARED):
        group = LayerGroup(kind, 3)
        assert group.entry_bytes() == group.growth_bytes() == group.cache_bytes(100) == 0


def test_a_model_that_stores_nothing_is_refused():
    config = llama(2, 8, layer_types=["mlp", "mlp"])
    with pytest.raises(ConfigError, match="layer_types"):
        Architecture.from_config(config)
