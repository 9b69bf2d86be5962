"""Reading config.json: every shape, every alias, every kind of wrong file."""

from __future__ import annotations

import copy
import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.architecture import Architecture, LayerKind, Source
from kvcore.config_json import ConfigError, parse, read_config
from kvcore.config_json.packed import pack, unpack
from tests.shared_data import shared_data
from tests.test_architecture import BY_NAME, llama


def kinds(config: dict) -> dict[str, int]:
    counted: dict[str, int] = {}
    for group in Architecture.from_config(config).layers:
        counted[group.kind] = counted.get(group.kind, 0) + group.count
    return counted


def first(config: dict, kind: LayerKind):
    return next(g for g in Architecture.from_config(config).layers if g.kind is kind)


def without(config: dict, *keys: str) -> dict:
    return {key: value for key, value in config.items() if key not in keys}


# --- heads and widths under all their names -----------------------------------------------------


@pytest.mark.parametrize(
    "key", ["num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups"]
)
def test_kv_head_aliases(key):
    config = {**without(llama(4, 8), "num_key_value_heads"), key: 2}
    assert first(config, LayerKind.FULL).num_kv_heads == 2


def test_missing_kv_heads_are_as_many_as_heads_and_say_so():
    group = first(without(llama(4, 8), "num_key_value_heads"), LayerKind.FULL)
    assert group.num_kv_heads == 32
    source = next(each for each in group.provenance if each.field == "num_kv_heads")
    assert source.source is Source.ASSUMPTION


def test_missing_kv_heads_with_a_class_default_are_a_range():
    config = without(llama(4, 8, model_type="mixtral", sliding_window=None), "num_key_value_heads")
    architecture = Architecture.from_config(config)
    assert [each.key for each in architecture.uncertain] == ["num_key_value_heads"]
    bounds = architecture.growth_range()
    assert (bounds.low, bounds.high) == (4 * 2 * 8 * 128 * 2, 4 * 2 * 32 * 128 * 2)


@pytest.mark.parametrize("value", [None, 0])
def test_an_empty_head_dim_is_hidden_over_heads(value):
    assert first(llama(4, 8, head_dim=value), LayerKind.FULL).head_dim == 128


@pytest.mark.parametrize(
    "key", ["head_dim", "hidden_size_per_head", "attention_head_dim", "kv_channels"]
)
def test_head_dim_aliases(key):
    assert first(llama(4, 8, **{key: 96}), LayerKind.FULL).head_dim == 96


def test_layer_and_width_aliases():
    config = {"model_type": "mpt", "n_layers": 6, "n_heads": 8, "d_model": 512}
    group = first(config, LayerKind.FULL)
    assert (group.count, group.num_kv_heads, group.head_dim) == (6, 8, 64)


def test_dbrx_keeps_its_kv_heads_in_attn_config():
    config = {
        "model_type": "dbrx",
        "n_layers": 40,
        "n_heads": 48,
        "d_model": 6144,
        "attn_config": {"kv_n_heads": 8},
    }
    assert first(config, LayerKind.FULL).num_kv_heads == 8


def test_chatglm_groups():
    config = {
        "model_type": "chatglm",
        "num_layers": 28,
        "num_attention_heads": 32,
        "hidden_size": 4096,
        "kv_channels": 128,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
    }
    assert Architecture.from_config(config).growth_bytes() == 28 * 2 * 2 * 128 * 2


def test_plamo_counts_heads_that_share():
    config = {
        "model_type": "plamo",
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "hidden_size": 5120,
        "hidden_size_per_head": 128,
        "n_shared_head": 8,
    }
    assert first(config, LayerKind.FULL).num_kv_heads == 5


def test_gpt_bigcode_shares_one_head_unless_told_otherwise():
    config = {"model_type": "gpt_bigcode", "n_layer": 40, "n_head": 48, "n_embd": 6144}
    assert first(config, LayerKind.FULL).num_kv_heads == 1
    assert first({**config, "multi_query": False}, LayerKind.FULL).num_kv_heads == 48


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"multi_query": True, "num_kv_heads": 71}, 1),
        ({"multi_query": False}, 71),
        ({"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 8}, 8),
        ({"new_decoder_architecture": True, "n_head_kv": 16}, 16),
    ],
)
def test_falcon(extra, expected):
    base = without(BY_NAME["Falcon-7B"], "multi_query", "num_kv_heads")
    assert first({**base, **extra}, LayerKind.FULL).num_kv_heads == expected


def test_t5_head_dim_is_d_kv():
    config = {
        "model_type": "t5",
        "num_layers": 24,
        "num_decoder_layers": 24,
        "num_heads": 128,
        "d_model": 1024,
        "d_kv": 128,
    }
    architecture = Architecture.from_config(config)
    assert architecture.growth_bytes() == 24 * 2 * 128 * 128 * 2
    assert architecture.warnings


# --- nesting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", ["text_config", "language_config", "llm_config"])
def test_nested_sections(section):
    nested = {"model_type": "internvl_chat", section: llama(4, 2), "vision_config": {"depth": 12}}
    group = first(nested, LayerKind.FULL)
    assert (group.count, group.num_kv_heads) == (4, 2)
    source = next(each for each in group.provenance if each.field == "num_kv_heads")
    assert source.detail == f"{section}.num_key_value_heads"


def test_thinker_text_config():
    text = llama(28, 4, 28, 3584, model_type="qwen2_5_omni_text")
    config = {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": text}}
    assert Architecture.from_config(config).growth_bytes() == 28 * 2 * 4 * 128 * 2


def test_a_nested_model_may_say_no_more_than_its_type():
    """llava-1.5-7b names its language model and leaves the rest to the class."""
    config = {"model_type": "llava", "text_config": {"model_type": "llama"}}
    architecture = Architecture.from_config(config)
    assert architecture.growth_bytes() == 524_288
    layers = next(each for each in architecture.provenance if each.field == "num_layers")
    assert layers.source is Source.CLASS_DEFAULT


# --- schedules ----------------------------------------------------------------------------------


def test_use_sliding_window_false_beside_a_number():
    config = llama(
        36,
        8,
        model_type="qwen2",
        sliding_window=32768,
        use_sliding_window=False,
        max_window_layers=28,
    )
    assert kinds(config) == {"full": 36}


def test_use_sliding_window_true_slides_from_max_window_layers():
    config = llama(
        36,
        8,
        model_type="qwen2",
        sliding_window=4096,
        use_sliding_window=True,
        max_window_layers=28,
    )
    assert kinds(config) == {"full": 28, "sliding_window": 8}


@pytest.mark.parametrize(
    ("config", "full"),
    [
        (llama(32, 8, model_type="cohere2", sliding_window=4096), 8),
        (llama(32, 8, model_type="cohere2", sliding_window=4096, sliding_window_pattern=2), 16),
        (
            llama(64, 8, model_type="exaone4", sliding_window=4096, sliding_window_pattern="LLLG"),
            16,
        ),
        (llama(32, 8, model_type="phi3", sliding_window=None), 32),
        (llama(32, 8, model_type="olmo3", sliding_window=4096), 8),
    ],
)
def test_implicit_window_patterns(config, full):
    assert kinds(config)["full"] == full


def test_phi3_with_a_number_slides_everywhere():
    assert kinds(llama(32, 32, model_type="phi3", sliding_window=2047)) == {"sliding_window": 32}


def test_explicit_layer_types_win():
    types = ["sliding_attention"] * 3 + ["full_attention"]
    config = llama(4, 8, model_type="gemma3_text", sliding_window=512, layer_types=types)
    assert kinds(config) == {"sliding_window": 3, "full": 1}


def test_two_geometries():
    config = llama(
        30,
        8,
        16,
        2816,
        model_type="gemma4_text",
        head_dim=256,
        global_head_dim=512,
        num_global_key_value_heads=2,
        attention_k_eq_v=True,
        sliding_window=1024,
    )
    architecture = Architecture.from_config(config)
    assert architecture.growth_bytes() == 5 * 2 * 2 * 512 * 2
    assert architecture.fixed_bytes() == 25 * 2 * 8 * 256 * 2 * 1024


def test_keys_and_values_of_different_width():
    config = llama(
        48,
        4,
        64,
        4096,
        model_type="mimo_v2_flash",
        head_dim=192,
        v_head_dim=128,
        swa_num_key_value_heads=8,
        swa_head_dim=192,
        swa_v_head_dim=128,
        sliding_window=128,
        attention_chunk_size=128,
        hybrid_layer_pattern=[0] + [1] * 46 + [0],
    )
    architecture = Architecture.from_config(config)
    assert kinds(config) == {"full": 2, "sliding_window": 46}
    assert architecture.growth_bytes() == 2 * 4 * (192 + 128) * 2
    assert architecture.fixed_bytes() == 46 * 8 * (192 + 128) * 2 * 128


def test_llama4_reads_its_list_of_rotary_layers():
    text = {**BY_NAME["Llama-4-Scout"]["text_config"], "no_rope_layers": [1, 0] * 24}
    assert kinds({"model_type": "llama4", "text_config": text}) == {"chunked": 24, "full": 24}


def test_shared_layers_store_nothing():
    assert kinds(BY_NAME["Gemma-3n-E4B"]) == {"sliding_window": 16, "full": 4, "shared": 15}


def test_longcat_attends_twice_a_layer():
    config = {
        "model_type": "longcat_flash",
        "num_layers": 28,
        "num_attention_heads": 64,
        "hidden_size": 6144,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    }
    assert Architecture.from_config(config).growth_bytes() == 56 * 576 * 2


def test_minimax_m1_alternates_by_list():
    config = llama(
        8, 8, 64, 6144, model_type="minimax_m1", head_dim=128, attn_type_list=[0, 0, 0, 1] * 2
    )
    architecture = Architecture.from_config(config)
    assert kinds(config) == {"recurrent": 6, "full": 2}
    assert architecture.state_bytes() == 6 * 64 * 128 * 128 * 4


def test_kimi_linear_counts_its_layers_from_one():
    config = llama(
        27,
        32,
        32,
        2304,
        model_type="kimi_linear",
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        linear_attn_config={
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
            "kda_layers": [1, 2, 3],
            "num_heads": 32,
            "head_dim": 128,
            "short_conv_kernel_size": 4,
        },
    )
    architecture = Architecture.from_config(config)
    assert kinds(config) == {"recurrent": 20, "latent": 7}
    assert architecture.growth_bytes() == 7 * 1152
    assert architecture.state_bytes() == 20 * (3 * 32 * 128 * 3 * 2 + 32 * 128 * 128 * 4)


def test_falcon_h1_keeps_both_in_every_layer():
    config = llama(
        24,
        2,
        8,
        1024,
        model_type="falcon_h1",
        mamba_n_heads=24,
        mamba_d_head=64,
        mamba_n_groups=1,
        mamba_d_state=128,
        mamba_d_conv=4,
        mamba_d_ssm=1536,
    )
    assert kinds(config) == {"full": 24, "recurrent": 24}
    state = Architecture.from_config(config).state_bytes()
    assert state == 24 * ((1536 + 2 * 128) * 3 * 2 + 24 * 64 * 128 * 4)


def test_searched_blocks_are_summed_layer_by_layer():
    config = llama(
        4,
        0,
        64,
        8192,
        model_type="nemotron-nas",
        block_configs=[
            {"attention": {"n_heads_in_group": 8, "no_op": False}},
            {"attention": {"n_heads_in_group": None, "no_op": True}},
            {"attention": {"n_heads_in_group": 16, "no_op": False}},
            {"attention": {"replace_with_linear": True}},
        ],
    )
    config["num_key_value_heads"] = None
    assert kinds(config) == {"full": 2, "none": 2}
    assert Architecture.from_config(config).growth_bytes() == (8 + 4) * 2 * 128 * 2


def test_llama_vision_reads_images_in_some_layers():
    text = llama(40, 8, model_type="mllama_text_model", cross_attention_layers=[3, 8, 13, 18])
    config = {"model_type": "mllama", "text_config": text}
    assert kinds(config) == {"full": 36, "cross_attention": 4}
    assert Architecture.from_config(config).fixed_bytes() == 4 * 6404 * 4096


@pytest.mark.parametrize(
    ("extra", "owners"),
    [
        ({}, 6),
        ({"indexer_types": ["full", "shared", "shared"] * 2}, 2),
        ({"index_topk_pattern": "FSFSFF"}, 4),
        ({"index_topk_freq": 2, "index_skip_topk_offset": 2}, 4),
    ],
)
def test_layers_that_own_an_index(extra, owners):
    config = llama(
        6, 64, 64, 6144, model_type="glm_moe_dsa", kv_lora_rank=512, qk_rope_head_dim=64, **extra
    )
    config["index_head_dim"] = 128
    assert kinds(config)["sparse_index"] == owners


def test_minimax_m3_keeps_an_index_beside_grouped_heads():
    config = llama(
        4,
        4,
        64,
        6144,
        model_type="minimax_m3",
        head_dim=128,
        sparse_attention_config={
            "use_sparse_attention": True,
            "sparse_index_dim": 128,
            "sparse_attention_freq": [0, 1, 1, 1],
        },
    )
    assert Architecture.from_config(config).growth_bytes() == 4 * 2048 + 3 * 256


def test_draft_layers_are_counted_apart():
    config = llama(61, 128, 128, 7168, model_type="deepseek_v3", num_nextn_predict_layers=1)
    config |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    architecture = Architecture.from_config(config)
    assert architecture.draft_layers == 1
    assert architecture.growth_bytes() == 70_272
    assert any("draft" in warning for warning in architecture.warnings)


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"kv_cache_scheme": {"type": "float", "num_bits": 8}}, "fp8"),
        ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "fp8"}, None),
    ],
)
def test_weight_formats_do_not_set_the_cache_dtype(quantization, expected):
    config = llama(4, 8, quantization_config=quantization)
    assert Architecture.from_config(config).kv_dtype == expected


# --- refusals -----------------------------------------------------------------------------------


def test_an_unknown_type_is_refused_by_name():
    with pytest.raises(ConfigError, match="model_type.*llama9") as refusal:
        Architecture.from_config(llama(4, 8, model_type="llama9"))
    assert refusal.value.key == "model_type"


def test_an_unknown_type_may_be_read_as_a_transformer_on_request():
    architecture = read_config(
        llama(4, 8, model_type="llama9", sliding_window=1024), assume_plain=True
    )
    assert {each.key for each in architecture.uncertain} == {"model_type", "sliding_window"}
    bounds = architecture.cache_range(4096)
    assert bounds.low * 4 == bounds.high == 4 * 4096 * 4096


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mamba_d_state", 16),
        ("linear_attn_config", {"num_heads": 4}),
        ("compress_ratios", [0, 4]),
        ("linear_num_key_heads", 16),
        ("index_head_dim", 128),
        ("hybrid_override_pattern", "M*"),
        ("attn_layer_period", 4),
        ("ssm_state_size", 128),
        ("full_attn_layers", [1]),
    ],
)
def test_a_key_that_smells_of_state_is_refused_by_name(key, value):
    with pytest.raises(ConfigError, match=key) as refusal:
        Architecture.from_config(llama(4, 8, **{key: value}))
    assert refusal.value.key == key


def test_a_window_a_type_is_not_known_to_use_is_a_range():
    architecture = Architecture.from_config(llama(4, 8, sliding_window=1024))
    assert [each.key for each in architecture.uncertain] == ["sliding_window"]
    assert architecture.cache_range(4096).low == architecture.cache_range(4096).high // 4


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**7}, "num_hidden_layers"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_attention_heads": 31}, "hidden_size"),
        ({"num_key_value_heads": True}, "num_key_value_heads"),
        ({"num_key_value_heads": 64}, "num_key_value_heads"),
        ({"head_dim": -128}, "head_dim"),
        ({"hidden_size": 4096.5}, "hidden_size"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["slow_attention"] * 4}, "layer_types"),
        ({"layer_types": "full_attention"}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_window"),
        ({"num_kv_shared_layers": 4}, "num_kv_shared_layers"),
        ({"torch_dtype": "int9"}, "torch_dtype"),
        ({"torch_dtype": 16}, "torch_dtype"),
        ({"dtype": ["bfloat16"]}, "dtype"),
        ({"dtype": True}, "dtype"),
        ({"model_type": None, "architectures": None}, "model_type"),
        ({"model_type": 3}, "model_type"),
        ({"text_config": [1]}, None),
    ],
)
def test_bad_values_are_refused_by_key(change, key):
    config = {**llama(4, 8), **change}
    if key is None:
        assert Architecture.from_config(config)
        return
    with pytest.raises(ConfigError, match=key):
        Architecture.from_config(config)


def test_a_config_without_a_type_is_known_by_its_class():
    config = {**without(llama(4, 8), "model_type"), "architectures": ["LlamaForCausalLM"]}
    assert Architecture.from_config(config).model_type == "llama"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nothing here"),
        ("   \n", "nothing here"),
        ("{model_type: llama}", "not JSON"),
        ("vllm serve Qwen/Qwen3-8B", "not JSON"),
        ("[1, 2]", "a list"),
        ('"llama"', "a piece of text"),
        ("3", "a single value"),
        ("<!doctype html>", "web page"),
        (b"GGUF\x03\x00\x00\x00", "GGUF"),
        (b"\xff\xfe\x00\x01", "not text"),
        (" " * 10 + "x" * 5_000_000, "5.0 MB"),
        (b"x" * 5_000_000, "5.0 MB"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_not_a_config_is_told_what_it_is(text, says):
    with pytest.raises(ConfigError, match=says) as refusal:
        parse(text)
    assert "aste" in str(refusal.value)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"peft_type": "LORA", "r": 8, "base_model_name_or_path": "org/base"}, "org/base"),
        ({"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.30"}, "diffusion"),
        ({"weight_map": {}, "metadata": {}}, "weight files"),
        ({"tokenizer_class": "LlamaTokenizer"}, "tokenizer"),
        ({"temperature": 0.6, "top_p": 0.9, "eos_token_id": 2}, "generation_config"),
        ({"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8}, "params.json"),
        ({"image_processor_type": "CLIPImageProcessor"}, "processor"),
        ({"model_type": "bert", "num_hidden_layers": 12}, "encoder"),
        ({"model_type": "vit", "num_hidden_layers": 12}, "does not generate"),
        ({"model_type": "xlstm", "num_hidden_layers": 12}, "matrix memory"),
        ({}, "model_type"),
    ],
)
def test_other_files_are_told_what_they_are(config, says):
    with pytest.raises(ConfigError, match=says):
        Architecture.from_config(config)


def test_a_config_must_be_an_object():
    with pytest.raises(ConfigError, match="a list"):
        Architecture.from_config([1, 2])


def test_a_byte_order_mark_is_no_obstacle():
    assert parse("\ufeff" + json.dumps(llama(4, 8)))["model_type"] == "llama"


# --- real configs, whole and mutated ------------------------------------------------------------


@pytest.fixture(scope="module")
def real_configs() -> dict[str, dict]:
    return json.loads(gzip.decompress(shared_data("model_configs.json.gz").read_bytes()))


REAL_TRUTH = {
    "meta-llama/Meta-Llama-3.1-8B": (131_072, 0),
    "meta-llama/Meta-Llama-3.1-405B": (516_096, 0),
    "mistralai/Mixtral-8x7B-v0.1": (131_072, 0),
    "Qwen/Qwen3-0.6B": (114_688, 0),
    "Qwen/Qwen3-235B-A22B": (192_512, 0),
    "openai/gpt-oss-20b": (24_576, 3_145_728),
    "openai/gpt-oss-120b": (36_864, 4_718_592),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (49_152, 1_207_959_552),
    "deepseek-ai/DeepSeek-V3": (70_272, 0),
    "deepseek-ai/DeepSeek-V3.2": (85_888, 0),
    "Qwen/Qwen3.5-27B": (65_536, 153_944_064),
    "Qwen/Qwen3.5-35B-A3B": (20_480, 64_389_120),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (6_144, 49_082_368),
    "google/gemma-4-26B-A4B": (20_480, 209_715_200),
    "XiaomiMiMo/MiMo-7B-Base": (36 * 4096, 0),
    "nvidia/GLM-5.3-NVFP4": (78 * 1152 + 21 * 256, 0),
    "MiniMaxAI/MiniMax-M3": (60 * 2048 + 57 * 256, 0),
}


@pytest.mark.parametrize("name", REAL_TRUTH)
def test_real_configs_have_the_known_answer(real_configs, name):
    architecture = Architecture.from_config(real_configs[name])
    assert (architecture.growth_bytes(), architecture.fixed_bytes()) == REAL_TRUTH[name]


def test_every_real_config_is_read_exactly(real_configs):
    assert len(real_configs) == 59
    for name, config in real_configs.items():
        architecture = Architecture.from_config(config)
        assert architecture.exact, name
        assert architecture.cache_bytes(8192) > 0, name
        assert architecture.max_context, name


def test_quantised_copies_need_what_their_originals_need(real_configs):
    for original, copy_name in (
        ("deepseek-ai/DeepSeek-V3.2", "nvidia/DeepSeek-V3.2-NVFP4"),
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8"),
        ("deepseek-ai/DeepSeek-V4-Flash", "sgl-project/DeepSeek-V4-Flash-FP8"),
        ("google/gemma-4-26B-A4B", "nvidia/Gemma-4-26B-A4B-NVFP4"),
    ):
        one, two = (Architecture.from_config(real_configs[each]) for each in (original, copy_name))
        assert one.cache_bytes(50_000) == two.cache_bytes(50_000)


ODD_VALUES = [
    None,
    0,
    1,
    -1,
    7,
    2**31,
    10**30,
    0.5,
    float("inf"),
    float("nan"),
    True,
    False,
    "",
    "8",
    "llama",
    [],
    [0, 1],
    ["full_attention"],
    ["sliding_attention", "mamba"],
    {},
    {"x": 1},
]
ODD_KEYS = [
    "num_key_value_heads",
    "head_dim",
    "sliding_window",
    "layer_types",
    "use_sliding_window",
    "kv_lora_rank",
    "num_kv_shared_layers",
    "attention_chunk_size",
    "mamba_d_state",
    "block_configs",
    "model_type",
    "text_config",
    "quantization_config",
    "is_encoder_decoder",
    "attn_type_list",
    "indexer_types",
]


def mutate(config: dict, data: st.DataObject) -> dict:
    """One to three keys dropped, replaced or added, at the top or in a section."""
    changed = copy.deepcopy(config)
    for _ in range(data.draw(st.integers(1, 3))):
        sections = [changed, *(value for value in changed.values() if isinstance(value, dict))]
        section = data.draw(st.sampled_from(sections))
        key = data.draw(st.sampled_from([*section, *ODD_KEYS]))
        if data.draw(st.booleans()) and key in section:
            del section[key]
        else:
            section[key] = copy.deepcopy(data.draw(st.sampled_from(ODD_VALUES)))
    return changed


def assert_number_range_or_named_key(config: dict) -> None:
    try:
        architecture = Architecture.from_config(config)
    except ConfigError as refusal:
        message = str(refusal)
        assert "\n" not in message
        assert refusal.key
        assert refusal.key.split(".")[-1].split("[")[0] in message
        return
    for kv_format in ("bf16", "fp8", "q4_0"):
        for tensor_parallel in (1, 8):
            size = architecture.cache_bytes(5000, kv_format, tensor_parallel)
            growth = architecture.growth_bytes(kv_format, tensor_parallel)
            bounds = architecture.cache_range(5000, kv_format, tensor_parallel)
            assert all(type(each) is int for each in (size, growth, bounds.low, bounds.high))
            assert size > 0
            assert growth >= 0
            assert 0 < bounds.low <= bounds.high
    assert architecture.fixed_bytes() >= 0
    assert architecture.exact == (not architecture.uncertain)


@settings(max_examples=2000)
@given(st.data())
def test_mutated_real_configs(real_configs, data):
    name = data.draw(st.sampled_from(sorted(real_configs)))
    assert_number_range_or_named_key(mutate(real_configs[name], data))


@settings(max_examples=600)
@given(st.data())
def test_mutated_written_configs(data):
    name = data.draw(st.sampled_from(sorted(BY_NAME)))
    assert_number_range_or_named_key(mutate(BY_NAME[name], data))


@settings(max_examples=300)
@given(st.text() | st.binary())
def test_any_text_is_an_object_or_a_refusal(text):
    try:
        value = parse(text)
    except ConfigError as refusal:
        assert str(refusal)
        return
    assert isinstance(value, dict)


@pytest.mark.parametrize("half", ["\\ud800", "\\udfff", "\\udc00\\ud800"])
def test_half_characters_of_a_config_can_be_shown(half):
    """JSON may write them as escapes; tables, messages and links cannot hold them."""
    odd = f', "_name_or_path": "{half}x", "a{half}": {{"b{half}": ["c{half}"]}}}}'
    config = parse(json.dumps(llama(4, 8))[:-1] + odd)
    assert b"x" in json.dumps(config, ensure_ascii=False).encode()
    assert Architecture.from_config(config).name.encode()
    assert b"llama" in json.dumps(unpack(pack(config)), ensure_ascii=False).encode()
