"""A plan, a log and the conformance set, each against a peer in the same process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from statistics import median

from kvcore.architecture import Architecture
from kvcore.engines import conformance, vllm
from kvcore.engines.logs import read_log
from kvcore.engines.reconcile import reconcile
from kvcore.engines.reference_models import CONFIGS, architecture
from kvcore.units import GIB
from tests.benchmarks.figure import Figure
from tests.engines import logs

ROUNDS = 9
MODELS = ("Llama-3.1-8B", "Gemma-3-27B", "Qwen3.5-27B")
LOG_LINES = 10_000


def figures() -> Iterator[Figure]:
    """Ratios of medians over interleaved rounds; the last one in seconds."""
    yield _plan_against_reading_a_config()
    yield _reconciling_against_planning()
    yield _reading_a_log_against_one_search()
    yield _conformance_set()


def _plan_against_reading_a_config() -> Figure:
    """The calculator does both on every change of a slider."""

    def plans() -> None:
        for name in MODELS:
            vllm.plan(architecture(name), 40 * GIB, 32_768)

    def configs() -> None:
        for name in MODELS:
            Architecture.from_config(CONFIGS[name])

    plan, config = _medians(plans, configs)
    note = f"{plan / len(MODELS) * 1e3:.2f} ms a plan"
    return Figure("vLLM plan ÷ reading its config", plan / config, 1, "×", False, note)


def _reconciling_against_planning() -> Figure:
    """The worst case: a log of another model, where every explanation is tried."""
    log = read_log(logs.VLLM_QWEN36_35B)
    a = architecture("Gemma-3-27B")
    reconciling, planning = _medians(
        lambda: reconcile(log, a), lambda: vllm.plan(a, 40 * GIB, 32_768)
    )
    note = f"{reconciling * 1e3:.1f} ms"
    return Figure(
        "log of another model reconciled ÷ one plan", reconciling / planning, 400, "×", False, note
    )


def _reading_a_log_against_one_search() -> Figure:
    line = "(Worker_TP0 pid=1) INFO 11-29 12:00:00 [runner.py:10] Capturing CUDA graphs: {} of many"
    text = "\n".join(line.format(i) for i in range(LOG_LINES)) + "\n" + logs.VLLM_QWEN36_35B
    pattern = re.compile(r"KV cache size: ([\d,]+) tokens")

    def search() -> None:
        for each in text.splitlines():
            pattern.search(each)

    reading, searching = _medians(lambda: read_log(text), search)
    note = f"{len(text) / reading / 1e6:.1f} MB/s"
    return Figure(
        "whole start-up log read ÷ one pattern searched", reading / searching, 60, "×", False, note
    )


def _conformance_set() -> Figure:
    seconds = median(_timed(conformance.run) for _ in range(ROUNDS))
    note = f"{len(conformance.CASES)} figures"
    return Figure("the whole conformance set", seconds, 1, "s", False, note)


def _medians(*functions: Callable[[], object]) -> list[float]:
    """Median seconds of each, the rounds interleaved."""
    rounds = [[_timed(function) for function in functions] for _ in range(ROUNDS)]
    return [median(times) for times in zip(*rounds, strict=True)]


def _timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
