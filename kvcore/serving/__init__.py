"""Measure a serving engine where it runs: any server with an OpenAI-compatible API.

    from kvcore.serving import Client, FirstToken, Budget, Runner, plan, policy
    target = policy("", app_is_local=True).target("http://127.0.0.1:8000")
    experiment = FirstToken(lengths=(250, 1_000), repeats=2)
    with Client(target) as client:
        runner = Runner(client, client.models()[0].name, Budget(plan(experiment)))
        samples = list(runner.samples(experiment))

Nothing here starts an engine. Which addresses may be called is the operator's word (`policy`).
"""

from kvcore.serving.addresses import SETTING, Policy, Target, app_is_local, policy
from kvcore.serving.answers import Answer
from kvcore.serving.client import Client, Key, ServedModel, Timeouts
from kvcore.serving.errors import AddressError, ServingError
from kvcore.serving.experiments import (
    Budget,
    EarlyChange,
    ExperimentError,
    FirstToken,
    Plan,
    TokenTime,
    plan,
)
from kvcore.serving.metrics import EngineMetrics, read_metrics
from kvcore.serving.reserved import Reserved, ask_reserved
from kvcore.serving.run import Runner, Sample

__all__ = [
    "SETTING",
    "AddressError",
    "Answer",
    "Budget",
    "Client",
    "EarlyChange",
    "EngineMetrics",
    "ExperimentError",
    "FirstToken",
    "Key",
    "Plan",
    "Policy",
    "Reserved",
    "Runner",
    "Sample",
    "ServedModel",
    "ServingError",
    "Target",
    "Timeouts",
    "TokenTime",
    "app_is_local",
    "ask_reserved",
    "plan",
    "policy",
    "read_metrics",
]
