"""The memory calculator as a visitor meets it."""

from __future__ import annotations

import json

import pytest

from kvcore.capacity import weight_bytes
from kvcore.catalog import GPUS, MODELS
from kvcore.config_json import pack, pack_text, unpack
from kvcore.formats import FORMATS
from pages.calculator_parts.tabs import TABS
from tests.engines.logs import VLLM_LLAMA_20K
from tests.test_architecture import BY_NAME, llama

NAMED = {"calculator_source": "A named model"}
CONFIG = {"calculator_source": "Your config"}


@pytest.fixture
def calculator(open_page):
    def run(**query):
        app = open_page("calculator", **query)
        assert not app.exception, app.exception
        return app

    return run


def metrics(app) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def captions(app) -> str:
    return "\n".join(caption.value for caption in app.caption)


def texts(app) -> str:
    return "\n".join(element.value for element in [*app.code, *app.text, *app.markdown])


def paste(app, text: str, key: str = "calculator_paste"):
    app.text_area(key=key).set_value(text)
    app.run()
    assert not app.exception, app.exception
    return app


def test_the_first_visit_shows_the_field_guides_numbers(calculator):
    app = calculator()
    shown = metrics(app)
    assert shown["Cache of one request"] == "0.98 GiB"
    assert shown["Growth per token"] == "128.0 KiB"
    assert shown["Users at once on one GPU"] == "61"
    assert "1.05 GB, at 8,000 tokens" in captions(app)
    assert "131,072 bytes" in captions(app)


def test_the_arithmetic_is_spelled_out(calculator):
    app = calculator(calculator_tab="Arithmetic")
    assert (
        "32 layers × 2 × 8 KV heads × 128 × 2 bytes × 8,000 tokens = 1,048,576,000 bytes"
        in texts(app)
    )
    assert "so 61 users" in texts(app)


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("calculator_layers", 8, 128),
        ("calculator_kv_heads", 1, 64),
        ("calculator_head_dim", 32, 256),
        ("calculator_context", 1_000, 128_000),
    ],
)
def test_sliders_have_the_field_guides_ranges(calculator, key, low, high):
    slider = calculator().slider(key=key)
    assert (slider.min, slider.max) == (low, high)


def test_eight_bits_halve_the_cache(calculator):
    app = calculator(calculator_precision="8 bits")
    assert metrics(app)["Users at once on one GPU"] == "122"
    assert "0.52 GB" in captions(app)


@pytest.mark.parametrize(
    ("model", "growth"),
    [
        ("OPT-13B", "819,200 bytes"),
        ("GPT-2", "36,864 bytes"),
        ("DeepSeek-V3", "70,272 bytes"),
        ("Mistral-7B-v0.1", "0 bytes"),
    ],
)
def test_named_models(calculator, model, growth):
    assert growth in captions(calculator(**NAMED, calculator_model=model))


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize(
    "model", ["Gemma-3-27B", "Qwen3.5-27B", "DeepSeek-V3.2", "Whisper-large-v3"]
)
def test_every_tab_of_every_kind_of_model(calculator, tab, model):
    app = calculator(
        **NAMED,
        calculator_model=model,
        calculator_gpu="H200 141 GB",
        calculator_tp="4",
        calculator_pp="2",
        calculator_tab=tab,
    )
    assert not app.exception
    assert app.metric


def test_tensor_parallel_ranks_share_heads_and_copy_latents(calculator):
    query = {**NAMED, "calculator_tp": "8", "calculator_gpu": "H200 141 GB"}
    assert "24,576 bytes" in captions(calculator(**query, calculator_model="Qwen3-30B-A3B"))
    assert "70,272 bytes" in captions(calculator(**query, calculator_model="DeepSeek-V3"))


def test_four_models_at_once(calculator):
    app = calculator(**NAMED, calculator_compare=["Gemma-3-27B", "DeepSeek-V3", "Qwen3.5-27B"])
    spec = json.loads(app.get("vega_lite_chart")[0].proto.spec)
    assert "Gemma-3-27B" in json.dumps(spec)
    assert len(app.multiselect(key="calculator_compare").value) == 3


def test_two_numbers_side_by_side(calculator):
    """Gemma-3-27B at 131,072 tokens: 10.41 GiB by its layers, 14.23 GiB in vLLM's blocks."""
    app = calculator(
        **NAMED,
        calculator_model="Gemma-3-27B",
        calculator_tokens="131072",
        calculator_gpu="H100 80 GB SXM",
        calculator_tab="Engine",
    )
    shown = metrics(app)
    assert shown["The architecture needs"] == "10.41 GiB"
    assert shown["vLLM reserves"] == "14.23 GiB"
    assert "Maximum concurrency for 131,072 tokens" in texts(app)


def test_every_batch_in_flight_is_kept_beside_the_windows(calculator):
    """Gemma-3-27B: six groups of windows, each padded to ten layers of 8,192 bytes a token.

    A further batch of 8,192 tokens is 512 blocks of 16 in each group: 3.75 GiB more.
    """
    gemma = dict(
        **NAMED,
        calculator_model="Gemma-3-27B",
        calculator_tokens="131072",
        calculator_gpu="H200 141 GB",
        calculator_tab="Engine",
    )
    one, two = (
        metrics(calculator(**gemma, calculator_batches=str(n)))["vLLM reserves"] for n in (1, 2)
    )
    assert (one, two) == ("14.23 GiB", "17.98 GiB")


def test_drafts_raise_the_block_of_a_hybrid(calculator):
    """Qwen3.6-27B, two ranks, FP8: blocks of 1,600 tokens with three drafts (club-3090#642)."""
    app = calculator(
        **NAMED,
        calculator_model="Qwen3.6-27B",
        calculator_tokens="262144",
        calculator_format="fp8",
        calculator_memory="60",
        calculator_tp="2",
        calculator_version="0.24",
        calculator_drafts="3",
        calculator_tab="Engine",
    )
    assert "attention block size to 1600 tokens" in texts(app)


def test_the_cpu_backend_takes_blocks_of_128_tokens(calculator):
    """vLLM 0.32.0 on a CPU: 2 GiB of 23,040-byte tokens are 728 blocks."""
    app = calculator(
        calculator_layers="30",
        calculator_kv_heads="3",
        calculator_head_dim="64",
        calculator_memory="2",
        calculator_weights="0",
        calculator_cpu="true",
        calculator_context="16000",
        calculator_tab="Engine",
    )
    assert f"CPU KV cache size: {728 * 128:,} tokens" in texts(app)


@pytest.mark.parametrize(
    ("engine", "column", "each", "most"),
    [
        ("vLLM", "blocks that fit", 16 * 4096, "blocks"),
        ("SGLang", "tokens that fit", 4096, "tokens"),
    ],
)
def test_the_fullest_stage_decides(calculator, engine, column, each, most):
    """Llama-3.1-8B keeps 4,096 bytes a token and layer; 32 layers over 5 stages: 6, 6, 7, 7, 6."""
    app = calculator(
        **NAMED,
        calculator_model="Llama-3.1-8B",
        calculator_gpu="H100 80 GB SXM",
        calculator_pp="5",
        calculator_engine=engine,
        calculator_tab="Engine",
    )
    table = next(each.value for each in app.dataframe if column in each.value)
    assert list(table["layers"]) == [6, 6, 7, 7, 6]
    room = GPUS["H100 80 GB SXM"].memory_bytes
    weights = weight_bytes(MODELS["Llama-3.1-8B"].parameters)
    for layers, fits in zip(table["layers"], table[column], strict=True):
        assert fits == (room - -(-weights * layers // 32)) // (each * layers)
    assert f"Stage 2 fills first and decides: every stage gets as many {most}." in captions(app)


def test_an_engine_that_does_not_run_a_model_says_so(calculator):
    app = calculator(
        **NAMED,
        calculator_model="Whisper-large-v3",
        calculator_engine="SGLang",
        calculator_tab="Engine",
    )
    assert len(app.error) == 1


def test_a_pasted_config_is_read_and_travels_in_the_link(calculator):
    config = BY_NAME["Gemma-3-27B"]
    app = paste(calculator(**CONFIG), json.dumps(config))
    assert "81,920 bytes" in captions(app)
    packed = app.query_params["calculator_config"]
    packed = packed[0] if isinstance(packed, list) else packed
    assert unpack(packed)["text_config"]["num_hidden_layers"] == 62


def test_a_link_with_a_config_brings_it_back(calculator):
    app = calculator(**CONFIG, calculator_config=pack(BY_NAME["Nemotron-3-Nano-30B"]))
    assert "6,144 bytes" in captions(app)
    assert json.loads(app.text_area(key="calculator_paste").value)["model_type"] == "nemotron_h"


@pytest.mark.parametrize("kv_format", ["fp8", FORMATS["fp8"].label])
@pytest.mark.parametrize("dtype", ["int4", "int4, 4.125 bits each"])
def test_a_link_names_formats_by_their_names_or_their_labels(calculator, kv_format, dtype):
    app = calculator(**NAMED, calculator_format=kv_format, calculator_weights_dtype=dtype)
    assert not app.warning
    assert app.selectbox(key="calculator_format").value == "fp8"
    assert app.selectbox(key="calculator_weights_dtype").value == "int4"


def test_a_damaged_link_is_refused(calculator):
    app = calculator(**CONFIG, calculator_config=pack(BY_NAME["Gemma-3-27B"])[:-9])
    assert "cut off" in app.error[0].value


def test_weights_of_a_config_are_estimated_or_asked_for(calculator):
    full = MODELS["Llama-3.1-8B"].config
    app = paste(calculator(**CONFIG), json.dumps(full))
    assert metrics(app)["Users at once on one GPU"] != "unknown"
    app = paste(calculator(**CONFIG), json.dumps(BY_NAME["Jamba-1.5-Mini"]))
    assert metrics(app)["Users at once on one GPU"] == "unknown"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{broken", "not JSON"),
        ("[1, 2, 3]", "a list"),
        ("x" * 5_000_000, "5.0 MB"),
        ('{"peft_type": "LORA", "base_model_name_or_path": "org/base"}', "LoRA"),
        ('{"_class_name": "FluxTransformer2DModel"}', "diffusion"),
        (json.dumps({**llama(4, 8), "num_attention_heads": -1}), "num_attention_heads"),
        (json.dumps({**llama(4, 8), "mamba_d_state": 16}), "mamba_d_state"),
    ],
)
def test_a_wrong_config_is_told_what_it_is_and_kept(calculator, text, says):
    app = paste(calculator(**CONFIG), text)
    assert len(app.error) == 1
    assert says in app.error[0].value.replace("\\", "")
    assert app.text_area(key="calculator_paste").value == text


def test_an_unknown_type_can_be_read_as_a_transformer(calculator):
    config = llama(4, 8, model_type="llama9", sliding_window=512)
    app = paste(calculator(**CONFIG), json.dumps(config))
    assert "llama9" in app.error[0].value
    app.toggle(key="calculator_assume").set_value(True).run()
    assert not app.error
    assert any("model" in warning.value for warning in app.warning)
    assert " to " in metrics(app)["Growth per token"]


def test_a_config_that_leaves_two_readings_gives_a_range(calculator):
    config = llama(40, 8, 32, 5120, model_type="mistral", head_dim=128)
    app = paste(calculator(**CONFIG), json.dumps(config))
    assert "sliding" in app.warning[0].value
    assert "to" in metrics(app)["Growth per token"]


def test_fetching_without_a_hub_is_one_sentence_and_loses_nothing(calculator, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    app = paste(calculator(**CONFIG), json.dumps(llama(4, 8)))
    app.text_input(key="calculator_repository").set_value("Qwen/Qwen3-8B")
    app.button(key="calculator_fetch").click().run()
    assert "cannot be reached" in app.error[0].value
    assert json.loads(app.text_area(key="calculator_paste").value) == llama(4, 8)


def test_a_pasted_log_is_reconciled(calculator):
    app = calculator(**NAMED, calculator_model="Llama-3.1-8B", calculator_tab="Paste a log")
    paste(app, VLLM_LLAMA_20K, "calculator_log_text")
    assert "figures agree" in texts(app)
    frame = app.dataframe[0].value
    blocks = frame[frame["figure"] == "Blocks"].iloc[0]
    assert blocks["predicted"] == blocks["logged"] == 1952


def test_a_log_of_another_model_is_not_explained_away(calculator):
    app = calculator(**NAMED, calculator_model="DeepSeek-V3", calculator_tab="Paste a log")
    paste(app, VLLM_LLAMA_20K, "calculator_log_text")
    frame = app.dataframe[0].value
    blocks = frame[frame["figure"] == "Blocks"].iloc[0]
    assert blocks["logged"] == 1952
    assert blocks["predicted"] != 1952
    assert blocks["result"] != "agrees"
    assert "All" not in texts(app)


def test_a_log_travels_in_the_link(calculator):
    query = {**NAMED, "calculator_model": "Llama-3.1-8B", "calculator_tab": "Paste a log"}
    app = calculator(**query, calculator_startup=pack_text(VLLM_LLAMA_20K))
    assert app.text_area(key="calculator_log_text").value == VLLM_LLAMA_20K
    assert "figures agree" in texts(app)


def test_text_that_is_no_log_is_refused_and_kept(calculator):
    app = paste(calculator(calculator_tab="Paste a log"), "hello there", "calculator_log_text")
    assert len(app.error) == 1
    assert app.text_area(key="calculator_log_text").value == "hello there"


def test_the_conformance_set_runs_live_with_its_failures(calculator):
    app = calculator(calculator_tab="Conformance")
    frame = app.dataframe[0].value
    assert len(frame) > 100
    assert "Olmo-3-7B" in set(frame[frame["agrees"] == "no"]["model"])
    agree = (frame["agrees"] == "yes").sum()
    assert f"{agree} of {len(frame)} figures agree" in texts(app)


def test_ceilings_are_named_as_such(calculator):
    query = {**NAMED, "calculator_model": "Llama-3.1-8B", "calculator_tab": "Speed limits"}
    assert "Choose a GPU" in calculator(**query).info[0].value
    app = calculator(**query, calculator_gpu="H100 80 GB SXM")
    assert "Ceilings" in texts(app)
    assert "at least" in texts(app)
    app = calculator(**query, calculator_gpu="DGX Spark GB10 128 GB")
    assert "unknown" in texts(app)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("calculator_layers", "7"),
        ("calculator_layers", "many"),
        ("calculator_model", "GPT-9"),
        ("calculator_gpu", "abacus"),
        ("calculator_tp", "3"),
        ("calculator_tokens", "-1"),
        ("calculator_source", "Nowhere"),
    ],
)
def test_bad_links_are_refused_with_a_sentence(calculator, key, value):
    app = calculator(**{key: value})
    assert any("default is used" in warning.value for warning in app.warning)


def test_the_export_offers_both_files_and_the_link(calculator):
    app = calculator(**NAMED, calculator_model="Gemma-3-27B", calculator_tab="Export and link")
    assert {button.label for button in app.get("download_button")} == {
        "Download CSV",
        "Download JSON",
    }
    assert "calculator_model=Gemma-3-27B" in texts(app)


def test_weights_that_do_not_fit_are_said_to_miss(calculator):
    app = calculator(**NAMED, calculator_model="Llama-3.1-405B", calculator_gpu="L4 24 GB")
    shown = metrics(app)
    assert shown["Users at once on one GPU"] == "0"
    assert "Missing for the weights" in shown


def test_a_config_whose_name_holds_half_a_character_is_drawn(calculator):
    """The name goes into every table and chart, and Arrow takes whole characters alone."""
    named = json.dumps({**llama(4, 8), "_name_or_path": "\ud800 of mine"})
    app = paste(calculator(calculator_source="Your config"), named)
    assert metrics(app)["Growth per token"]


def test_a_folded_section_is_filled_where_a_link_sets_something_in_it(calculator):
    keys = {"calculator_tp", "calculator_pp", "calculator_dp"}

    def drawn(app):
        return keys & {w.key for kind in ("selectbox", "number_input") for w in app.get(kind)}

    assert drawn(calculator(**NAMED)) == set()
    assert drawn(calculator(**NAMED, calculator_pp="2")) == keys


def test_a_folded_section_stands_for_its_defaults(calculator):
    closed = calculator(**NAMED)
    opened = calculator(**NAMED, calculator_tp="1", calculator_prompt="2000")
    assert [m.value for m in closed.metric] == [m.value for m in opened.metric]
