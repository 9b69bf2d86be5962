"""A Hugging Face config.json → Architecture, or a ConfigError that names the key."""

from kvcore.config_json.errors import ConfigError
from kvcore.config_json.identify import parse
from kvcore.config_json.reader import read_config

__all__ = ["ConfigError", "parse", "read_config"]
