"""Text to token ids and back, from a checkpoint's own files or from the best stand-in there is."""

from collections.abc import Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """is_stand_in: True when this is not the model's own vocabulary."""

    is_stand_in: bool

    def encode(self, text: str) -> list[int]: ...

    def decode(self, token_ids: Sequence[int]) -> str: ...
