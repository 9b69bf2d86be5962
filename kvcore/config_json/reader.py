"""From a config.json to an Architecture: find the language model, read its layers, add them up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kvcore.architecture import (
    Architecture,
    LayerGroup,
    LayerKind,
    Source,
    Uncertainty,
)
from kvcore.config_json.classes import (
    UNSIZED,
    ModelClass,
    model_class,
    reading_type,
    type_of_architecture,
)
from kvcore.config_json.errors import ConfigError
from kvcore.config_json.fields import Fields, shown
from kvcore.config_json.geometry import (
    Geometry,
    attention_heads,
    global_geometry,
    head_dim,
    read_geometry,
    read_latent,
    window_geometry,
)
from kvcore.config_json.identify import refuse_other_files, refuse_unfit, require_object
from kvcore.config_json.schedule import WINDOW_KEYS, Layer, layer_schedule
from kvcore.config_json.state import State, recurrent_state, short_convolution
from kvcore.formats import FormatError, find_format

NESTED = (
    "text_config",
    "language_config",
    "llm_config",
    "thinker_config",
    "language_model_config",
    "text_model_config",
)
"""Where multimodal configs keep the language model's part."""

LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "num_layers",
    "n_layers",
    "decoder_layers",
    "num_decoder_layers",
)
CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "model_max_length",
    "seq_length",
    "max_seq_len",
    "n_ctx",
    "max_target_positions",
)
DRAFT = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers")

MOST_LAYERS = 10_000

SUBLAYERS = {"longcat_flash": 2}
"""Types with more than one attention in each layer."""

COMPRESSION = {
    Layer.COMPRESSED_SPARSE: ("compressed_sparse_attention", 4),
    Layer.COMPRESSED: ("heavily_compressed_attention", 128),
}
"""DeepSeek-V4's names in compress_rates, and the rates of its class."""

SMELLS_OF_STATE = re.compile(
    r"mamba|ssm|linear_attn|linear_(num|key|value|conv|head)|conv_kernel|conv_l_cache|state_size|"
    r"recurrent|rwkv|retention|compress_(ratio|rate)|block_configs|kv_shared|shared_kv|share_kv|"
    r"kv_source|cross_layer|yoco|lru_width|delta_?(rule|net)|kda_layers|index_head_dim|indexer_types|index_topk_(freq|pattern)|"
    r"sparse_attention|kv_lora|hybrid|attn_layer_|attn_type|full_attn|layers_block_type",
    re.IGNORECASE,
)
SMELLS_OF_WINDOW = re.compile(r"sliding|window|attention_chunk|global_attn|local_attention")
HARMLESS = frozenset(
    {
        "max_window_layers",
        "use_sliding_window",
        "use_mamba_kernels",
        "mamba_chunk_size",
        "mamba_proj_bias",
        "mamba_conv_bias",
        "mamba_hidden_act",
        "mamba_dt_rank",
        "use_mambapy",
    }
)
"""Keys that speak of state or windows and change nothing that is kept."""


@dataclass
class Reading:
    """What has been gathered so far: layers in both readings, open questions, warnings."""

    layers: list[list[LayerGroup]] = field(default_factory=list)
    low: list[list[LayerGroup]] = field(default_factory=list)
    uncertain: list[Uncertainty] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_config(
    config: Mapping[str, object], name: str = "", assume_plain: bool = False
) -> Architecture:
    """The architecture a config.json describes.

    `assume_plain` reads an unknown model type as an ordinary transformer, says so, and gives a
    range where a window leaves the answer open. Raises ConfigError, naming the key, for everything
    that cannot be read.
    """
    config = require_object(config)
    refuse_other_files(config)
    top_type = _model_type(config)
    if not any(isinstance(config.get(key), Mapping) for key in NESTED):
        refuse_unfit(top_type, config)
    fields = _language_model(config, top_type, assume_plain)
    model_type = reading_type(fields.model_class.model_type)
    _refuse_unsized(top_type, model_type, fields)
    reading = Reading()
    if assume_plain and model_class(fields.model_class.model_type) is None:
        reading.uncertain.append(
            Uncertainty("model_type", f"“{top_type}” is unknown here and was read as a transformer")
        )
    num_layers = _read_layers(fields, model_type, config, reading)
    dtype = _dtype(config, fields)
    _read_stack(fields, model_type, num_layers, dtype or "bf16", reading)
    _judge_unused(fields, reading)
    return _assemble(config, fields, top_type, name, dtype, reading)


def _model_type(config: Mapping[str, object]) -> str:
    found = config.get("model_type")
    if isinstance(found, str) and found:
        return found
    if found is not None and not isinstance(found, str):
        raise ConfigError(f"“model_type” should be a name, but it is {shown(found)}.", "model_type")
    named = config.get("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str):
        guessed = type_of_architecture(named[0])
        if guessed:
            return guessed
    raise ConfigError(
        "The config has no “model_type”, so its layers cannot be told apart. Paste the whole "
        "config.json of a language model.",
        "model_type",
    )


def _language_model(config: Mapping[str, object], top_type: str, assume_plain: bool) -> Fields:
    """The section with the language model's layers, and the class that reads it."""
    top_class = model_class(top_type)
    for key in NESTED:
        nested = config.get(key)
        if isinstance(nested, Mapping) and not _has_layers(config):
            return _nested_model(nested, key, top_type, top_class, assume_plain)
        if (
            nested is not None
            and not isinstance(nested, (Mapping, str))
            and not _has_layers(config)
        ):
            raise ConfigError(f"“{key}” should be an object, but it is {shown(nested)}.", key)
    if top_class and top_class.text_type and not top_class.defaults.get("num_hidden_layers"):
        top_class = replace(model_class(top_class.text_type) or top_class)
    if top_class is None and assume_plain:
        top_class = ModelClass(top_type)
    if top_class is None:
        raise _unknown(top_type, "model_type")
    return Fields(config, top_class)


def _nested_model(
    nested: Mapping[str, object],
    key: str,
    top_type: str,
    top_class: ModelClass | None,
    assume_plain: bool,
) -> Fields:
    for inner_key in NESTED:
        inner = nested.get(inner_key)
        if isinstance(inner, Mapping) and not _has_layers(nested):
            fields = _nested_model(inner, inner_key, top_type, top_class, assume_plain)
            fields.path = f"{key}.{fields.path}"
            return fields
    nested_type = nested.get("model_type")
    if nested_type is None and top_class is not None and top_class.text_type:
        nested_type = top_class.text_type
    if nested_type is None:
        nested_type = top_type
    if not isinstance(nested_type, str):
        raise ConfigError(
            f"“{key}.model_type” should be a name, but it is {shown(nested_type)}.",
            f"{key}.model_type",
        )
    found = model_class(nested_type)
    if found and found.text_type and not found.defaults.get("num_hidden_layers"):
        found = model_class(found.text_type)
    if found is None and assume_plain:
        found = ModelClass(nested_type)
    if found is None:
        raise _unknown(nested_type, f"{key}.model_type")
    refuse_unfit(nested_type, nested)
    return Fields(nested, found, key)


def _has_layers(config: Mapping[str, object]) -> bool:
    return any(config.get(key) is not None for key in LAYERS)


def _unknown(model_type: str, key: str) -> ConfigError:
    return ConfigError(
        f"“{key}” is {shown(model_type)}, which is not known here, so what its layers keep "
        "would be a guess.",
        key,
    )


def _refuse_unsized(top_type: str, model_type: str, fields: Fields) -> None:
    for name in (top_type, model_type, model_type.removesuffix("_text")):
        if name in UNSIZED:
            raise ConfigError(
                f"“model_type” is {name}, which is known but not sized here: {UNSIZED[name]}.",
                "model_type",
            )
    if fields.get("is_encoder_decoder") is None and fields.model_class.default(
        "is_encoder_decoder"
    ):
        fields.record("is_encoder_decoder", True, Source.CLASS_DEFAULT, fields.model_class.source)


def _read_layers(
    fields: Fields, model_type: str, config: Mapping[str, object], reading: Reading
) -> int:
    """Layers the model has; lists of names count where no number is given."""
    if model_type == "nemotron_h" and not fields.says("num_hidden_layers"):
        listed = fields.values.get("layers_block_type") or fields.values.get(
            "hybrid_override_pattern"
        )
        if isinstance(listed, (list, str)) and listed:
            fields.record(
                "num_layers", len(listed), Source.CONFIG, fields.name("layers_block_type")
            )
            return _bounded(fields, "layers_block_type", len(listed))
    encoder_decoder = _is_encoder_decoder(fields)
    keys = ("decoder_layers", "num_decoder_layers", *LAYERS) if encoder_decoder else LAYERS
    if not fields.path and not any(fields.says(key) for key in keys):
        raise fields.error(
            "num_hidden_layers",
            "The config has no {key}, so there is nothing to count. Paste the whole config.json.",
        )
    found = fields.whole("num_layers", *keys)
    key = next((key for key in keys if fields.says(key)), keys[0])
    return _bounded(fields, key, found) * SUBLAYERS.get(model_type, 1)


def _bounded(fields: Fields, key: str, layers: int) -> int:
    if layers > MOST_LAYERS:
        raise fields.error(key, f"{{key}} gives {layers:,} layers; {MOST_LAYERS:,} is the most.")
    return layers


def _is_encoder_decoder(fields: Fields) -> bool:
    said = fields.get("is_encoder_decoder")
    if said is not None and not isinstance(said, bool):
        raise fields.error(
            "is_encoder_decoder", f"{{key}} should be true or false, not {shown(said)}."
        )
    return said if said is not None else bool(fields.model_class.default("is_encoder_decoder"))


def _dtype(config: Mapping[str, object], fields: Fields) -> str | None:
    """The model's own dtype, None when the config does not say."""
    for section in (fields.values, config):
        for key in ("dtype", "torch_dtype"):
            value = section.get(key)
            if value is not None and not isinstance(value, str):
                raise ConfigError(
                    f"“{key}” should be the name of a dtype, not {shown(value)}.", key
                )
            if value is not None and value != "auto":
                try:
                    return find_format(value).name
                except FormatError:
                    raise ConfigError(
                        f"“{key}” is {shown(value)}, which is no dtype known here.", key
                    ) from None
    return None


def _kv_dtype(config: Mapping[str, object], fields: Fields) -> str | None:
    """The cache dtype a quantised checkpoint asks for, if any. Weight formats say nothing of it."""
    sections: list[Mapping] = [config, fields.values]
    for section in list(sections):
        for key in ("quantization_config", "quantization", "compression_config"):
            part = section.get(key)
            if isinstance(part, Mapping):
                sections.append(part)
                inner = part.get("quantization")
                if isinstance(inner, Mapping):
                    sections.append(inner)
    for section in sections:
        algorithm = section.get("kv_cache_quant_algo")
        if isinstance(algorithm, str) and algorithm:
            return {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8_per_token_head"}.get(
                algorithm.upper()
            )
        scheme = section.get("kv_cache_scheme")
        if isinstance(scheme, Mapping) and scheme.get("type") == "float":
            return {8: "fp8", 4: "nvfp4"}.get(scheme.get("num_bits"))
    return None


def _read_stack(
    fields: Fields, model_type: str, num_layers: int, dtype: str, reading: Reading
) -> None:
    """Fill `reading` with what each layer keeps."""
    blocks = fields.get("block_configs")
    if blocks is not None:
        _read_blocks(fields, model_type, blocks, num_layers, reading)
    elif _is_encoder_decoder(fields):
        _read_encoder_decoder(fields, model_type, num_layers, reading)
    else:
        _read_decoder(fields, model_type, num_layers, dtype, reading)
    _share(fields, num_layers, reading)


def _read_decoder(
    fields: Fields, model_type: str, num_layers: int, dtype: str, reading: Reading
) -> None:
    schedule = layer_schedule(fields, model_type, num_layers)
    parts = _Parts(fields, model_type, dtype, schedule, reading)
    for i, layer in enumerate(schedule):
        reading.layers.append(parts.high(layer, i))
        reading.low.append(parts.low(layer, i))


class _Parts:
    """The groups one layer contributes, by what it is; geometry is read once."""

    def __init__(
        self, fields: Fields, model_type: str, dtype: str, schedule: list[Layer], reading: Reading
    ) -> None:
        kinds = set(schedule)
        self.fields, self.model_type, self.reading = fields, model_type, reading
        attends = kinds - {Layer.LINEAR, Layer.CONVOLUTION, Layer.NONE}
        compressed = (
            kinds & {Layer.COMPRESSED, Layer.COMPRESSED_SPARSE} or model_type == "deepseek_v4"
        )
        self.latent = read_latent(fields) if attends and not compressed else None
        self.geometry = self._geometry() if attends and not self.latent else None
        windows = kinds & {Layer.SLIDING, Layer.COMPRESSED, Layer.COMPRESSED_SPARSE}
        self.window = _window(fields, model_type) if windows else None
        self.chunk = (
            fields.whole("window", "attention_chunk_size") if Layer.CHUNKED in kinds else None
        )
        self.state = self._state(kinds, dtype)
        self.convolution: State = ()
        if Layer.CONVOLUTION in kinds:
            self.convolution = short_convolution(fields, dtype)
        self.index_owners = _index_owners(fields, len(schedule)) if Layer.SPARSE in kinds else ()
        self.index_width = _index_width(fields) if Layer.SPARSE in kinds else 0
        self.sources = fields.sources
        self._compare_readings(kinds)

    def _geometry(self) -> Geometry:
        return read_geometry(self.fields, self.model_type)

    def _state(self, kinds: set[Layer], dtype: str) -> State:
        if not kinds & {Layer.LINEAR, Layer.BOTH}:
            return ()
        return recurrent_state(self.fields, self.model_type, dtype)

    def _compare_readings(self, kinds: set[Layer]) -> None:
        if self.geometry and self.geometry.fewest_kv_heads < self.geometry.num_kv_heads:
            self.reading.uncertain.append(
                Uncertainty(
                    self.fields.name("num_key_value_heads"),
                    f"missing: {self.geometry.fewest_kv_heads} by class default, or one "
                    f"for each of {self.geometry.num_kv_heads} heads",
                )
            )
        if Layer.SLIDING in kinds and self._window_is_unsaid():
            self.reading.uncertain.append(
                Uncertainty(
                    self.fields.name("sliding_window"),
                    f"missing: the class assumes {self.window:,}, most released models have none",
                )
            )

    def _window_is_unsaid(self) -> bool:
        """A top-level config without the key, of a type whose released models differ."""
        unsaid = not any(key in self.fields.values for key in WINDOW_KEYS)
        return unsaid and not self.fields.path and self.model_type in ("mistral", "ministral")

    def high(self, layer: Layer, i: int) -> list[LayerGroup]:
        if layer is Layer.SLIDING and self._window_is_unsaid():
            layer = Layer.FULL
        return self._groups(layer, i, fewest=False)

    def low(self, layer: Layer, i: int) -> list[LayerGroup]:
        return self._groups(layer, i, fewest=True)

    def _groups(self, layer: Layer, i: int, fewest: bool) -> list[LayerGroup]:
        if layer is Layer.NONE:
            return [LayerGroup(LayerKind.NONE, 1)]
        if layer is Layer.LINEAR:
            return [LayerGroup(LayerKind.RECURRENT, 1, state=self.state)]
        if layer is Layer.CONVOLUTION:
            return [
                LayerGroup(
                    LayerKind.RECURRENT, 1, state=self.convolution, label="short convolution"
                )
            ]
        if layer is Layer.BOTH:
            return [
                *self._groups(Layer.FULL, i, fewest),
                LayerGroup(LayerKind.RECURRENT, 1, state=self.state),
            ]
        if layer is Layer.SPARSE:
            index = [self._index()] if self._owns_index(i) else []
            return [*self._groups(Layer.FULL, i, fewest), *index]
        if layer in (Layer.COMPRESSED, Layer.COMPRESSED_SPARSE):
            return self._compressed(layer)
        if layer is Layer.CROSS:
            return [
                replace(
                    self._heads(LayerKind.CROSS_ATTENTION, fewest),
                    window=_image_tokens(self.fields),
                )
            ]
        if self.latent:
            return [self._latent(layer)]
        return [self._attention(layer, fewest)]

    def _attention(self, layer: Layer, fewest: bool) -> LayerGroup:
        if layer is Layer.SLIDING:
            group = replace(self._heads(LayerKind.SLIDING_WINDOW, fewest), window=self.window)
            if self.model_type == "deepseek_v4":
                return replace(group, value_head_dim=0, label="keys that serve as values")
            return group
        if layer is Layer.CHUNKED:
            return replace(self._heads(LayerKind.CHUNKED, fewest), window=self.chunk)
        return self._heads(LayerKind.FULL, fewest)

    def _heads(self, kind: LayerKind, fewest: bool) -> LayerGroup:
        adapt = window_geometry if kind is LayerKind.SLIDING_WINDOW else global_geometry
        shape = adapt(self.fields, self.model_type, self.geometry)
        heads = shape.fewest_kv_heads if fewest else shape.num_kv_heads
        return LayerGroup(kind, 1, heads, shape.head_dim, shape.value_head_dim)

    def _latent(self, layer: Layer) -> LayerGroup:
        if layer is not Layer.FULL:
            raise self.fields.error(
                "kv_lora_rank", "{key}: latent vectors in windowed layers are not known here."
            )
        return LayerGroup(
            LayerKind.LATENT,
            1,
            num_kv_heads=1,
            head_dim=self.latent.rank + self.latent.rope_dim,
            latent_rank=self.latent.rank,
            rope_dim=self.latent.rope_dim,
        )

    def _compressed(self, layer: Layer) -> list[LayerGroup]:
        """DeepSeek-V4: a window of single vectors, one entry per 4 or 128 tokens, an index."""
        ratio = self._ratio(layer)
        width = self.geometry.head_dim
        rope = self.fields.whole(
            "rope_dim", "qk_rope_head_dim", assume=0, because="none given", minimum=0
        )
        if rope >= width:
            raise self.fields.error("qk_rope_head_dim", "{key} should be smaller than head_dim.")
        compressed = LayerGroup(
            LayerKind.LATENT,
            1,
            num_kv_heads=1,
            head_dim=width,
            latent_rank=width - rope,
            rope_dim=rope,
            tokens_per_entry=ratio,
            label=f"one entry per {ratio} tokens",
        )
        window = self._attention(Layer.SLIDING, fewest=False)
        if layer is Layer.COMPRESSED:
            return [window, compressed]
        index = replace(self._index(), tokens_per_entry=ratio, label=f"one key per {ratio} tokens")
        return [window, compressed, index]

    def _ratio(self, layer: Layer) -> int:
        """Tokens an entry stands for: `compress_rates`, else the 4 and 128 of its class."""
        name, assumed = COMPRESSION[layer]
        rates = self.fields.inside("compress_rates")
        if rates is None:
            return assumed
        return rates.whole("tokens_per_entry", name, assume=assumed, because="DeepSeek-V4's class")

    def _owns_index(self, i: int) -> bool:
        return i in self.index_owners

    def _index(self) -> LayerGroup:
        width = self.index_width or _index_width(self.fields)
        return LayerGroup(LayerKind.SPARSE_INDEX, 1, num_kv_heads=1, head_dim=width)


def _window(fields: Fields, model_type: str) -> int:
    """Tokens a sliding layer keeps."""
    if model_type == "modernbert-decoder":
        fields.used.add("sliding_window")
        return max(1, fields.whole("window", "local_attention", minimum=2) // 2)
    return fields.whole("window", *WINDOW_KEYS)


def _index_width(fields: Fields) -> int:
    sparse = fields.inside("sparse_attention_config")
    if sparse is not None and sparse.says("sparse_index_dim"):
        width = sparse.whole("index_head_dim", "sparse_index_dim")
        fields.sources.update(sparse.sources)
        return width
    return fields.whole("index_head_dim", "index_head_dim")


def _index_owners(fields: Fields, num_layers: int) -> frozenset[int]:
    """Layers that compute and keep index keys of their own; the others reuse them."""
    for key in ("index_topk_freq", "index_topk_pattern"):
        fields.used.add(key)
    types = fields.words("indexer_types")
    if types is None:
        types = _index_pattern(fields, num_layers)
    if types is None:
        fields.record(
            "index_layers", "every layer", Source.ASSUMPTION, "no indexer_types in the config"
        )
        return frozenset(range(num_layers))
    if set(types) - {"full", "shared"}:
        raise fields.error("indexer_types", "{key} should name “full” and “shared” layers.")
    if len(types) < num_layers:
        raise fields.error(
            "indexer_types", f"{{key}} lists {len(types)} layers, but the config has {num_layers}."
        )
    return frozenset(i for i in range(num_layers) if types[i] == "full")


def _index_pattern(fields: Fields, num_layers: int) -> list[str] | None:
    pattern = fields.get("index_topk_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= {"F", "S"}:
        return [{"F": "full", "S": "shared"}[letter] for letter in pattern]
    if pattern is not None:
        raise fields.error("index_topk_pattern", "{key} should use only the letters F and S.")
    period = fields.maybe_whole("index_period", "index_topk_freq")
    if period is None:
        return None
    offset = fields.whole(
        "index_offset", "index_skip_topk_offset", minimum=0, assume=2, because="class"
    )
    return ["full" if max(i - offset + 1, 0) % period == 0 else "shared" for i in range(num_layers)]


def _image_tokens(fields: Fields) -> int:
    """Image tokens the cross-attention of Llama 3.2 Vision reads: 4 tiles of 1,601."""
    tokens = 4 * 1601
    fields.record("window", tokens, Source.ASSUMPTION, "4 tiles of (560 ÷ 14)² + 1 patches")
    return tokens


def _read_blocks(
    fields: Fields, model_type: str, blocks: object, num_layers: int, reading: Reading
) -> None:
    """Searched architectures (Nemotron-NAS): each block says how many heads share a key."""
    if not isinstance(blocks, list) or len(blocks) != num_layers:
        raise fields.error(
            "block_configs", f"{{key}} should list {num_layers} blocks, one a layer."
        )
    heads = attention_heads(fields)
    width = head_dim(fields, model_type, heads)
    fields.used.add("num_key_value_heads")
    fields.record("num_kv_heads", "by layer", Source.CONFIG, fields.name("block_configs"))
    for i, block in enumerate(blocks):
        groups = [_block(fields, block, i, heads, width)]
        reading.layers.append(groups)
        reading.low.append(groups)


def _block(fields: Fields, block: object, i: int, heads: int, width: int) -> LayerGroup:
    name = f"block_configs[{i}].attention"
    attention = block.get("attention") if isinstance(block, Mapping) else None
    if not isinstance(attention, Mapping):
        raise fields.error(name, "{key} should be an object.")
    if attention.get("no_op") or attention.get("replace_with_linear"):
        return LayerGroup(LayerKind.NONE, 1)
    shared = attention.get("n_heads_in_group")
    if isinstance(shared, bool) or not isinstance(shared, int) or not 0 < shared <= heads:
        raise fields.error(
            name, f"{{key}}.n_heads_in_group should lie between 1 and {heads}, not {shown(shared)}."
        )
    kv_heads = heads // shared
    window = attention.get("window_length")
    if isinstance(window, int) and not isinstance(window, bool) and window > 0:
        return LayerGroup(LayerKind.SLIDING_WINDOW, 1, kv_heads, width, width, window=window)
    return LayerGroup(LayerKind.FULL, 1, kv_heads, width, width)


def _read_encoder_decoder(
    fields: Fields, model_type: str, num_layers: int, reading: Reading
) -> None:
    """Keys and values of the text written so far, and of the encoder's output, in every layer."""
    heads = fields.whole(
        "num_attention_heads", "decoder_attention_heads", "num_heads", "num_attention_heads"
    )
    width = head_dim(fields, model_type, heads)
    fields.record("num_kv_heads", heads, Source.CONFIG, "one for each attention head")
    positions = fields.maybe_whole(
        "window", "max_source_positions", "max_encoder_position_embeddings"
    )
    if positions is None:
        positions = fields.whole(
            "window",
            "max_position_embeddings",
            "n_positions",
            assume=512,
            because="the length T5 was trained on",
        )
        reading.warnings.append(
            f"The encoder is taken to be full, {positions:,} tokens; a shorter input needs less."
        )
    own = LayerGroup(LayerKind.FULL, 1, heads, width, width)
    cross = LayerGroup(LayerKind.CROSS_ATTENTION, 1, heads, width, width, window=positions)
    for _ in range(num_layers):
        reading.layers.append([own, cross])
        reading.low.append([own, cross])


def _share(fields: Fields, num_layers: int, reading: Reading) -> None:
    """Layers that read another layer's keys and values and store none."""
    shared = fields.maybe_whole("shared_layers", "num_kv_shared_layers", minimum=0) or 0
    if shared >= num_layers:
        raise fields.error(
            "num_kv_shared_layers", f"{{key}} is {shared}, of {num_layers} layers in all."
        )
    owners = fields.numbers("kv_source_layers")
    sharing = set(range(num_layers - shared, num_layers))
    if owners is not None:
        if len(owners) < num_layers:
            raise fields.error("kv_source_layers", f"{{key}} should list {num_layers} layers.")
        sharing |= {i for i in range(num_layers) if owners[i] != i}
    if len(sharing) >= num_layers:
        raise fields.error("kv_source_layers", "{key}: at least one layer must store its own keys.")
    for i in sharing:
        for layers in (reading.layers, reading.low):
            layers[i] = [LayerGroup(LayerKind.SHARED, 1)]


def _judge_unused(fields: Fields, reading: Reading) -> None:
    """Refuse, or give a range, where a key that speaks of state was not understood."""
    known = fields.model_class.state_keys
    for key in sorted(fields.unused()):
        if key in HARMLESS or key.startswith(("mtp_", "use_", "moe_", "mlp_")):
            continue
        if SMELLS_OF_STATE.search(key) and key not in known:
            raise fields.error(
                key,
                "The config has {key}, which is not known of "
                f"{fields.model_class.model_type} models, so what it stores would be a guess.",
            )
        if key == "sliding_window":
            _judge_window(fields, reading)


def _judge_window(fields: Fields, reading: Reading) -> None:
    """A window in a type that is not known to use one: with it or without it."""
    window = fields.whole("window", "sliding_window")
    reading.low = [
        [
            replace(group, kind=LayerKind.SLIDING_WINDOW, window=window)
            if group.kind is LayerKind.FULL
            else group
            for group in groups
        ]
        for groups in reading.low
    ]
    reading.uncertain.append(
        Uncertainty(
            fields.name("sliding_window"),
            f"{window:,} tokens, but {fields.model_class.model_type} layers are not known to slide",
        )
    )


def _assemble(
    config: Mapping[str, object],
    fields: Fields,
    top_type: str,
    name: str,
    dtype: str | None,
    reading: Reading,
) -> Architecture:
    layers = _grouped(reading.layers, fields)
    low = _grouped(reading.low, fields)
    if not any(group.kind not in (LayerKind.NONE, LayerKind.SHARED) for group in layers):
        raise fields.error("layer_types", "{key}: no layer keeps anything, which cannot be right.")
    return Architecture(
        model_type=top_type,
        layers=layers,
        name=name or _name(config),
        num_layers=len(reading.layers),
        num_attention_heads=fields.maybe_whole("num_attention_heads", "num_attention_heads") or 0,
        hidden_size=fields.maybe_whole("hidden_size", "hidden_size", "n_embd", "d_model") or 0,
        model_dtype=dtype,
        kv_dtype=_kv_dtype(config, fields),
        max_context=_context(fields),
        draft_layers=_draft_layers(fields),
        low_layers=low if reading.uncertain else None,
        uncertain=tuple(reading.uncertain),
        provenance=tuple(fields.sources.values()),
        warnings=tuple(reading.warnings + _warnings(fields, dtype, layers)),
    )


def _context(fields: Fields) -> int | None:
    for key in CONTEXT:
        value = fields.values.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 10**9:
            fields.record("max_context", value, Source.CONFIG, fields.name(key))
            return value
    for key in CONTEXT:
        value = fields.model_class.default(key)
        if isinstance(value, int) and fields.path and value > 0:
            fields.record("max_context", value, Source.CLASS_DEFAULT, fields.model_class.source)
            return value
    return None


def _draft_layers(fields: Fields) -> int:
    for key in DRAFT:
        value = fields.values.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_LAYERS:
            return value
    return 0


def _warnings(fields: Fields, dtype: str | None, layers: tuple[LayerGroup, ...]) -> list[str]:
    found = []
    if dtype is None and any(group.kind is LayerKind.RECURRENT for group in layers):
        found.append("The config names no dtype; BF16 is assumed for convolution states.")
    draft = _draft_layers(fields)
    if draft:
        found.append(
            f"{draft} draft layer{'s' if draft > 1 else ''} for speculative decoding "
            "not counted: an engine stores them only when it drafts."
        )
    if any(group.tokens_per_entry > 1 for group in layers):
        found.append(
            "Compressed layers also buffer up to one unfinished entry, and engines pad their pools "
            "by much more (vllm-project/vllm#51041)."
        )
    return found


def _name(config: Mapping[str, object]) -> str:
    name = config.get("_name_or_path")
    return (
        name
        if isinstance(name, str) and len(name) < 200 and not name.startswith(("/", "."))
        else ""
    )


GROUP_FIELDS: Mapping[LayerKind, tuple[str, ...]] = {
    LayerKind.FULL: (
        "num_kv_heads",
        "head_dim",
        "value_head_dim",
        "global_head_dim",
        "global_kv_heads",
    ),
    LayerKind.SLIDING_WINDOW: (
        "num_kv_heads",
        "head_dim",
        "window_kv_heads",
        "window_head_dim",
        "window_value_head_dim",
        "window",
    ),
    LayerKind.CHUNKED: ("num_kv_heads", "head_dim", "window"),
    LayerKind.LATENT: ("latent_rank", "rope_dim"),
    LayerKind.SPARSE_INDEX: ("index_head_dim", "index_layers"),
    LayerKind.CROSS_ATTENTION: ("num_kv_heads", "head_dim", "window"),
    LayerKind.SHARED: ("shared_layers",),
    LayerKind.NONE: (),
    LayerKind.RECURRENT: (
        "state_heads",
        "key_heads",
        "state_head_dim",
        "key_dim",
        "value_dim",
        "state_width",
        "state_groups",
        "state_size",
        "expand",
        "conv_kernel",
        "state_dtype",
    ),
}
"""Which of the fields read make up a group of each kind."""


def _grouped(layers: Iterable[list[LayerGroup]], fields: Fields) -> tuple[LayerGroup, ...]:
    """Equal layers put together, in the order of their first appearance."""
    ids: dict[LayerGroup, list[int]] = {}
    for i, groups in enumerate(layers):
        for group in groups:
            ids.setdefault(group, []).append(i)
    return tuple(
        replace(
            group,
            count=len(where),
            layer_ids=tuple(where),
            provenance=tuple(
                fields.sources[each]
                for each in ("schedule", *GROUP_FIELDS[group.kind])
                if each in fields.sources
            ),
        )
        for group, where in ids.items()
    )
