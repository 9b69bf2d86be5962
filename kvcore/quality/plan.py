"""One run of the cache quality page, and the plain rows it is shown, exported and recorded as."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcore.quality.recall import PLACES, Haystack, Recall, haystack, recall
from kvcore.quality.scoring import LEAST_SCORED, Score, compare, largest_budget
from kvcore.quality.texts import too_short
from kvcore.quality.treatments import FULL, Treatment, standard_treatments

if TYPE_CHECKING:
    from kvcore.decoding.model import Model

Result = Score | Recall
Row = dict[str, object]

LATE_SHARE = 0.4
"""The late fact stands this share of the budget before the question, so that windows hold it."""


@dataclass(frozen=True)
class Plan:
    """What to measure: how much text, which treatments, how many texts with hidden facts.

    tokens: of text for perplexity. recall_tokens: of each text with facts. texts: how many of
    those, each with its seed. A name in `chosen` that is not a treatment is ignored.
    """

    chosen: tuple[str, ...]
    budget: int = 256
    sinks: int = 4
    tokens: int = 1024
    recall_tokens: int = 800
    texts: int = 1

    @property
    def treatments(self) -> list[Treatment]:
        available = standard_treatments(self.budget, self.sinks)
        return [each for each in available if each == FULL or each.name in self.chosen]

    @property
    def least_tokens(self) -> int:
        """Tokens the text must have for every budget to fill and something to be left."""
        return largest_budget(self.treatments) + LEAST_SCORED + 1

    @property
    def steps(self) -> int:
        """Results a whole run yields: the reference, a score each, three questions each a text."""
        count = len(self.treatments)
        return 1 + count + len(PLACES) * count * self.texts

    def haystacks(self, encode: Callable[[str], list[int]], text: str) -> list[Haystack]:
        late = min(int(LATE_SHARE * self.budget), self.recall_tokens // 4)
        return [
            haystack(encode, text, self.recall_tokens, late, seed) for seed in range(self.texts)
        ]


def run(
    model: Model, text: str, plan: Plan, stopping: Callable[[], bool] = lambda: False
) -> Iterator[Result]:
    """Scores first, then recall. Raises TextError where the text is too short for either."""
    ids = model.encode(text)
    if len(ids) < plan.least_tokens:
        raise too_short(len(ids), plan.least_tokens)
    stacks = plan.haystacks(model.encode, text)
    yield from compare(model, ids[: plan.tokens], plan.treatments, stopping=stopping)
    if not stopping():
        yield from recall(model, stacks, plan.treatments, stopping)


def score_rows(results: Sequence[Result]) -> list[Row]:
    """A plain row for each score among the results."""
    scores = [result for result in results if isinstance(result, Score)]
    full = next((score for score in scores if score.treatment == FULL), None)
    return [
        {
            "treatment": score.treatment.name,
            "kind": score.treatment.kind,
            "cache_bytes": score.cache_bytes,
            "share_of_full": score.cache_bytes / full.cache_bytes if full else None,
            "perplexity": score.perplexity,
            "divergence": score.divergence,
            "unchanged": score.unchanged,
            "tokens": score.tokens,
            "scored": score.tokens - score.scored_from,
            "key_format": score.treatment.key_format,
            "value_format": score.treatment.value_format,
            "seconds": score.seconds,
        }
        for score in scores
    ]


def recall_rows(results: Sequence[Result]) -> list[Row]:
    """A plain row for each question asked."""
    return [
        {
            "treatment": result.treatment.name,
            "kind": result.treatment.kind,
            "seed": result.seed,
            "place": result.fact.place,
            "distance": result.fact.distance,
            "fact": result.fact.sentence,
            "question": result.fact.question.strip(),
            "code": result.fact.code,
            "answer": result.answer,
            "hit": result.hit,
            "cache_bytes": result.cache_bytes,
        }
        for result in results
        if isinstance(result, Recall)
    ]


def hits_by_place(rows: Sequence[Row]) -> list[Row]:
    """Hits and questions for each treatment and place, in the order they were asked."""
    counted: dict[tuple[object, object], Row] = {}
    for row in rows:
        key = (row["treatment"], row["place"])
        cell = counted.setdefault(
            key, {"treatment": key[0], "place": key[1], "hits": 0, "asked": 0, "distance": 0}
        )
        cell["hits"] += bool(row["hit"])
        cell["asked"] += 1
        cell["distance"] += (row["distance"] - cell["distance"]) / cell["asked"]
    for cell in counted.values():
        cell["share"] = cell["hits"] / cell["asked"]
        cell["shown"] = f"{cell['hits']} of {cell['asked']}"
    return list(counted.values())
