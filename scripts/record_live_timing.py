"""Records the run that the live timing page shows at a first visit: 1,000 tokens each way.

Takes half an hour to an hour on two cores. Uses SmolLM2, so that the reply can be read anywhere.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kvcore import recordings
from kvcore.decoding.known import ORIGINS
from kvcore.decoding.run import RECORDING, Run, Settings

SETTINGS = Settings(
    model="smollm2",
    prompt=(
        "The librarian never read a book twice. She wrote a card for every page, and when a "
        "visitor asked a question,"
    ),
    new_tokens=1_000,
    temperature=1.0,
)


def main() -> None:
    run = Run(SETTINGS)
    for pair in run.measure():
        if pair.index % 50 == 0:
            print(f"{pair.index:,} of {SETTINGS.new_tokens:,}", flush=True)
    weights = f"SmolLM2-135M-Instruct in fp32, {ORIGINS[run.facts.source]}"
    recordings.write(RECORDING, recordings.label(SETTINGS.threads, weights), run.as_data())


if __name__ == "__main__":
    main()
