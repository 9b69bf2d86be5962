"""Prompts of a wanted length that no server has seen before.

They are made of short, common English words, each of which is one token in most vocabularies, so
that a length in words is close to a length in tokens; what counts is the length the server tells.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

_COMMON = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line "
    "end member law car city community name president team minute idea body information back "
    "parent face others level office door health person art war history party result change "
    "morning reason research girl guy moment air teacher force education foot boy age policy "
    "music market sense product process road paper form field river table model value letter "
    "stone north color wood king ship rock church summer winter green blue white black small "
    "large early late long short high low open clear full free"
)
WORDS = tuple(_COMMON.split())

TEMPLATE_TOKENS = 40
"""About what a chat template, its system message and the closing question add to the words."""
FEWEST_WORDS = 16


def words_for(tokens: int) -> int:
    """Words that make a prompt of about so many tokens, template included."""
    return max(FEWEST_WORDS, tokens - TEMPLATE_TOKENS)


def passage(num_words: int, dice: random.Random) -> list[str]:
    """Words drawn at random, so that the very first ones differ from any earlier prompt."""
    return dice.choices(WORDS, k=num_words)


def with_question(words: Sequence[str], dice: random.Random) -> str:
    """The passage, then a question whose word differs each time."""
    return f"{' '.join(words)}\n\nReply with the word {dice.choice(WORDS)}."


def to_count(words: Sequence[str]) -> str:
    """The passage, then a task whose answer is long."""
    return f"{' '.join(words)}\n\nCount upward from one, in words, and do not stop."


def changed_early(words: Sequence[str], place: int, dice: random.Random) -> list[str]:
    """The passage with one character of the word at `place` changed."""
    word = words[place]
    letter = dice.choice([c for c in "bcdfghjklmnpqrstvwxz" if c != word[0]])
    return [*words[:place], letter + word[1:], *words[place + 1 :]]
