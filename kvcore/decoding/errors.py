"""What can go wrong when a model is loaded or run. Every message is one sentence for the reader."""


class DecodingError(Exception):
    """Base of the errors below; `str(error)` can be shown as it is."""


class LoadError(DecodingError):
    """A model or tokenizer cannot be had, and no stand-in would be honest."""


class NoRoomError(LoadError):
    """The model does not fit into the memory that is free; nor would any stand-in of its shape."""


class PromptError(DecodingError, ValueError):
    """A prompt or a length that the model cannot run."""


class CacheError(DecodingError, ValueError):
    """A cache used in a way that would have given a wrong answer without a word."""


class SettingsError(DecodingError, ValueError):
    """A temperature, seed or number that a run cannot have."""
