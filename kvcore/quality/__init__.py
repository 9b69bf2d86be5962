"""What a smaller cache costs in quality: perplexity, divergence and recall, measured.

    from kvcore.decoding import load
    from kvcore.quality import compare, standard_treatments
    model = load("smollm2")
    for score in compare(model, model.encode(text), standard_treatments(budget=256)):
        print(score.treatment.name, score.cache_bytes, score.perplexity, score.divergence)

A `Treatment` says what is done to the cache; `compare` scores treatments on one text, `recall`
asks for facts hidden in it. torch is imported when a model runs, not before.
"""

from kvcore.quality.recall import Haystack, Recall, haystack, hit_rates, recall
from kvcore.quality.scoring import LEAST_SCORED, Score, compare, largest_budget
from kvcore.quality.texts import (
    PYTHON_TOPICS,
    TextError,
    check_pasted,
    python_text,
    source_of,
)
from kvcore.quality.treatments import (
    FULL,
    REFERENCE,
    Treatment,
    heavy_hitters,
    pooled_treatments,
    rounded,
    sinks_and_window,
    standard_treatments,
    window,
)

__all__ = [
    "FULL",
    "LEAST_SCORED",
    "PYTHON_TOPICS",
    "REFERENCE",
    "Haystack",
    "Recall",
    "Score",
    "TextError",
    "Treatment",
    "check_pasted",
    "compare",
    "haystack",
    "heavy_hitters",
    "hit_rates",
    "largest_budget",
    "pooled_treatments",
    "python_text",
    "recall",
    "rounded",
    "sinks_and_window",
    "source_of",
    "standard_treatments",
    "window",
]
