"""Token counts offline, and how far they can be trusted for a given model.

The vocabularies ship inside quicktok (MIT): o200k and cl100k are OpenAI's, qwen3 and llama3 those
families' own. No other provider publishes a current tokenizer, so everyone else's count is an
estimate and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from kvcore.costs.overlay import bare_name

LARGEST_TEXT = 4_000_000
"""Characters of one pasted text; about four times the longest prompt any model reads."""


class TextTooLong(ValueError):
    """The text is longer than any prompt; the message says what is accepted."""


@dataclass(frozen=True)
class Counter:
    """Counts tokens with one vocabulary. `exact`: whether it is the model's own."""

    vocabulary: str
    exact: bool
    sentence: str

    def encode(self, text: str) -> list[int]:
        """Token ids; marks of special tokens count as plain text. Raises TextTooLong."""
        if len(text) > LARGEST_TEXT:
            raise TextTooLong(
                f"The text has {len(text):,} characters; at most {LARGEST_TEXT:,} can be compared."
            )
        clean = text.encode("utf-8", errors="replace").decode("utf-8")
        return list(_encoding(self.vocabulary).encode_ordinary(clean))

    def count(self, text: str) -> int:
        return len(self.encode(text))


@cache
def _encoding(vocabulary: str) -> Any:
    import quicktok

    return quicktok.get_encoding(vocabulary)


_EXACT = (
    (("gpt-oss",), "o200k_harmony"),
    (("gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "chatgpt-4o", "o1", "o3", "o4"), "o200k_base"),
    (("gpt-4", "gpt-3.5"), "cl100k_base"),
    (("qwen3-", "qwen2.5", "qwen2-"), "qwen3"),
    (("llama-3", "llama3", "meta-llama-3", "llama-v3"), "llama3"),
)


def counter_for(model: str | None) -> Counter:
    """The best offline vocabulary for a model, and one sentence on how exact it is."""
    name = bare_name(model or "")
    for starts, vocabulary in _EXACT:
        if name.startswith(starts):
            return Counter(
                vocabulary,
                True,
                f"Counted with {model}'s own vocabulary ({vocabulary}): exact for the text; the "
                "provider adds a few tokens around every message.",
            )
    if name.startswith("gpt-"):
        return Counter(
            "o200k_base",
            False,
            f"An estimate: OpenAI has not said that {model} still uses o200k; counts should be "
            "within a few percent.",
        )
    if name.startswith("claude"):
        return Counter(
            "o200k_base",
            False,
            "An estimate with OpenAI's o200k: the tokenizer of today's Claude models is not "
            "public. The one Anthropic once published gave 11 % more on the same text.",
        )
    return Counter(
        "o200k_base",
        False,
        f"An estimate with OpenAI's o200k: no offline tokenizer of {model or 'this model'} is at "
        "hand; 10 to 20 % either way is usual. Usage records are exact.",
    )


def common_prefix(first: Sequence[Any], second: Sequence[Any]) -> int:
    """How many leading items two sequences share."""
    shortest = min(len(first), len(second))
    if first[:shortest] == second[:shortest]:
        return shortest
    low, high = 0, shortest
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
