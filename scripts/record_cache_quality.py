"""Record what the cache quality page shows at first sight: `make record`.

Every treatment on 1,024 tokens of the Python reference, and recall in two texts of 800 tokens.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kvcore import recordings
from kvcore.decoding import load
from kvcore.decoding.known import ORIGINS
from kvcore.quality import (
    PYTHON_TOPICS,
    Plan,
    python_text,
    recall_rows,
    run,
    score_rows,
    source_of,
    standard_treatments,
)

TITLE = next(iter(PYTHON_TOPICS))


def main() -> None:
    model = load("smollm2", sources=("cache", "wheel"))
    chosen = tuple(treatment.name for treatment in standard_treatments())
    plan = Plan(chosen, tokens=1024, texts=2)
    text = python_text(TITLE)
    results = []
    for result in run(model, text, plan):
        results.append(result)
        print(f"{len(results)} of {plan.steps}: {result.treatment.name}", flush=True)
    weights = f"SmolLM2-135M-Instruct in fp32, {ORIGINS[model.source]}"
    path = recordings.write(
        "cache_quality",
        recordings.label(1, weights),
        {
            "text": source_of(TITLE),
            "python": platform.python_version(),
            "model": "smollm2",
            "layers": model.config.num_layers,
            "kv_heads": model.config.num_kv_heads,
            "head_dim": model.config.head_dim,
            "budget": plan.budget,
            "tokens": plan.tokens,
            "recall_tokens": plan.recall_tokens,
            "scores": score_rows(results),
            "recall": recall_rows(results),
            "texts": [
                {"seed": stack.seed, "text": stack.text}
                for stack in plan.haystacks(model.encode, text)
            ],
        },
    )
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
