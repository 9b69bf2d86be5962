"""What engines tell about their cache at /metrics: vLLM, SGLang and llama.cpp.

Read by prometheus_client's parser. Names: vLLM's "Production Metrics" page (and the spellings of
older versions), SGLang's metrics collector, llama.cpp's server README. A figure that is not there
is None, never 0. Counters of several engines (data-parallel ranks) are added up; shares and gauges
that a rank has of its own take the fullest rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from prometheus_client.parser import text_string_to_metric_families

Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]


@dataclass(frozen=True)
class EngineMetrics:
    """One reading of /metrics.

    prefix_queries, prefix_hits: tokens asked of and found in the prefix cache since the start.
    kv_usage: share of the KV cache in use, 0 to 1. preemptions: since the start. cache_config:
    what the engine says about its cache, as text.
    """

    engine: str | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    kv_usage: float | None = None
    preemptions: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_tokens: float | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def says_hits(self) -> bool:
        return self.prefix_hits is not None


# The first name that is there counts; the second item says how ranks are put together.
_NAMES = {
    "vllm": {
        "prefix_queries": (
            ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
            sum,
        ),
        "prefix_hits": (("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"), sum),
        "kv_usage": (("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), max),
        "preemptions": (("vllm:num_preemptions_total",), sum),
        "running": (("vllm:num_requests_running",), sum),
        "waiting": (("vllm:num_requests_waiting",), sum),
    },
    "sglang": {
        "prefix_queries": (("sglang:prompt_tokens_total",), sum),
        "prefix_hits": (("sglang:cached_tokens_total",), sum),
        "kv_usage": (("sglang:token_usage",), max),
        "preemptions": (("sglang:num_retracted_requests_total",), sum),
        "running": (("sglang:num_running_reqs",), sum),
        "waiting": (("sglang:num_queue_reqs",), sum),
        "kv_tokens": (("sglang:max_total_num_tokens",), min),
    },
    "llama.cpp": {
        "kv_usage": (("llamacpp:kv_cache_usage_ratio",), max),
        "running": (("llamacpp:requests_processing",), sum),
        "waiting": (("llamacpp:requests_deferred",), sum),
    },
}
_PREFIXES = {"vllm": "vllm:", "sglang": "sglang:", "llama.cpp": "llamacpp:"}
_CONFIG = ("vllm:cache_config_info", "sglang:cache_config_info")


def read_metrics(text: str, model: str | None = None) -> EngineMetrics | None:
    """The figures of whichever engine wrote the text; None where it is no Prometheus text.

    A value that no count or share can have (negative, infinite, none at all) is passed over.
    model: where several are served, only the samples that name it (or name none) count.
    """
    samples = _samples(text)
    if not samples:
        return None
    engine = next(
        (name for name, start in _PREFIXES.items() if any(s.startswith(start) for s in samples)),
        None,
    )
    if engine is None:
        return EngineMetrics()
    figures = {
        name: _figure(samples, spellings, together, model)
        for name, (spellings, together) in _NAMES[engine].items()
    }
    return EngineMetrics(engine=engine, cache_config=_config(samples), **figures)


def grown(before: float | None, after: float | None) -> float | None:
    """How much a counter rose; None where it is unknown or the server was restarted between."""
    if before is None or after is None or after < before:
        return None
    return after - before


def _samples(text: str) -> Samples:
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    except (ValueError, KeyError, IndexError):
        return {}
    return found


def _figure(
    samples: Samples, spellings: tuple[str, ...], together: object, model: str | None
) -> float | None:
    for name in spellings:
        rows = samples.get(name)
        if not rows:
            continue
        mine = [
            v for labels, v in rows if model is None or labels.get("model_name", model) == model
        ]
        values = [value for value in mine or [v for _, v in rows] if 0 <= value < inf]
        if values:
            return float(together(values))  # type: ignore[operator]
    return None


def _config(samples: Samples) -> Mapping[str, str]:
    for name in _CONFIG:
        if samples.get(name):
            return dict(samples[name][0][0])
    return {}
