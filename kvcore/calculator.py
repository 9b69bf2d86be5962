"""What the calculator page shows: frames for its charts and tables, and the arithmetic in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd
import pyarrow as pa

from kvcore.architecture import Architecture, ByteRange, FieldSource, LayerGroup, LayerKind
from kvcore.capacity import (
    Deployment,
    MemoryShare,
    Users,
    memory_shares,
    users_at,
    users_with_prefix,
)
from kvcore.engines.conformance import Result
from kvcore.engines.reconcile import Row
from kvcore.formats import KVFormat, Scaling
from kvcore.units import GIB, gb, gib

POINTS = 40
"""Lengths along the axis of a chart, besides those where a line bends."""

USERS_POINTS = 24
POINTS_ON_A_STRAIGHT_LINE = 12
"""As many where lines are straight between their bends: memory on plain axes."""

SHORTEST = 500
"""Where the chart of users begins: below it the count grows without meaning."""

MEMORY_COLUMNS = pa.schema(
    [
        ("model", pa.string()),
        ("tokens", pa.int64()),
        ("gib", pa.float64()),
        ("low", pa.float64()),
        ("here", pa.bool_()),
    ]
)
USERS_COLUMNS = pa.schema(
    [
        ("tokens", pa.int64()),
        ("users", pa.int64()),
        ("series", pa.string()),
        ("here", pa.bool_()),
    ]
)
SHARES_COLUMNS = pa.schema(
    [
        ("part", pa.string()),
        ("gib", pa.float64()),
        ("start", pa.float64()),
        ("label", pa.string()),
    ]
)

KIND_NAMES = {
    LayerKind.FULL: "Full attention",
    LayerKind.SLIDING_WINDOW: "Sliding window",
    LayerKind.CHUNKED: "Chunked attention",
    LayerKind.LATENT: "Latent attention",
    LayerKind.SPARSE_INDEX: "Sparse-attention index",
    LayerKind.RECURRENT: "Recurrent state",
    LayerKind.SHARED: "Shares another layer's cache",
    LayerKind.CROSS_ATTENTION: "Cross-attention",
    LayerKind.NONE: "Keeps nothing",
}

FIELD_NAMES = {
    "schedule": "which layers",
    "num_kv_heads": "KV heads",
    "head_dim": "head dimension",
    "value_head_dim": "value dimension",
    "window": "tokens kept",
    "latent_rank": "latent rank",
    "rope_dim": "rotary part",
}


@dataclass(frozen=True)
class Subject:
    """A model on the page: what it keeps, and its weights where they are known.

    origin: where its numbers come from, a sentence.
    series: what the legend of a chart calls it. It stays the same while the numbers move, so that
    the chart need not be built again; the name where nothing else is given.
    """

    architecture: Architecture
    parameters: int | None = None
    active_parameters: int | None = None
    origin: str = ""
    series: str = ""

    def __post_init__(self) -> None:
        if not self.series:
            object.__setattr__(self, "series", self.name)

    @property
    def name(self) -> str:
        return self.architecture.name


def sample_points(
    architectures: Iterable[Architecture],
    longest: int,
    here: int,
    log: bool = False,
    count: int = POINTS,
) -> list[int]:
    """`count` lengths to draw, and every length at which a line bends.

    Spread evenly over the axis, or evenly in ratio where the axis is logarithmic.
    """
    longest = max(longest, here, 2)
    if log:
        step = longest ** (1 / count)
        points = {min(longest, round(step**i)) for i in range(count + 1)}
    else:
        points = {longest * i // count for i in range(1, count + 1)} | {SHORTEST}
    bends = {
        group.window
        for architecture in architectures
        for group in architecture.layers
        if group.window and group.kind is not LayerKind.CROSS_ATTENTION
    }
    points |= {bend for bend in bends if bend < longest} | {1, here, longest}
    return sorted(point for point in points if point >= 1)


def memory_table(
    subjects: Sequence[Subject],
    longest: int,
    here: int,
    kv_format: str,
    tensor_parallel: int = 1,
    log: bool = False,
) -> pa.Table:
    """Cache of one request against its length.

    Columns: model, tokens, gib and low (equal unless the config leaves a range), here (whether this
    is the length chosen).
    """
    count = POINTS if log else POINTS_ON_A_STRAIGHT_LINE
    longest = max(longest, here)
    points = tuple(sample_points([each.architecture for each in subjects], longest, 1, log, count))
    rank = (kv_format, tensor_parallel)
    rows = []
    for subject in subjects:
        line = _sizes(subject.architecture, points, *rank)
        chosen = _sizes(subject.architecture, (here,), *rank)
        for tokens, bounds in sorted({**line, **chosen}.items()):
            size = (bounds.high / GIB, bounds.low / GIB)
            rows.append((subject.series, tokens, *size, tokens == here))
    return _table(MEMORY_COLUMNS, rows)


def memory_frame(
    subjects: Sequence[Subject],
    longest: int,
    here: int,
    kv_format: str,
    tensor_parallel: int = 1,
    log: bool = False,
) -> pd.DataFrame:
    """`memory_table` as a frame, to be looked through and exported."""
    return memory_table(subjects, longest, here, kv_format, tensor_parallel, log).to_pandas()


@lru_cache(maxsize=256)
def _sizes(
    architecture: Architecture, points: tuple[int, ...], kv_format: str, tensor_parallel: int
) -> dict[int, ByteRange]:
    """The cache of one request at each length: what stays when only the chosen length moves."""
    return {
        tokens: architecture.cache_range(tokens, kv_format, tensor_parallel) for tokens in points
    }


def _table(columns: pa.Schema, rows: Sequence[tuple]) -> pa.Table:
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    return pa.table(values, schema=columns)


OWN_CACHE, SHARED_PREFIX = "Each with a cache of its own", "With the shared prefix stored once"


def users_table(
    deployment: Deployment, longest: int, here: int, shared_prefix: int = 0, log: bool = False
) -> pa.Table:
    """Users who fit against the length each holds, from 500 tokens or the length chosen.

    Columns: tokens, users, series, here.
    """
    longest = max(longest, here)
    points = sample_points((deployment.architecture,), longest, longest, log, USERS_POINTS)
    curve = _user_counts(deployment, tuple(points), shared_prefix)
    rows = [row for row in curve if row[0] >= min(SHORTEST, here) and row[0] != here]
    rows += _user_counts(deployment, (here,), shared_prefix)
    return _table(USERS_COLUMNS, [(*row, row[0] == here) for row in sorted(rows)])


def users_frame(
    deployment: Deployment, longest: int, here: int, shared_prefix: int = 0, log: bool = False
) -> pd.DataFrame:
    """`users_table` as a frame."""
    return users_table(deployment, longest, here, shared_prefix, log).to_pandas()


@lru_cache(maxsize=256)
def _user_counts(
    deployment: Deployment, points: tuple[int, ...], shared_prefix: int
) -> list[tuple[int, int, str]]:
    """(tokens, users, series) at each length, and once more where a prefix is shared."""
    own = [(tokens, users_at(deployment, tokens).total, OWN_CACHE) for tokens in points]
    shared = [
        (tokens, users_with_prefix(deployment, tokens, shared_prefix).total, SHARED_PREFIX)
        for tokens in points
        if shared_prefix and tokens > shared_prefix
    ]
    return own + shared


def shares_table(shares: Sequence[MemoryShare]) -> pa.Table:
    """Where the memory of the fullest GPU goes, end to end. Columns: part, gib, start, label."""
    rows, start = [], 0.0
    for share in shares:
        size = share.num_bytes / GIB
        rows.append((share.part, size, start, gib(share.num_bytes)))
        start += size
    return _table(SHARES_COLUMNS, rows)


def shares_frame(deployment: Deployment, users: int, tokens: int) -> pd.DataFrame:
    """`shares_table` of a deployment, as a frame."""
    return shares_table(memory_shares(deployment, users, tokens)).to_pandas()


def layers_frame(
    architecture: Architecture, tokens: int, kv_format: str, tensor_parallel: int = 1
) -> pd.DataFrame:
    """One row for each layer group, on one rank, bytes as whole numbers."""
    fmt = architecture.storage_format(kv_format)
    rows = [
        {
            "what it keeps": KIND_NAMES[group.kind],
            "layers": group.count,
            "KV heads": group.num_kv_heads or None,
            "key width": group.head_dim or None,
            "value width": group.value_head_dim or None,
            "tokens kept": group.window,
            "bytes a token and layer": group.entry_bytes(fmt, tensor_parallel) or None,
            "state bytes a layer": group.state_bytes(tensor_parallel) or None,
            "grows by, bytes a token": group.growth_bytes(fmt, tensor_parallel),
            f"bytes at {tokens:,} tokens": group.cache_bytes(tokens, fmt, tensor_parallel),
            "which layers": layer_numbers(group),
        }
        for group in architecture.layers
    ]
    frame = pd.DataFrame(rows)
    return frame.astype(
        dict.fromkeys(frame.columns.difference(["what it keeps", "which layers"]), "Int64")
    )


def layer_numbers(group: LayerGroup) -> str:
    """The positions of a group's layers, short: 0–31, or 5, 11, 17 …"""
    ids = group.layer_ids
    if not ids:
        return ""
    if len(ids) > 1 and ids == tuple(range(ids[0], ids[-1] + 1)):
        return f"{ids[0]}–{ids[-1]}"
    shown = ", ".join(str(i) for i in ids[:6])
    return shown if len(ids) <= 6 else f"{shown} … {ids[-1]}"


def sources_frame(architecture: Architecture) -> pd.DataFrame:
    """Where every field came from. Columns: group, field, value, source, detail."""
    rows = [
        _source_row(KIND_NAMES[group.kind], each)
        for group in architecture.layers
        for each in group.provenance
    ]
    used = {row[1:] for row in rows}
    rows += [
        row
        for each in architecture.provenance
        if (row := _source_row("Model", each))[1:] not in used
    ]
    return pd.DataFrame(rows, columns=["group", "field", "value", "source", "where"])


def _source_row(group: str, each: FieldSource) -> tuple[str, ...]:
    name = FIELD_NAMES.get(each.field, each.field.replace("_", " "))
    return group, name, str(each.value), str(each.source), each.detail


def arithmetic(
    architecture: Architecture, tokens: int, kv_format: str, tensor_parallel: int = 1
) -> list[str]:
    """The cache of one request on one rank, a line for each group and one for the sum."""
    fmt = architecture.storage_format(kv_format)
    lines = [
        line
        for group in architecture.layers
        if (line := _group_line(group, tokens, fmt, tensor_parallel))
    ]
    total = architecture.cache_bytes(tokens, kv_format, tensor_parallel)
    if len(lines) > 1:
        lines.append(f"together = {total:,} bytes")
    lines.append(f"{total:,} ÷ 2³⁰ = {gib(total)} ({gb(total)})")
    growth = architecture.growth_bytes(kv_format, tensor_parallel)
    lines.append(f"each further token: {growth:,} bytes ({gib(growth)})")
    return lines


def _group_line(group: LayerGroup, tokens: int, fmt: KVFormat, tensor_parallel: int) -> str:
    total = group.cache_bytes(tokens, fmt, tensor_parallel)
    name = KIND_NAMES[group.kind]
    if group.kind is LayerKind.RECURRENT:
        each = group.state_bytes(tensor_parallel)
        return f"{name}: {group.count} layers × {each:,} bytes of state = {total:,} bytes"
    entries, size = group.entries(tokens), group.entry_bytes(fmt, tensor_parallel)
    if not size:
        return ""
    what = entry_formula(group, fmt, tensor_parallel)
    return (
        f"{name}: {_layers(group)} × {what} × {entries:,} {_entries_name(group, tokens)} "
        f"= {total:,} bytes"
    )


def _layers(group: LayerGroup) -> str:
    return "1 layer" if group.count == 1 else f"{group.count} layers"


def _entries_name(group: LayerGroup, tokens: int) -> str:
    if group.tokens_per_entry > 1:
        return f"entries (one per {group.tokens_per_entry} tokens)"
    if group.kind is LayerKind.CROSS_ATTENTION:
        return "encoder positions"
    if group.window and group.window < tokens:
        return "tokens in the window"
    return "tokens"


def entry_formula(group: LayerGroup, fmt: KVFormat, tensor_parallel: int = 1) -> str:
    """The bytes of one token in one layer, with its numbers: 2 × 8 heads × 128 × 2 bytes."""
    size = group.entry_bytes(fmt, tensor_parallel)
    plain = fmt.scaling in (Scaling.NONE, Scaling.PER_TENSOR) and fmt.bits >= 8
    element = f"{fmt.bits // 8} byte{'s' if fmt.bits > 8 else ''}"
    if group.kind is LayerKind.LATENT and plain and fmt.name != "fp8_ds_mla":
        return f"({group.latent_rank} + {group.rope_dim}) × {element}"
    grouped = group.kind not in (LayerKind.LATENT, LayerKind.SPARSE_INDEX)
    if grouped and plain and group.head_dim == group.value_head_dim:
        heads = group.heads_per_rank(tensor_parallel)
        return f"2 × {heads} KV head{'s' if heads > 1 else ''} × {group.head_dim} × {element}"
    if grouped and plain and group.value_head_dim:
        heads = group.heads_per_rank(tensor_parallel)
        return f"{heads} KV heads × ({group.head_dim} + {group.value_head_dim}) × {element}"
    return f"{size:,} bytes in {fmt.name}"


def users_arithmetic(users: Users, deployment: Deployment) -> list[str]:
    """Why so many users fit, on one GPU of the stage that fills first."""
    stage = deployment.stages[users.stage]
    lines = [
        f"budget {gib(stage.budget_bytes)} − weights {gib(stage.weights_bytes)} "
        f"− overhead {gib(stage.overhead_bytes)} = {_signed(users.free_bytes)} for caches"
    ]
    if not users.fits:
        return [*lines, "The weights and the overhead alone do not fit."]
    if users.shared_bytes:
        lines.append(f"less the shared prefix, once: {gib(users.shared_bytes)}")
    room = max(0, users.free_bytes - users.shared_bytes)
    if users.bytes_per_user:
        lines.append(
            f"{room:,} ÷ {users.bytes_per_user:,} bytes a user "
            f"= {_cut(room, users.bytes_per_user)}, so {users.per_copy:,} users"
        )
    if deployment.data_parallel > 1:
        lines.append(f"× {deployment.data_parallel} copies = {users.total:,} users")
    return lines


def _cut(a: int, b: int) -> str:
    """a ÷ b with two decimals, cut and not rounded: 219.999 users are 219."""
    whole, rest = divmod(a, b)
    return f"{whole:,}.{rest * 100 // b:02d}"


def _signed(num_bytes: int) -> str:
    return gib(num_bytes) if num_bytes >= 0 else f"−{gib(-num_bytes)}"


def reconciliation_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Predicted beside logged. Columns: figure, predicted, logged, unit, result, why."""
    return pd.DataFrame(
        [
            (row.figure, row.predicted, row.logged, row.unit, row.term, row.explanation)
            for row in rows
        ],
        columns=["figure", "predicted", "logged", "unit", "result", "why"],
    )


def conformance_frame(results: Sequence[Result]) -> pd.DataFrame:
    """The reference set as it ran: the failures first, then in the set's order."""
    rows = [
        {
            "agrees": "yes" if result.agrees else "no",
            "figure": result.case.figure,
            "model": result.case.model,
            "engine": result.case.engine,
            "setting": result.case.setting,
            "predicted": result.predicted,
            "printed": result.case.logged,
            "within": result.case.tolerance,
            "unit": result.case.unit,
            "naive": result.plain,
            "source": result.case.source,
            "note": result.error or result.case.note,
        }
        for result in sorted(results, key=lambda result: result.agrees)
    ]
    return pd.DataFrame(rows)


def stages_frame(deployment: Deployment, tokens: int) -> pd.DataFrame:
    """One row for each pipeline stage: layers, weights, room and users, on one of its GPUs."""
    rows = []
    for i, stage in enumerate(deployment.stages):
        each = stage.architecture.cache_bytes(
            tokens, deployment.kv_format, deployment.tensor_parallel
        )
        rows.append(
            {
                "stage": i,
                "layers": stage.architecture.num_layers,
                "weights": gib(stage.weights_bytes),
                "left for caches": _signed(stage.free_bytes),
                "one request": gib(each),
                "requests": max(0, stage.free_bytes) // each if each else None,
            }
        )
    return pd.DataFrame(rows)


def ranks_frame(
    architecture: Architecture, tokens: int, kv_format: str, ranks: Sequence[int]
) -> pd.DataFrame:
    """What tensor parallelism does to one request: on each rank, and on all together."""
    alone = architecture.cache_bytes(tokens, kv_format)
    rows = []
    for each in ranks:
        size = architecture.cache_bytes(tokens, kv_format, each)
        rows.append(
            {
                "ranks": each,
                "on each rank": gib(size),
                "on all together": gib(size * each),
                "copies": round(size * each / alone, 2) if alone else None,
            }
        )
    return pd.DataFrame(rows)
