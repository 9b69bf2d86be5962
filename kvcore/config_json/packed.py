"""A config, or a few lines of a log, as text short enough for a link."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping

from kvcore.config_json.errors import ConfigError
from kvcore.config_json.identify import require_flat, require_object
from kvcore.json_text import loads

LONGEST = 4000
"""Characters a link may spend on one packed text; browsers and proxies take about 8,000 in all."""

LARGEST_UNPACKED = 1_000_000

NOT_NEEDED = frozenset(
    {
        "auto_map",
        "id2label",
        "label2id",
        "audio_config",
        "vision_config",
        "rope_scaling",
        "rope_parameters",
        "task_specific_params",
        "transformers_version",
        "_name_or_path",
    }
)
"""Keys, mostly long, that no cache depends on."""

CACHE_KEYS = ("kv_cache_scheme", "kv_cache_quant_algo")
"""What a link keeps of a quantization_config: the rest lists weights."""


def pack(config: Mapping[str, object]) -> str | None:
    """The config as URL-safe text, None when it does not fit a link."""
    return pack_text(json.dumps(_shortened(config), separators=(",", ":")))


def unpack(packed: str) -> dict:
    """The config in a link. Raises ConfigError when the text has been cut or changed."""
    text = unpack_text(packed)
    try:
        config = loads(text)
    except (ValueError, RecursionError):
        raise ConfigError("The config in this link is damaged. Paste it again.") from None
    require_flat(config)
    return require_object(config)


def pack_text(text: str) -> str | None:
    """Compressed and written in URL-safe letters, None when longer than LONGEST."""
    squeezed = zlib.compress(text.encode("utf-8", "replace"), 9)
    packed = base64.urlsafe_b64encode(squeezed).decode("ascii").rstrip("=")
    return packed if len(packed) <= LONGEST else None


def unpack_text(packed: str) -> str:
    """The text in a link. Raises ConfigError when it has been cut or changed."""
    damaged = ConfigError("The text in this link is damaged or was cut off. Paste it again.")
    if len(packed) > LONGEST:
        raise damaged
    try:
        squeezed = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        reader = zlib.decompressobj()
        data = reader.decompress(squeezed, LARGEST_UNPACKED)
        if not reader.eof:
            raise damaged
        return data.decode("utf-8")
    except (ValueError, binascii.Error, zlib.error):
        raise damaged from None


def _shortened(config: Mapping[str, object]) -> dict:
    return {
        key: _value(key, value)
        for key, value in config.items()
        if key not in NOT_NEEDED and not key.endswith("_token_id")
    }


def _value(key: str, value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    if key == "quantization_config":
        return {part: value[part] for part in CACHE_KEYS if part in value}
    return _shortened(value)
