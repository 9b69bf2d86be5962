"""Telling a model's config.json from everything else people paste by mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvcore.config_json.classes import ENCODERS, is_without_generation
from kvcore.config_json.errors import ConfigError
from kvcore.json_text import loads

LARGEST_TEXT = 1_000_000
"""Bytes. The largest config.json met so far has 59,000."""

DEEPEST = 50
"""Objects and lists inside one another; real configs have fewer than ten."""

PASTE_INSTEAD = "Paste the config.json that lies beside the model's weights."


def parse(text: str | bytes) -> dict:
    """The JSON object in a pasted or uploaded text.

    Raises ConfigError, saying what the text is instead, when it is not one.
    """
    if isinstance(text, bytes):
        text = _decoded(text)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LARGEST_TEXT:
        raise ConfigError(
            f"This is {size / 1e6:.1f} MB, and a config.json is a few kilobytes. It may be a "
            f"tokenizer or a list of weights. {PASTE_INSTEAD}"
        )
    text = text.strip().lstrip("\ufeff")
    if not text:
        raise ConfigError(f"There is nothing here yet. {PASTE_INSTEAD}")
    if text.startswith("<"):
        raise ConfigError(
            "This is a web page, not JSON. Open the file on the hub, press “raw”, and paste that."
        )
    try:
        value = loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"This is not JSON{_place(error)}. {PASTE_INSTEAD}") from None
    require_flat(value)
    return require_object(value)


def require_flat(value: object) -> None:
    """Raise ConfigError for a value nested so deep that writing it out again would fail."""
    level, depth = [value] if isinstance(value, (Mapping, list)) else [], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ConfigError(
                f"Objects and lists lie more than {DEEPEST} deep inside one another here, which no "
                f"config.json does. {PASTE_INSTEAD}"
            )
        inner = [each.values() if isinstance(each, Mapping) else each for each in level]
        level = [v for values in inner for v in values if isinstance(v, (Mapping, list))]


def _decoded(data: bytes) -> str:
    if len(data) > LARGEST_TEXT:
        raise ConfigError(
            f"This file has {len(data) / 1e6:.1f} MB, and a config.json is a few kilobytes. It may "
            f"be weights or a tokenizer. {PASTE_INSTEAD}"
        )
    if data.startswith(b"GGUF"):
        raise ConfigError(
            "This is a GGUF file, weights and all. Paste the config.json of the model it was made "
            "from."
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"This file is not text. {PASTE_INSTEAD}") from None


def _place(error: Exception) -> str:
    line = getattr(error, "lineno", None)
    return f" (line {line}: {error.msg.lower()})" if line else ""


def require_object(value: object) -> dict:
    """The value itself when it is a JSON object; raises ConfigError otherwise."""
    if isinstance(value, Mapping):
        return dict(value)
    kind = {list: "a list", str: "a piece of text", bool: "a single true or false"}.get(
        type(value), "a single value"
    )
    raise ConfigError(f"This is {kind}, and a config.json is an object in braces. {PASTE_INSTEAD}")


def refuse_other_files(config: Mapping[str, object]) -> None:
    """Raise ConfigError when the object is a file of another kind, saying which."""
    for looks_like, sentence, key in _OTHER_FILES:
        if looks_like(config):
            raise ConfigError(sentence(config), key)


def refuse_unfit(model_type: str, config: Mapping[str, object]) -> None:
    """Raise ConfigError for types that keep no cache of keys and values while they run."""
    if model_type in ENCODERS and config.get("is_decoder") is not True:
        raise ConfigError(
            f"“model_type” is {model_type}: an encoder, which reads its text all at once and keeps "
            "no KV cache. Paste the config of a model that generates text.",
            "model_type",
        )
    if is_without_generation(model_type):
        raise ConfigError(
            f"“model_type” is {model_type}, which does not generate text a token at a time, so it "
            "keeps no KV cache. Paste the config of a language model.",
            "model_type",
        )


def _adapter(config: Mapping) -> str:
    base = config.get("base_model_name_or_path")
    base = f" ({base})" if isinstance(base, str) and base else ""
    return (
        "This is a LoRA adapter's config: it says nothing of the model it adapts. Paste the "
        f"config.json of its base model{base}."
    )


def _diffusion(config: Mapping) -> str:
    return (
        "This is a diffusion model's config: such models denoise a whole picture at once and keep "
        "no KV cache. Paste the config.json of a language model."
    )


def _has(*keys: str) -> Callable[[Mapping], bool]:
    return lambda config: any(key in config for key in keys)


def _generation(config: Mapping) -> bool:
    settings = {"temperature", "top_p", "top_k", "do_sample", "max_new_tokens", "max_length"}
    return (
        "model_type" not in config
        and "architectures" not in config
        and bool(settings & set(config))
    )


_OTHER_FILES = (
    (_has("peft_type", "lora_alpha"), _adapter, "peft_type"),
    (_has("_class_name", "_diffusers_version"), _diffusion, "_class_name"),
    (
        _has("weight_map"),
        lambda _: f"This is the index of a model's weight files. {PASTE_INSTEAD}",
        "weight_map",
    ),
    (
        lambda config: (
            "model_type" not in config
            and ("tokenizer_class" in config or "added_tokens_decoder" in config)
        ),
        lambda _: f"This is a tokenizer's config. {PASTE_INSTEAD}",
        "tokenizer_class",
    ),
    (
        lambda config: (
            "model_type" not in config
            and ("image_processor_type" in config or "feature_extractor_type" in config)
        ),
        lambda _: f"This is the config of a picture or sound processor. {PASTE_INSTEAD}",
        "image_processor_type",
    ),
    (
        lambda config: "model_type" not in config and "n_kv_heads" in config and "dim" in config,
        lambda _: (
            "This is the params.json of an original release. Paste the config.json of the model's "
            "transformers version."
        ),
        "dim",
    ),
    (
        _generation,
        lambda _: f"This is a generation_config.json: settings for sampling. {PASTE_INSTEAD}",
        "temperature",
    ),
)
