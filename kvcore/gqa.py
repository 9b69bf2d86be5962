"""The tables behind the sharing-heads page: who shares, what it saves, what was timed.

Bytes and users come from `kvcore.architecture` and `kvcore.capacity`, as on the calculator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

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
    def as_mha(self) -> Setting:
        return self.sharing_as(self.sharing.num_query_heads)


def head_frame(sharing: Sharing) -> pd.DataFrame:
    """A row per query head: its place, its drawer and the drawer's place, both from 0 to 1."""
    return pd.DataFrame(
        [
            {
                "query_head": head,
                "kv_head": sharing.kv_head_of(head),
                "query_x": (head + 0.5) / sharing.num_query_heads,
                "kv_x": (sharing.kv_head_of(head) + 0.5) / sharing.num_kv_heads,
                "first_of_group": head % sharing.group_size == 0,
            }
            for head in range(sharing.num_query_heads)
        ]
    )


def ladder_frame(setting: Setting) -> pd.DataFrame:
    """A row per drawer of every even way to share, from MHA down to MQA.

    start, end: the query heads it spans, as [start, end).
    """
    rows = []
    for step, sharing in enumerate(sharings(setting.sharing.num_query_heads)):
        here = setting.sharing_as(sharing.num_kv_heads)
        chosen = sharing == setting.sharing
        for kv_head, group in enumerate(sharing.groups):
            rows.append(
                {
                    "sharing": sharing.name,
                    "label": f"{sharing.name} (chosen)" if chosen else sharing.name,
                    "step": step,
                    "kv_head": kv_head,
                    "start": group.start,
                    "end": group.stop,
                    "state": "chosen" if chosen else "other",
                    "readers": _span(group),
                    "cache": units.gib(here.cache_bytes),
                }
            )
    return pd.DataFrame(rows)


def _span(group: range) -> str:
    if len(group) == 1:
        return f"query head {group.start}"
    return f"query heads {group.start} to {group.stop - 1}"


def memory_frame(setting: Setting) -> pd.DataFrame:
    """A row per even way to share: bytes of one request, users, and both against MHA."""
    mha = setting.as_mha
    rows = []
    for sharing in sharings(setting.sharing.num_query_heads):
        here = setting.sharing_as(sharing.num_kv_heads)
        rows.append(
            {
                "sharing": sharing.name,
                "kv_heads": sharing.num_kv_heads,
                "queries_per_drawer": sharing.group_size,
                "cache_bytes": here.cache_bytes,
                "gib": here.cache_bytes / units.GIB,
                "cache": units.gib(here.cache_bytes),
                "times_less": mha.cache_bytes / here.cache_bytes,
                "users": here.users,
                "state": "chosen" if sharing == setting.sharing else "other",
            }
        )
    return pd.DataFrame(rows)


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


def comparable_models() -> list[str]:
    """Names of catalogue models of which an MHA twin can be worked out."""
    return [name for name, model in MODELS.items() if as_mha(model.architecture) is not None]


def simple_models() -> list[str]:
    """Those whose layers all attend alike and share evenly, so that five numbers describe them."""
    return [name for name in comparable_models() if shape_of(MODELS[name]) is not None]


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
