"""Record what the sharing-heads page shows at first sight: `make record`.

Timings of one decode step for four context lengths, and SmolLM2 with its KV heads mean-pooled.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kvcore import recordings
from kvcore.attention import Shape, measure, timings, variants
from kvcore.decoding import load
from kvcore.gqa import TIMED_CONTEXTS, timing_rows
from kvcore.quality import (
    PYTHON_TOPICS,
    compare,
    pooled_treatments,
    python_text,
    score_rows,
    source_of,
)

TITLE = next(iter(PYTHON_TOPICS))
THREADS = 1
ROUNDS = 9


def timed() -> list[dict[str, object]]:
    rows = []
    for context in TIMED_CONTEXTS:
        shape = Shape(4, 32, 128, context)
        lines = timings(list(measure(shape, variants(32, [8, 1]), ROUNDS, THREADS)))
        rows += timing_rows(shape, lines, THREADS)
        print(f"{context} tokens", flush=True)
    return rows


def pooled() -> dict[str, object]:
    model = load("smollm2", sources=("cache", "wheel"))
    config = model.config
    ids = model.encode(python_text(TITLE))[:1024]
    treatments = pooled_treatments(config.num_layers, config.num_kv_heads)
    scores = []
    for score in compare(model, ids, treatments, scored_from=64):
        scores.append(score)
        print(score.treatment.name, flush=True)
    return {
        "model": f"SmolLM2-135M-Instruct ({model.source})",
        "text": source_of(TITLE),
        "query_heads": config.num_heads,
        "kv_heads": config.num_kv_heads,
        "layers": config.num_layers,
        "scores": score_rows(scores),
    }


def main() -> None:
    timing, pooling = timed(), pooled()
    weights = "random keys and values for timing, SmolLM2-135M-Instruct for pooling"
    label = recordings.label(THREADS, weights)
    print(f"wrote {recordings.write('gqa', label, {'timing': timing, 'pooling': pooling})}")


if __name__ == "__main__":
    main()
