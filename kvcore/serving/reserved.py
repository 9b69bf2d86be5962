"""What a running server says it reserved for the KV cache, in the form its log would have.

vLLM: `vllm:cache_config_info` at /metrics, /version and `max_model_len` at /v1/models. SGLang:
/server_info (older: /get_server_info). llama.cpp: /props. Nothing is computed on the server: no
tokens are spent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from kvcore.engines.logs import EngineLog, LlamaCppLog, Reading, SglangLog, VllmLog
from kvcore.serving.client import Client, ServedModel
from kvcore.serving.metrics import EngineMetrics

GIB = 2**30
VLLM_CPU_SPACE = ("cpu_kvcache_space_bytes", "kv_cache_memory_bytes")


@dataclass(frozen=True)
class Fact:
    """One thing the server said, and where."""

    name: str
    value: str
    where: str


@dataclass(frozen=True)
class Reserved:
    """log: what reconcile takes; None where the server says nothing of the kind."""

    engine: str | None
    log: EngineLog | None
    facts: tuple[Fact, ...]


def ask_reserved(client: Client, model: ServedModel | None) -> Reserved:
    """Ask a server what it holds for its cache. Raises ServingError where nobody answers."""
    served = {each.name: each for each in client.models()}
    known = served.get(model.name, model) if model else None
    metrics = client.metrics(known.name if known else None)
    if metrics is not None and metrics.engine == "vllm":
        return _vllm(metrics, client.extra("/version"), known)
    owner = known.owner.lower() if known else ""
    if (metrics is not None and metrics.engine == "sglang") or owner == "sglang":
        info = client.extra("/server_info") or client.extra("/get_server_info")
        return _sglang(metrics, info if isinstance(info, Mapping) else {})
    props = client.extra("/props")
    if isinstance(props, Mapping) and "default_generation_settings" in props:
        return _llamacpp(props, client.extra("/slots"))
    facts = (
        [Fact("max_model_len", f"{known.max_model_len:,}", "/v1/models")]
        if (known and known.max_model_len)
        else []
    )
    return Reserved(None, None, tuple(facts))


def _vllm(metrics: EngineMetrics, version: Any, model: ServedModel | None) -> Reserved:
    config = metrics.cache_config
    log = VllmLog()
    if isinstance(version, Mapping) and isinstance(version.get("version"), str):
        log.version = version["version"][:40]
    log.block_size = _whole(config.get("block_size"))
    log.kv_cache_dtype = config.get("cache_dtype")
    log.prefix_caching = {"True": True, "False": False}.get(config.get("enable_prefix_caching", ""))
    log.max_model_len = model.max_model_len if model else None
    blocks = _whole(config.get("num_gpu_blocks"))
    if blocks is not None:
        log.blocks.append(Reading(blocks, "", 0))
    tokens = _whole(config.get("kv_cache_size_tokens"))
    if tokens is not None:
        log.tokens.append(Reading(tokens, "", 0))
    concurrency = _number(config.get("kv_cache_max_concurrency"))
    if concurrency is not None:
        log.concurrency.append(Reading(concurrency, "", 0))
    space = next((b for name in VLLM_CPU_SPACE if (b := _whole(config.get(name)))), None)
    if space is not None:
        log.available.append(Reading(space / GIB, "", 0))
    facts = [
        Fact(name, str(value)[:200], "/metrics, vllm:cache_config_info")
        for name, value in sorted(config.items())
        if value not in ("None", "") and not name.startswith("_")
    ]
    if log.version:
        facts.insert(0, Fact("version", log.version, "/version"))
    if log.max_model_len:
        facts.append(Fact("max_model_len", f"{log.max_model_len:,}", "/v1/models"))
    return Reserved("vLLM", log, tuple(facts))


def _sglang(metrics: EngineMetrics | None, info: Mapping[str, Any]) -> Reserved:
    states = info.get("internal_states")
    inner = states[0] if isinstance(states, list) and states else {}
    merged = {**(inner if isinstance(inner, Mapping) else {}), **info}
    log = SglangLog()
    log.version = _text(merged.get("version"))
    log.page_size = _whole(merged.get("page_size"))
    log.tensor_parallel = _whole(merged.get("tp_size"))
    log.context_len = _whole(merged.get("context_length")) or _whole(
        merged.get("max_req_input_len")
    )
    share = merged.get("mem_fraction_static")
    log.mem_fraction_static = share if isinstance(share, float) else None
    dtype = _text(merged.get("kv_cache_dtype"))
    log.kv_cache_dtype = None if dtype == "auto" else dtype
    tokens = _whole(merged.get("max_total_num_tokens"))
    where = "/server_info"
    if tokens is None and metrics is not None and metrics.kv_tokens is not None:
        tokens, where = int(metrics.kv_tokens), "/metrics"
    facts = [
        Fact(name, str(merged[name])[:200], "/server_info")
        for name in ("version", "page_size", "tp_size", "context_length", "mem_fraction_static")
        if merged.get(name) is not None
    ]
    if tokens is not None:
        log.max_total_tokens = tokens
        log.tokens.append(Reading(tokens, "", 0))
        facts.append(Fact("max_total_num_tokens", f"{tokens:,}", where))
    return Reserved("SGLang", log if tokens is not None else None, tuple(facts))


def _llamacpp(props: Mapping[str, Any], slots: Any) -> Reserved:
    settings = props.get("default_generation_settings")
    per_slot = _whole(settings.get("n_ctx")) if isinstance(settings, Mapping) else None
    count = _whole(props.get("total_slots"))
    log = LlamaCppLog()
    log.version = _text(props.get("build_info"))
    log.slots, log.context_per_slot = count, per_slot
    if isinstance(slots, list) and slots:
        sizes = [_whole(s.get("n_ctx")) for s in slots if isinstance(s, Mapping)]
        log.context = sum(s for s in sizes if s) or None
    elif count and per_slot:
        log.context = count * per_slot
    facts = [
        Fact(name, f"{value:,}" if isinstance(value, int) else value, where)
        for name, value, where in (
            ("version", log.version, "/props"),
            ("slots", count, "/props"),
            ("context of a slot", per_slot, "/props"),
            ("context of all slots", log.context, "/slots"),
        )
        if value is not None
    ]
    return Reserved("llama.cpp", log, tuple(facts))


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return int(str(value))
    except ValueError:
        return None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if isfinite(number) else None


def _text(value: Any) -> str | None:
    return value[:60] if isinstance(value, str) and value else None
