"""The tables behind the sharing-heads page: who shares, what it saves, what was timed.

Bytes and users come from `kvcore.architecture` and `kvcore.capacity`, as on the calculator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import pandas as pd
import pyarrow as pa

from kvcore import units
from kvcore.architecture import Architecture, LayerKind
from kvcore.attention import Shape, Sharing, Timing, sharings
from kvcore.capacity import Deployment, users_at
from kvcore.catalog import GPU, MODELS, Model

ATTENDING = frozenset({LayerKind.FULL, LayerKind.SLIDING_WINDOW, LayerKind.CHUNKED})
"""Layers that keep keys and values per KV head."""

TIMED_CONTEXTS = (1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class Setting:
    """A model's shape, one request and one GPU."""

    sharing: Sharing
    num_layers: int
    head_dim: int
    tokens: int
    kv_format: str
    memory_bytes: int
    weights_bytes: int

    def sharing_as(self, num_kv_heads: int) -> Setting:
        return replace(self, sharing=Sharing(self.sharing.num_query_heads, num_kv_heads))

    @property
    def architecture(self) -> Architecture:
        return Architecture.uniform(self.num_layers, self.sharing.num_kv_heads, self.head_dim)

    @cached_property
    def cache_bytes(self) -> int:
        """Bytes of one request."""
        return self.architecture.cache_bytes(self.tokens, self.kv_format)

    @cached_property
    def users(self) -> int:
        """Requests of this length that fit at once beside the weights."""
        deployment = Deployment(
            self.architecture, self.memory_bytes, self.weights_bytes, kv_format=self.kv_format
        )
        return users_at(deployment, self.tokens).total

    @cached_property
    def every_way(self) -> tuple[Setting, ...]:
        """The same with each even way to share, from MHA down to MQA; itself among them."""
        ways = sharings(self.sharing.num_query_heads)
        return tuple(
            self if way == self.sharing else self.sharing_as(way.num_kv_heads) for way in ways
        )

    @cached_property
    def as_mha(self) -> Setting:
        return self.every_way[0]


@lru_cache(maxsize=64)
def head_table(sharing: Sharing) -> pa.Table:
    """A row per query head: its place, its drawer and the drawer's place, both from 0 to 1."""
    heads = range(sharing.num_query_heads)
    drawers = [sharing.kv_head_of(head) for head in heads]
    return pa.table(
        {
            "query_head": list(heads),
            "kv_head": drawers,
            "query_x": [(head + 0.5) / sharing.num_query_heads for head in heads],
            "kv_x": [(drawer + 0.5) / sharing.num_kv_heads for drawer in drawers],
            "first_of_group": [head % sharing.group_size == 0 for head in heads],
        }
    )


def ladder_table(setting: Setting) -> pa.Table:
    """A row per drawer of every even way to share, from MHA down to MQA.

    start, end: the query heads it spans, as [start, end).
    """
    boxes = _ladder_boxes(setting.sharing)
    caches = pa.array([units.gib(way.cache_bytes) for way in setting.every_way])
    return boxes.append_column("cache", caches.take(boxes["step"].combine_chunks()))


@lru_cache(maxsize=64)
def _ladder_boxes(chosen: Sharing) -> pa.Table:
    """The ladder but for the sizes."""
    ways = list(enumerate(sharings(chosen.num_query_heads)))
    rows = [
        (step, way, kv_head, group)
        for step, way in ways
        for kv_head, group in enumerate(way.groups)
    ]
    labels = {way: f"{way.name} (chosen)" if way == chosen else way.name for _, way in ways}
    return pa.table(
        {
            "sharing": [way.name for _, way, _, _ in rows],
            "label": [labels[way] for _, way, _, _ in rows],
            "step": [step for step, _, _, _ in rows],
            "kv_head": [kv_head for _, _, kv_head, _ in rows],
            "start": [group.start for _, _, _, group in rows],
            "end": [group.stop for _, _, _, group in rows],
            "state": ["chosen" if way == chosen else "other" for _, way, _, _ in rows],
            "readers": [_span(group) for _, _, _, group in rows],
        }
    )


def _span(group: range) -> str:
    if len(group) == 1:
        return f"query head {group.start}"
    return f"query heads {group.start} to {group.stop - 1}"


def memory_table(setting: Setting) -> pa.Table:
    """A row per even way to share: bytes of one request, users, and both against MHA."""
    ways, mha = setting.every_way, setting.as_mha
    return pa.table(
        {
            "sharing": [way.sharing.name for way in ways],
            "kv_heads": [way.sharing.num_kv_heads for way in ways],
            "queries_per_drawer": [way.sharing.group_size for way in ways],
            "cache_bytes": [way.cache_bytes for way in ways],
            "gib": [way.cache_bytes / units.GIB for way in ways],
            "cache": [units.gib(way.cache_bytes) for way in ways],
            "times_less": [mha.cache_bytes / way.cache_bytes for way in ways],
            "users": [way.users for way in ways],
            "state": ["chosen" if way == setting else "other" for way in ways],
        }
    )


def as_mha(architecture: Architecture) -> Architecture | None:
    """The same model with a KV head for each query head.

    None where the config does not tell the query heads, or where a layer keeps a latent vector:
    that is another way to share, with nothing per head to give back.
    """
    heads = architecture.num_attention_heads
    kinds = {group.kind for group in architecture.layers}
    if not heads or LayerKind.LATENT in kinds or not kinds & ATTENDING:
        return None
    layers = tuple(
        replace(group, num_kv_heads=heads) if group.kind in ATTENDING else group
        for group in architecture.layers
    )
    return replace(architecture, layers=layers, low_layers=None)


@lru_cache
def comparable_models() -> tuple[str, ...]:
    """Names of catalogue models of which an MHA twin can be worked out."""
    return tuple(name for name, model in MODELS.items() if as_mha(model.architecture) is not None)


@lru_cache
def simple_models() -> tuple[str, ...]:
    """Those whose layers all attend alike and share evenly, so that five numbers describe them."""
    return tuple(name for name in comparable_models() if shape_of(MODELS[name]) is not None)


@dataclass(frozen=True)
class ModelShape:
    sharing: Sharing
    num_layers: int
    head_dim: int


def shape_of(model: Model) -> ModelShape | None:
    """Heads, layers and head dimension, where the model has only one of each."""
    layers, heads = model.architecture.layers, model.architecture.num_attention_heads
    if len(layers) != 1 or layers[0].kind is not LayerKind.FULL:
        return None
    group = layers[0]
    if not heads or heads > 128 or heads % group.num_kv_heads:
        return None
    return ModelShape(Sharing(heads, group.num_kv_heads), group.count, group.head_dim)


def models_frame(
    names: Iterable[str], tokens: int, kv_format: str, gpu: GPU | None = None
) -> pd.DataFrame:
    """Two rows per model: as it is, and had it stayed MHA.

    users: requests of `tokens` on one such GPU beside 16-bit weights; None without a GPU, or where
    the parameters are not known.
    """
    rows = []
    for name in names:
        model = MODELS[name]
        twin = as_mha(model.architecture)
        if twin is None:
            continue
        for what, architecture in (("as it is", model.architecture), ("had it stayed MHA", twin)):
            size = architecture.cache_bytes(tokens, kv_format)
            rows.append(
                {
                    "model": name,
                    "what": what,
                    "sharing": sharing_words(model.architecture),
                    "cache_bytes": size,
                    "gib": size / units.GIB,
                    "cache": units.gib(size),
                    "users": _users(model, architecture, tokens, kv_format, gpu),
                }
            )
    return pd.DataFrame(rows)


def sharing_words(architecture: Architecture) -> str:
    """The names of a model's sharings, each once: "GQA-8", or "GQA-8 and GQA-2"."""
    heads = architecture.num_attention_heads
    names = []
    for group in architecture.layers:
        if group.kind not in ATTENDING:
            continue
        even = heads % group.num_kv_heads == 0
        name = Sharing(heads, group.num_kv_heads).name if even else f"{group.num_kv_heads} KV heads"
        if name not in names:
            names.append(name)
    return " and ".join(names)


def _users(
    model: Model, architecture: Architecture, tokens: int, kv_format: str, gpu: GPU | None
) -> int | None:
    if gpu is None or model.parameters is None:
        return None
    deployment = Deployment(
        architecture, gpu.memory_bytes, 2 * model.parameters, kv_format=kv_format
    )
    return users_at(deployment, tokens).total


# Timings


def timing_rows(shape: Shape, lines: Sequence[Timing], threads: int) -> list[dict[str, object]]:
    """A plain row per variant at one context, as it is shown, exported and recorded."""
    return [
        {
            "context": shape.context,
            "sharing": line.variant.sharing.name,
            "kv_heads": line.variant.sharing.num_kv_heads,
            "formulation": line.variant.formulation,
            "median_ms": line.median_seconds * 1e3,
            "p10_ms": line.p10_seconds * 1e3,
            "speed_up": line.speed_up,
            "ideal": line.ideal_speed_up,
            "bytes_read": line.bytes_read,
            "bytes_gone_through": line.variant.traffic_bytes(shape),
            "share_of_bandwidth": line.share_of_bandwidth,
            "share_of_arithmetic": line.share_of_arithmetic,
            "rounds": line.samples,
            "batch": shape.batch,
            "query_heads": shape.num_query_heads,
            "head_dim": shape.head_dim,
            "threads": threads,
            "clock": "processor time" if threads == 1 else "wall clock",
        }
        for line in lines
    ]
