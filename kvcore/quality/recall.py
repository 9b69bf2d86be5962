"""Recall by place: codes hidden early, in the middle and late in a text, asked for at its end."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcore.quality.texts import TextError
from kvcore.quality.treatments import Treatment

if TYPE_CHECKING:
    from kvcore.decoding.model import Model
    from kvcore.quality.reader import Reader

PLACES = ("early", "middle", "late")
ANSWER_TOKENS = 10

THINGS = (
    "phone number of the bakery",
    "licence plate of the taxi",
    "secret code of the vault",
    "population of the island",
    "serial number of the piano",
    "ticket number of the opera",
    "weight of the whale in kilograms",
    "account number of the museum",
)


@dataclass(frozen=True)
class Fact:
    """`sentence` stands `distance` tokens before the end; `question` ends where `code` goes."""

    place: str
    thing: str
    code: str
    distance: int

    @property
    def sentence(self) -> str:
        return sentence_of(self.thing, self.code)

    @property
    def question(self) -> str:
        return f"\n\nQuestion: What is the {self.thing}?\nAnswer: The {self.thing} is"


@dataclass(frozen=True)
class Haystack:
    """A text with one fact hidden in each place."""

    seed: int
    text: str
    tokens: int
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Recall:
    """What the model answered, greedily, with its cache treated."""

    treatment: Treatment
    seed: int
    fact: Fact
    answer: str
    cache_bytes: int

    @property
    def hit(self) -> bool:
        """The first number of the answer is the code."""
        found = re.search(r"\d+", self.answer)
        return found is not None and found.group() == self.fact.code


def sentence_of(thing: str, code: str) -> str:
    return f"Remember this: the {thing} is {code}."


def haystack(
    encode: Callable[[str], list[int]], text: str, tokens: int, late: int, seed: int = 0
) -> Haystack:
    """Hide a code near the start, in the middle and about `late` tokens before the end.

    `text` is filler, taken from a place that depends on the seed and cut at sentences to about
    `tokens`. Raises TextError when it is too short, ValueError when the places would not be apart.
    """
    if not 0 < late < tokens // 3:
        raise ValueError(
            f"A late fact {late} tokens from the end needs a text of more than {3 * late} tokens; "
            f"{tokens} were asked for."
        )
    draw = random.Random(seed)
    things = draw.sample(THINGS, 3)
    codes = [str(code) for code in draw.sample(range(10_000, 100_000), 3)]
    facts = [sentence_of(thing, code) for thing, code in zip(things, codes, strict=True)]
    targets = (0.06 * tokens, 0.48 * tokens, tokens - late)
    sized = [(fact, len(encode(fact))) for fact in facts]
    filler = _filler(encode, text, tokens - sum(length for _, length in sized), draw)
    whole = " ".join(_with_facts(filler, sized, targets))
    length = len(encode(whole))
    found = []
    for place, thing, code, fact in zip(PLACES, things, codes, facts, strict=True):
        before = len(encode(whole[: whole.index(fact)]))
        found.append(Fact(place, thing, code, length - before))
    return Haystack(seed, whole, length, tuple(found))


Piece = tuple[str, int]


def _filler(
    encode: Callable[[str], list[int]],
    text: str,
    room: int,
    draw: random.Random,
) -> list[Piece]:
    """Sentences with their lengths in tokens, in the text's order, to fill `room` tokens."""
    sentences = [
        (sentence, len(encode(sentence)))
        for sentence in re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", text))
        if sentence
    ]
    spare = sum(length for _, length in sentences) - room
    if spare < 0:
        raise TextError(
            f"The text has too few words to hide facts in: about {room:,} tokens are needed. "
            "Paste more, or ask for fewer tokens."
        )
    skipped, start = draw.randint(0, spare), 0
    while skipped > 0 and start < len(sentences):
        skipped -= sentences[start][1]
        start += 1
    chosen: list[Piece] = []
    used = 0
    for piece in sentences[start:] + sentences[:start]:
        if used + piece[1] <= room:
            chosen.append(piece)
            used += piece[1]
    return chosen


def _with_facts(
    filler: Sequence[Piece], facts: Sequence[Piece], targets: Sequence[float]
) -> list[str]:
    """Each fact at the break between sentences nearest its target, never at the very start."""
    pieces: list[str] = []
    waiting = list(zip(facts, targets, strict=True))
    used = 0
    for sentence, length in filler:
        while waiting and used and used + length / 2 > waiting[0][1]:
            (fact, fact_length), _ = waiting.pop(0)
            pieces.append(fact)
            used += fact_length
        pieces.append(sentence)
        used += length
    return pieces + [fact for (fact, _), _ in waiting]


def recall(
    model: Model,
    haystacks: Sequence[Haystack],
    treatments: Sequence[Treatment],
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Recall]:
    """Read each text once a treatment, then ask for each fact from the same cache.

    Ends early, between two layers, once `stopping()` is true. Raises what the decoder raises for
    a text that does not fit the model.
    """
    from kvcore.quality.reader import Reader, Stopped

    try:
        for stack in haystacks:
            ids = model.encode(stack.text)
            questions = [model.encode(fact.question) for fact in stack.facts]
            capacity = len(ids) + max(map(len, questions)) + ANSWER_TOKENS
            for treatment in treatments:
                reader = Reader(model, treatment, capacity, stopping)
                reader.read(ids)
                end = reader.mark()
                for fact, question in zip(stack.facts, questions, strict=True):
                    answer = _continue(reader, question, ANSWER_TOKENS)
                    yield Recall(treatment, stack.seed, fact, answer, reader.cache_bytes)
                    reader.rewind(end)
    except Stopped:
        return


def _continue(reader: Reader, question: Sequence[int], tokens: int) -> str:
    """Greedy continuation, until a number is complete or the line ends."""
    written: list[int] = []
    hidden = reader.read(question)
    for _ in range(tokens):
        written.append(int(reader.logits(hidden[-1:]).argmax()))
        if re.search(r"\d\D|\S\s*\n", reader.model.decode(written)):
            break
        hidden = reader.read(written[-1:])
    return reader.model.decode(written).strip().split("\n")[0]


def hit_rates(results: Sequence[Recall]) -> dict[tuple[str, str], tuple[int, int]]:
    """(treatment name, place) → (hits, questions asked)."""
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for result in results:
        key = (result.treatment.name, result.fact.place)
        hits, asked = counts.get(key, (0, 0))
        counts[key] = (hits + result.hit, asked + 1)
    return counts
