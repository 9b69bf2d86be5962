"""Records the example of the page about servers: all experiments on a real engine.

Where vLLM's CPU build has its environment (`make build/engines/.vllm`) it is started twice, with
prefix caching and without; else `transformers serve` stands in, which keeps no prefixes. Takes a
quarter of an hour on two cores with vLLM.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kvcore import recordings
from kvcore.engines.logs import figure_lines, read_log
from kvcore.serving import (
    Budget,
    Client,
    EarlyChange,
    FirstToken,
    Runner,
    Timeouts,
    TokenTime,
    ask_reserved,
    plan,
    policy,
)
from kvcore.serving.experiments import Experiment
from kvcore.serving.recorded import (
    EARLY_CHANGE,
    FIRST_TOKEN,
    RECORDING,
    SMOLLM2_NAME,
    TOKEN_TIME,
    EngineRun,
)
from scripts.engine_server import VLLM_PYTHON, Engine, transformers_serve, vllm_serve

EXPERIMENTS: dict[str, Experiment] = {
    FIRST_TOKEN: FirstToken(lengths=(200, 500, 1_000), repeats=3),
    EARLY_CHANGE: EarlyChange(length=800, repeats=2),
    TOKEN_TIME: TokenTime(contexts=(100, 300, 600), levels=(1, 2, 4), output_tokens=16, repeats=2),
}
PATIENCE = Timeouts(silence=600, answer=900)


def measure(engine: Engine, title: str, name: str) -> EngineRun:
    """All experiments against one running engine."""
    target = policy(None, app_is_local=True).target(engine.url)
    samples = {}
    with Client(target, timeouts=PATIENCE) as client:
        served = client.models()
        owner = served[0].owner if served else ""
        model = next((each for each in served if each.name == engine.model), None)
        reserved = ask_reserved(client, model)
        for kind, experiment in EXPERIMENTS.items():
            budget = Budget(plan(experiment))
            runner = Runner(client, engine.model, budget, owner=owner, dice=random.Random(kind))
            samples[kind] = []
            for sample in runner.samples(experiment):
                samples[kind].append(sample)
                print(f"{title}: {kind}, {budget.requests} of {budget.agreed.requests}", flush=True)
    cores = os.cpu_count() or 1
    busy = os.getloadavg()[0] > cores + 1
    return EngineRun(
        title=title,
        engine=f"{name}, on a machine busy with other work" if busy else name,
        architecture=SMOLLM2_NAME,
        command=engine.command,
        samples=samples,
        facts=tuple(fact for fact in reserved.facts if "/" not in fact.value),
        log="\n".join(figure_lines(engine.log_text().replace(f"{engine.log.parent}/", ""))),
    )


def with_vllm(scratch: Path) -> list[EngineRun]:
    runs = []
    for title, caching in (("Prefix caching on", True), ("Prefix caching off", False)):
        with vllm_serve(scratch, prefix_caching=caching) as engine:
            version = read_log(engine.log_text()).version
            name = f"vLLM {version} (its CPU build), {title.lower()}"
            runs.append(measure(engine, title, name))
    return runs


def with_transformers(scratch: Path) -> list[EngineRun]:
    title = f"transformers serve {version('transformers')}"
    with transformers_serve(scratch, threads=2) as engine:
        return [measure(engine, "transformers serve", f"{title}, which keeps no prefixes")]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if VLLM_PYTHON.exists():
            runs, weights = with_vllm(scratch), f"{SMOLLM2_NAME} in bf16 on vLLM"
        else:
            runs, weights = with_transformers(scratch), f"{SMOLLM2_NAME} in fp32 on transformers"
    data = {"runs": [run.as_data() for run in runs]}
    recordings.write(RECORDING, recordings.label(2, weights), data)


if __name__ == "__main__":
    main()
