"""What a config that cannot be read says about itself."""

from __future__ import annotations


class ConfigError(ValueError):
    """A config.json that cannot be sized: one sentence, and the key it turns on.

    `key` is the name in the config (with its section, as in `text_config.head_dim`), or "" when the
    text is no model config at all.
    """

    def __init__(self, sentence: str, key: str = "") -> None:
        super().__init__(sentence)
        self.key = key
