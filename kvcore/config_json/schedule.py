"""Which layer does what: the layer kinds of a model, one by one.

Sources: the layer schedules of transformers 5.24's configuration classes, and for model types
outside it their own modelling code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from kvcore.architecture import Source
from kvcore.config_json.fields import Fields, shown


class Layer(StrEnum):
    """What one layer of the schedule is."""

    FULL = "full attention"
    SLIDING = "sliding window"
    CHUNKED = "chunked attention"
    SPARSE = "attention with an index"
    LINEAR = "recurrent state"
    BOTH = "attention and a recurrent state"
    CONVOLUTION = "short convolution"
    CROSS = "cross-attention"
    COMPRESSED_SPARSE = "compressed attention with an index"
    COMPRESSED = "heavily compressed attention"
    NONE = "nothing kept"


Schedule = list[Layer]

LAYER_NAMES: Mapping[str, Layer] = {
    "full_attention": Layer.FULL,
    "attention": Layer.FULL,
    "full": Layer.FULL,
    "global": Layer.FULL,
    "global_attention": Layer.FULL,
    "sliding_attention": Layer.SLIDING,
    "sliding_window_attention": Layer.SLIDING,
    "sliding": Layer.SLIDING,
    "local": Layer.SLIDING,
    "local_attention": Layer.SLIDING,
    "chunked_attention": Layer.CHUNKED,
    "deepseek_sparse_attention": Layer.SPARSE,
    "indexed_attention": Layer.SPARSE,
    "minimax_m3_sparse": Layer.SPARSE,
    "sparse": Layer.SPARSE,
    "linear_attention": Layer.LINEAR,
    "linear": Layer.LINEAR,
    "mamba": Layer.LINEAR,
    "mamba2": Layer.LINEAR,
    "recurrent": Layer.LINEAR,
    "hybrid": Layer.BOTH,
    "conv": Layer.CONVOLUTION,
    "compressed_sparse_attention": Layer.COMPRESSED_SPARSE,
    "heavily_compressed_attention": Layer.COMPRESSED,
    "mlp": Layer.NONE,
    "moe": Layer.NONE,
}

PATTERN_LETTERS: Mapping[str, Layer] = {
    "M": Layer.LINEAR,
    "*": Layer.FULL,
    "-": Layer.NONE,
    "E": Layer.NONE,
}
"""The letters of Nemotron-H's hybrid_override_pattern."""

WINDOW_KEYS = ("sliding_window", "sliding_window_size", "attention_window_size", "window_size")

Slides = Callable[[int, int], bool]


def _every(period: int) -> Slides:
    """All layers slide but every `period`-th."""
    return lambda i, n: (i + 1) % period != 0


def _every_and_last(period: int) -> Slides:
    return lambda i, n: (i + 1) % period != 0 and i != n - 1


def _from_first(period: int) -> Slides:
    """Layer 0 and every `period`-th after it attend to everything."""
    return lambda i, n: i % period != 0


ALTERNATING: Mapping[str, Slides] = {
    "afmoe": _every(4),
    "beam": _every_and_last(6),
    "cohere2": _every(4),
    "cohere2_moe": _every(4),
    "cwm": _from_first(4),
    "exaone4": _every(4),
    "exaone_moe": _every(4),
    "flint": lambda i, n: not (i < 2 or i % 4 == 1 or i == n - 1),
    "gemma2": _every(2),
    "gemma3_text": _every(6),
    "gemma3n_text": _every(5),
    "gemma4_text": _every_and_last(6),
    "gemma4_unified_text": _every_and_last(6),
    "gpt_oss": _every(2),
    "granite_swa": _from_first(4),
    "granitemoe_swa": _from_first(4),
    "kolibri1": _every(5),
    "mimo_v2_flash": lambda i, n: i != 0 and (i + 1) % 6 != 0,
    "modernbert-decoder": _from_first(3),
    "muse_glimmer_text": lambda i, n: (n - 1 - i) % 4 != 0,
    "muse_spark_text": lambda i, n: (n - 1 - i) % 4 != 0,
    "olmo3": _every(4),
    "vaultgemma": _every(2),
}
"""Which layers slide when the config has no `layer_types`, by model type."""

ALL_SLIDE = frozenset(
    {
        "minimax_m2",
        "ministral",
        "ministral3",
        "mistral",
        "mixtral",
        "phi3",
        "phi4_multimodal",
        "phimoe",
        "starcoder2",
        "voxtral_realtime_text",
    }
)
"""Types whose every layer slides when `sliding_window` is a number."""

LISTS_ITS_WINDOWS = frozenset({"cohere_compass_text", "laguna", "mellum"})
"""Types with a window that only `layer_types` puts to use."""

PERIOD_KEYS = ("sliding_window_pattern", "global_attn_every_n_layers")


def layer_schedule(fields: Fields, model_type: str, num_layers: int) -> Schedule:
    """The kind of each of `num_layers` layers. Raises ConfigError, naming the key."""
    rule = RULES.get(model_type)
    found = rule(fields, num_layers) if rule else None
    if found is None:
        found = _named(fields, num_layers)
    if found is None:
        found = _attention_types(fields, num_layers)
    if found is None:
        found = _windows(fields, model_type, num_layers)
    return found


def fit(fields: Fields, key: str, layers: Schedule, num_layers: int) -> Schedule:
    """A list cut to the model's layers: draft layers may follow at its end."""
    if len(layers) < num_layers:
        raise fields.error(
            key, f"{{key}} lists {len(layers)} layers, but the config has {num_layers}."
        )
    return layers[:num_layers]


def _note(fields: Fields, key: str) -> None:
    fields.record("schedule", key, Source.CONFIG, fields.name(key))


def _noted_default(fields: Fields, detail: str) -> None:
    fields.record(
        "schedule", detail, Source.CLASS_DEFAULT, f"{detail} ({fields.model_class.source})"
    )


def _named(fields: Fields, num_layers: int) -> Schedule | None:
    """`layer_types` or `layers_block_type`: one name a layer."""
    for key in ("layer_types", "layers_block_type"):
        names = fields.words(key)
        if names is None:
            continue
        unknown = next((name for name in names if name not in LAYER_NAMES), None)
        if unknown is not None:
            raise fields.error(
                key, f"{{key}} has a layer called {shown(unknown)}, which is unknown."
            )
        _note(fields, key)
        fields.used.update(WINDOW_KEYS)
        layers = [LAYER_NAMES[name] for name in names]
        if fields.get("use_sliding_window") is False:
            layers = [Layer.FULL if layer is Layer.SLIDING else layer for layer in layers]
        return fit(fields, key, layers, num_layers)
    return None


def _attention_types(fields: Fields, num_layers: int) -> Schedule | None:
    """MiniMax's attn_type_list: 1 for attention, 0 for linear attention."""
    kinds = fields.numbers("attn_type_list")
    if kinds is None:
        return None
    if set(kinds) - {0, 1}:
        raise fields.error("attn_type_list", "{key} should hold only 0 and 1.")
    _note(fields, "attn_type_list")
    layers = [Layer.FULL if kind else Layer.LINEAR for kind in kinds]
    return fit(fields, "attn_type_list", layers, num_layers)


def _windows(fields: Fields, model_type: str, num_layers: int) -> Schedule:
    """Sliding layers where nothing lists them: by switch, by period, by model type."""
    full = [Layer.FULL] * num_layers
    has_default = isinstance(fields.model_class.default("sliding_window"), int)
    window = next((fields.get(key) for key in WINDOW_KEYS if fields.says(key)), None)
    explicit_off = "sliding_window" in fields.values and not window
    switched = fields.get("use_sliding_window")
    if switched is None:
        switched = fields.model_class.default("use_sliding_window")
    if switched is False:
        for key in (*WINDOW_KEYS, "max_window_layers", "sliding_window_pattern"):
            fields.used.add(key)
        return full
    if explicit_off or not (window or has_default):
        return full
    by_layer = switched is not None or model_type == "dots1"
    if "max_window_layers" in fields.values and by_layer:
        first = fields.whole("first_window_layer", "max_window_layers", minimum=0)
        _note(fields, "max_window_layers")
        return [Layer.SLIDING if i >= first else Layer.FULL for i in range(num_layers)]
    slides = _period(fields) or ALTERNATING.get(model_type)
    if slides:
        if "schedule" not in fields.sources:
            _noted_default(fields, f"the layer pattern of {model_type}")
        return [Layer.SLIDING if slides(i, num_layers) else Layer.FULL for i in range(num_layers)]
    if model_type in ALL_SLIDE or switched is True:
        _noted_default(fields, "a window in every layer")
        return [Layer.SLIDING] * num_layers
    if model_type not in LISTS_ITS_WINDOWS:
        fields.used.difference_update(WINDOW_KEYS)
    return full


def _period(fields: Fields) -> Slides | None:
    """`sliding_window_pattern`: a period, or letters as in "LLLG"."""
    for key in PERIOD_KEYS:
        pattern = fields.get(key)
        if pattern is None:
            continue
        _note(fields, key)
        if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
            return lambda i, n, letters=pattern: letters[i % len(letters)] == "L"
        return _every(fields.whole("pattern_period", key))
    return None


def _nemotron_h(fields: Fields, num_layers: int) -> Schedule | None:
    pattern = fields.get("hybrid_override_pattern")
    if pattern is None:
        return None
    if not isinstance(pattern, str) or set(pattern) - set(PATTERN_LETTERS):
        raise fields.error(
            "hybrid_override_pattern",
            f"{{key}} should use only the letters M, *, - and E, but it is {shown(pattern)}.",
        )
    _note(fields, "hybrid_override_pattern")
    layers = [PATTERN_LETTERS[letter] for letter in pattern]
    return fit(fields, "hybrid_override_pattern", layers, num_layers)


def _jamba(fields: Fields, num_layers: int) -> Schedule | None:
    if fields.says("layers_block_type") or fields.says("layer_types"):
        return None
    period = fields.whole("attention_period", "attn_layer_period")
    offset = fields.whole("attention_offset", "attn_layer_offset", minimum=0)
    if offset >= period:
        raise fields.error("attn_layer_offset", "{key} should be smaller than attn_layer_period.")
    fields.record(
        "schedule", f"{offset} of every {period}", Source.CONFIG, fields.name("attn_layer_period")
    )
    return [Layer.FULL if i % period == offset else Layer.LINEAR for i in range(num_layers)]


def _bamba(fields: Fields, num_layers: int) -> Schedule | None:
    if fields.says("layer_types") or fields.says("layers_block_type"):
        return None
    indices = fields.numbers("attn_layer_indices")
    if indices is None:
        return _only_state(fields, num_layers)
    _note(fields, "attn_layer_indices")
    return [Layer.FULL if i in set(indices) else Layer.LINEAR for i in range(num_layers)]


def _interval(key: str, default: int) -> Callable[[Fields, int], Schedule | None]:
    """Every `key`-th layer attends; the others keep a state."""

    def rule(fields: Fields, num_layers: int) -> Schedule | None:
        interval = fields.maybe_whole("attention_interval", key)
        if fields.says("layer_types"):
            return None
        if interval is None:
            interval = default
            _noted_default(fields, f"attention in every {default}th layer")
        else:
            _note(fields, key)
        return [Layer.LINEAR if (i + 1) % interval else Layer.FULL for i in range(num_layers)]

    return rule


def _kimi_linear(fields: Fields, num_layers: int) -> Schedule | None:
    linear = fields.inside("linear_attn_config")
    if fields.says("layer_types"):
        return None
    if linear is None:
        return _interval("full_attention_interval", 4)(fields, num_layers)
    full = linear.numbers("full_attn_layers", minimum=1)
    if full is None:
        raise linear.error(
            "full_attn_layers", "The config has no {key}, so the schedule is unknown."
        )
    linear.get("kda_layers")
    _note(fields, "linear_attn_config")
    return [Layer.FULL if i + 1 in set(full) else Layer.LINEAR for i in range(num_layers)]


def _both(fields: Fields, num_layers: int) -> Schedule:
    _noted_default(fields, "attention and a state in every layer")
    return [Layer.BOTH] * num_layers


def _only_state(fields: Fields, num_layers: int) -> Schedule:
    _noted_default(fields, "a state in every layer")
    return [Layer.LINEAR] * num_layers


def _recurrent_gemma(fields: Fields, num_layers: int) -> Schedule:
    names = fields.words("block_types") or fields.words("_block_types")
    if names is None:
        names = ["recurrent", "recurrent", "attention"]
        _noted_default(fields, "two recurrent layers, then one that attends")
    else:
        _note(fields, "block_types")
    if not names or set(names) - {"recurrent", "attention"}:
        raise fields.error("block_types", "{key} should name “recurrent” and “attention” layers.")
    kinds = {"recurrent": Layer.LINEAR, "attention": Layer.SLIDING}
    return [kinds[names[i % len(names)]] for i in range(num_layers)]


def _lfm2(fields: Fields, num_layers: int) -> Schedule | None:
    full = fields.numbers("full_attn_idxs")
    if fields.says("layer_types") or full is None:
        return None
    _note(fields, "full_attn_idxs")
    return [Layer.FULL if i in set(full) else Layer.CONVOLUTION for i in range(num_layers)]


def _lfm3(fields: Fields, num_layers: int) -> Schedule | None:
    if fields.says("layer_types"):
        return None
    _noted_default(fields, "convolutions between full and sliding layers")

    def kind(i: int) -> Layer:
        if i % 4 == 2:
            return Layer.FULL
        return Layer.SLIDING if i % 4 == 0 and i > 0 else Layer.CONVOLUTION

    return [kind(i) for i in range(num_layers)]


def _lara_mini(fields: Fields, num_layers: int) -> Schedule | None:
    if fields.says("layer_types"):
        return None
    _noted_default(fields, "the five-layer pattern of lara_mini")
    pattern = (Layer.LINEAR, Layer.SLIDING, Layer.LINEAR, Layer.FULL, Layer.SLIDING)
    return [pattern[i % 5] for i in range(num_layers)]


def _plamo2(fields: Fields, num_layers: int) -> Schedule:
    step = fields.whole("mamba_step", "mamba_step", assume=2, because="PLaMo 2 alternates")
    if not fields.truth("mamba_enabled", True):
        return [Layer.FULL] * num_layers
    _note(fields, "mamba_step")
    if num_layers <= step // 2:
        return [Layer.LINEAR] * (num_layers - 1) + [Layer.FULL]
    return [Layer.FULL if i % step == step // 2 else Layer.LINEAR for i in range(num_layers)]


def _llama4(fields: Fields, num_layers: int) -> Schedule | None:
    """Layers without rotary positions attend to everything; the others see one chunk."""
    if fields.says("layer_types"):
        return None
    if "attention_chunk_size" in fields.values and not fields.get("attention_chunk_size"):
        return [Layer.FULL] * num_layers
    rotary = fields.numbers("no_rope_layers")
    if rotary:
        _note(fields, "no_rope_layers")
        rotary = [Layer.CHUNKED if each else Layer.FULL for each in rotary]
        return fit(fields, "no_rope_layers", rotary, num_layers)
    interval = fields.whole(
        "attention_interval", "no_rope_layer_interval", assume=4, because="Llama 4"
    )
    _noted_default(fields, f"full attention in every {interval}th layer")
    return [Layer.CHUNKED if (i + 1) % interval else Layer.FULL for i in range(num_layers)]


def _gpt_neo(fields: Fields, num_layers: int) -> Schedule | None:
    flat = fields.words("attention_layers")
    if flat is None:
        flat = _expanded(fields)
    if flat is None:
        _noted_default(fields, "global and local layers in turn")
        flat = ["global", "local"] * num_layers
    if set(flat) - {"global", "local"}:
        raise fields.error("attention_layers", "{key} should name “global” and “local” layers.")
    kinds = {"global": Layer.FULL, "local": Layer.SLIDING}
    return fit(fields, "attention_types", [kinds[each] for each in flat], num_layers)


def _expanded(fields: Fields) -> list[str] | None:
    """GPT-Neo's [[["global", "local"], 12]]: a pattern and how often it repeats."""
    value = fields.get("attention_types")
    if value is None:
        return None
    flat: list[str] = []
    for item in value if isinstance(value, list) else [None]:
        if not (
            isinstance(item, (list, tuple))
            and len(item) == 2
            and isinstance(item[0], (list, tuple))
            and isinstance(item[1], int)
            and not isinstance(item[1], bool)
            and 0 < item[1] <= 1000
            and all(isinstance(each, str) for each in item[0])
        ):
            raise fields.error("attention_types", "{key} should list patterns and repetitions.")
        flat.extend(list(item[0]) * item[1])
    _note(fields, "attention_types")
    return flat


def _mimo_v2(fields: Fields, num_layers: int) -> Schedule | None:
    """hybrid_layer_pattern: 1 for a sliding layer. Its attention_chunk_size is not used."""
    fields.get("attention_chunk_size")
    slides = fields.numbers("hybrid_layer_pattern")
    if slides is None:
        return None
    _note(fields, "hybrid_layer_pattern")
    layers = [Layer.SLIDING if each else Layer.FULL for each in slides]
    return fit(fields, "hybrid_layer_pattern", layers, num_layers)


def _minimax_m3(fields: Fields, num_layers: int) -> Schedule | None:
    sparse = fields.inside("sparse_attention_config")
    if fields.says("layer_types") or sparse is None:
        return None
    if not sparse.truth("use_sparse_attention", True):
        return [Layer.FULL] * num_layers
    flags = sparse.numbers("sparse_attention_freq")
    if flags is None:
        raise sparse.error("sparse_attention_freq", "The config has no {key}.")
    _note(fields, "sparse_attention_config")
    layers = [Layer.SPARSE if flag else Layer.FULL for flag in flags]
    return fit(sparse, "sparse_attention_freq", layers, num_layers)


def _indexed(fields: Fields, num_layers: int) -> Schedule:
    """DeepSeek sparse attention: every layer attends; which own an index is told elsewhere."""
    names = fields.words("layer_types")
    if names is None:
        _noted_default(fields, "sparse attention in every layer")
        return [Layer.SPARSE] * num_layers
    layers = _named(fields, num_layers) or []
    return [Layer.SPARSE if layer is Layer.FULL else layer for layer in layers]


def _deepseek_v4(fields: Fields, num_layers: int) -> Schedule | None:
    ratios = fields.numbers("compress_ratios")
    if ratios is None:
        if fields.says("layer_types"):
            return None
        raise fields.error(
            "compress_ratios", "The config has no {key}, so the schedule is unknown."
        )
    kinds = {0: Layer.SLIDING, 4: Layer.COMPRESSED_SPARSE, 128: Layer.COMPRESSED}
    unknown = next((ratio for ratio in ratios if ratio not in kinds), None)
    if unknown is not None:
        raise fields.error("compress_ratios", f"{{key}} holds {unknown}; 0, 4 and 128 are known.")
    _note(fields, "compress_ratios")
    return fit(fields, "compress_ratios", [kinds[ratio] for ratio in ratios], num_layers)


def _cohere2_moe(fields: Fields, num_layers: int) -> Schedule | None:
    """The first, dense layers follow a pattern of their own."""
    if fields.says("layer_types"):
        return None
    dense = fields.whole(
        "dense_layers", "first_k_dense_replace", minimum=0, assume=0, because="none"
    )
    prefix = fields.whole("prefix_period", "prefix_dense_sliding_window_pattern")
    period = fields.whole("pattern_period", "sliding_window_pattern")
    _noted_default(fields, "the layer pattern of cohere2_moe")
    slides = [(i + 1) % prefix != 0 for i in range(dense)]
    slides += [(i + 1) % period != 0 for i in range(num_layers - dense)]
    return [Layer.SLIDING if each else Layer.FULL for each in slides[:num_layers]]


def _mllama(fields: Fields, num_layers: int) -> Schedule:
    cross = fields.numbers("cross_attention_layers")
    if cross is None:
        cross = list(range(3, num_layers, 5))
        _noted_default(fields, "cross-attention in every fifth layer")
    else:
        _note(fields, "cross_attention_layers")
    return [Layer.CROSS if i in set(cross) else Layer.FULL for i in range(num_layers)]


def _zamba(fields: Fields, num_layers: int) -> Schedule | None:
    fields.used.add("hybrid_layer_ids")
    if fields.says("layers_block_type") or fields.says("layer_types"):
        return None
    raise fields.error("layers_block_type", "The config has no {key}, so the schedule is unknown.")


def _olmo_hybrid(fields: Fields, num_layers: int) -> Schedule | None:
    if fields.says("layer_types"):
        return None
    _noted_default(fields, "attention in every 4th layer")
    layers = [Layer.FULL if i % 4 == 3 else Layer.LINEAR for i in range(num_layers)]
    if Layer.FULL not in layers:
        layers[-1] = Layer.FULL
    return layers


def _granite_hybrid(fields: Fields, num_layers: int) -> Schedule | None:
    named = fields.says("layer_types") or fields.says("layers_block_type")
    return None if named else _only_state(fields, num_layers)


def _minimax(fields: Fields, num_layers: int) -> Schedule | None:
    if fields.says("layer_types") or fields.says("attn_type_list"):
        return None
    _noted_default(fields, "attention and linear attention in turn")
    return [Layer.LINEAR if i % 2 else Layer.FULL for i in range(num_layers)]


RULES: Mapping[str, Callable[[Fields, int], Schedule | None]] = {
    "axk2": _indexed,
    "bailing_hybrid": _interval("layer_group_size", 4),
    "bamba": _bamba,
    "cohere2_moe": _cohere2_moe,
    "deepseek_v32": _indexed,
    "deepseek_v4": _deepseek_v4,
    "falcon_h1": _both,
    "falcon_mamba": _only_state,
    "glm_moe_dsa": _indexed,
    "gpt_neo": _gpt_neo,
    "granitemoehybrid": _granite_hybrid,
    "hy_v4": _indexed,
    "hy_v4_vl_text": _indexed,
    "jamba": _jamba,
    "kimi_linear": _kimi_linear,
    "lara_mini": _lara_mini,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "lfm3": _lfm3,
    "llama4_text": _llama4,
    "mamba": _only_state,
    "mamba2": _only_state,
    "mimo_v2_flash": _mimo_v2,
    "minimax": _minimax,
    "minimax_m3_vl_text": _minimax_m3,
    "mistral_large4_text": _indexed,
    "mllama_text_model": _mllama,
    "nemotron_h": _nemotron_h,
    "olmo_hybrid": _olmo_hybrid,
    "plamo2": _plamo2,
    "qwen3_5_moe_text": _interval("full_attention_interval", 4),
    "qwen3_5_text": _interval("full_attention_interval", 4),
    "qwen3_next": _interval("full_attention_interval", 4),
    "recurrent_gemma": _recurrent_gemma,
    "zamba": _zamba,
    "zamba2": _zamba,
}
"""Schedules that only one family has. A rule returns None to fall back to the lists and windows."""
