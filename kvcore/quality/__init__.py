"""What a smaller cache costs in quality: perplexity, divergence and recall, measured.

    from kvcore.decoding import load
    from kvcore.quality import compare, standard_treatments
    model = load("smollm2")
    for score in compare(model, model.encode(text), standard_treatments(budget=256)):
        print(score.treatment.name, score.cache_bytes, score.perplexity, score.divergence)

A `Treatment` says what is done to the cache; `compare` scores treatments on one text, `recall`
asks for facts hidden in it. torch is imported when a model runs, not before.
"""

from kvcore.quality.plan import (
    Plan,
    hits_by_place,
    recall_rows,
    run,
    score_rows,
)
from kvcore.quality.recall import PLACES, Haystack, Recall, haystack, hit_rates, recall
from kvcore.quality.scoring import LEAST_SCORED, Score, compare, largest_budget
from kvcore.quality.texts import (
    PYTHON_TOPICS,
    TextError,
    check_pasted,
    python_text,
    source_of,
)
from kvcore.quality.treatments import (
    FORGETS,
    FULL,
    KEEPS,
    REFERENCE,
    ROUNDS,
    SHARES,
    Treatment,
    heavy_hitters,
    pooled_treatments,
    rounded,
    sinks_and_window,
    standard_treatments,
    window,
)

__all__ = [
    "FORGETS",
    "FULL",
    "KEEPS",
    "LEAST_SCORED",
    "PLACES",
    "PYTHON_TOPICS",
    "REFERENCE",
    "ROUNDS",
    "SHARES",
    "Haystack",
    "Plan",
    "Recall",
    "Score",
    "TextError",
    "Treatment",
    "check_pasted",
    "compare",
    "haystack",
    "heavy_hitters",
    "hit_rates",
    "hits_by_place",
    "largest_budget",
    "pooled_treatments",
    "python_text",
    "recall",
    "recall_rows",
    "rounded",
    "run",
    "score_rows",
    "sinks_and_window",
    "source_of",
    "standard_treatments",
    "window",
]
