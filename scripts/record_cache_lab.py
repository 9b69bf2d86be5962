"""Record what the cache lab shows before any model is loaded.

Writes kvcore/data/recordings/cache_lab.json: a request decoded token by token, its prompt found in
the pool and its window smaller than its text, and the timestamp experiment. Run with

    python -m scripts.record_cache_lab
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from dataclasses import asdict
from datetime import datetime

from kvcore import recordings
from kvcore.decoding import load
from kvcore.decoding.known import ORIGINS
from kvcore.lab.experiment import timestamp_experiment
from kvcore.lab.prompts import QUESTION, SYSTEM, compose
from kvcore.lab.run import Lab, Policy, Settings
from kvcore.lab.trace import to_json

STEPS = 40
SETTINGS = Settings(num_blocks=33)
POLICY = Policy("sinks", {"sinks": 4, "window": 176})


def main() -> None:
    model = load("smollm2")
    prompt = model.encode(compose(model, SYSTEM, QUESTION))
    lab = Lab(model, SETTINGS, POLICY)
    for _ in range(2):  # the first one warms the machine up, the second fills the pool
        lab.start_over()
        lab.ask(prompt)
    trace = lab.ask(prompt)
    for _ in range(STEPS):
        lab.step()
    experiment = timestamp_experiment(
        model, SYSTEM, QUESTION, started=datetime(2026, 11, 30, 10, 41, 7)
    )
    data = {"trace": to_json(trace), "experiment": [asdict(asked) for asked in experiment]}
    weights = f"SmolLM2-135M-Instruct in fp32, {ORIGINS[model.source]}"
    label = recordings.label(SETTINGS.threads, weights)
    print(recordings.write("cache_lab", label, data))


if __name__ == "__main__":
    main()
