"""A Hugging Face config.json → Architecture, or a ConfigError that names the key."""

from kvcore.config_json.errors import ConfigError
from kvcore.config_json.hub import fetch_config, repository_id
from kvcore.config_json.identify import parse
from kvcore.config_json.packed import pack, pack_text, unpack, unpack_text
from kvcore.config_json.reader import read_config

__all__ = [
    "ConfigError",
    "fetch_config",
    "pack",
    "pack_text",
    "parse",
    "read_config",
    "repository_id",
    "unpack",
    "unpack_text",
]
