"""What llama.cpp reserves: cells for the context, a smaller cache for windows, states in f32.

Everything is allocated when the context is created, for the longest sequence it may hold. Source:
llama.cpp `llama-kv-cache.cpp`, `llama-kv-cache-iswa.cpp`, `llama-memory-recurrent.cpp` and the
logs in the conformance set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcore.architecture import (
    CONVOLUTION,
    EMPTY,
    WINDOWED,
    Architecture,
    LayerGroup,
    LayerKind,
)
from kvcore.engines.common import PlanError, ceil_div
from kvcore.formats import KVFormat, find_format, latent_bytes
from kvcore.units import MIB

CELL_PADDING = 256
DEFAULT_UBATCH = 512

IGNORES_WINDOW = frozenset({"mistral", "mixtral"})
"""Model types that llama.cpp loads as plain Llama, without their window
(Andyyyy64/whichllm#124)."""

PRINTED_TYPES = {"fp16": "f16", "fp32": "f32"}


@dataclass(frozen=True)
class CellCache:
    """One cache: `cells` for each of `streams`, over `layers` layers."""

    sliding: bool
    cells: int
    streams: int
    layers: int
    k_format: str
    v_format: str
    k_bytes: int
    v_bytes: int

    @property
    def bytes(self) -> int:
        return self.k_bytes + self.v_bytes


@dataclass(frozen=True)
class StateCache:
    """Recurrent states of all slots: R is the convolution part, S the matrix, both f32."""

    layers: int
    slots: int
    r_bytes: int
    s_bytes: int

    @property
    def bytes(self) -> int:
        return self.r_bytes + self.s_bytes


@dataclass(frozen=True)
class Plan:
    """llama.cpp's caches.

    context: `n_ctx` after padding, all slots together. context_per_slot: `n_ctx_seq`, what one
    request may use.
    """

    context: int
    context_per_slot: int
    slots: int
    unified: bool
    caches: tuple[CellCache, ...]
    state: StateCache | None
    model_layers: int
    notes: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return sum(cache.bytes for cache in self.caches) + (self.state.bytes if self.state else 0)


def plan(
    a: Architecture,
    context: int,
    kv_format: str = "fp16",
    *,
    value_format: str | None = None,
    slots: int = 1,
    unified: bool | None = None,
    ubatch: int = DEFAULT_UBATCH,
    swa_full: bool = False,
    quantised_window: bool = False,
) -> Plan:
    """Size llama.cpp's caches.

    context: `-c`, tokens for all slots together. kv_format, value_format: `-ctk` and `-ctv`.
    slots: `-np`. unified: `-kvu`, one pool of cells shared by all slots; None means unified when
        there is one slot. ubatch: `-ub`, tokens computed at once, kept beside each window.
    swa_full: `--swa-full`, windowed layers keep the whole context.
    quantised_window: whether the window part takes kv_format too; by default it stays F16
        (ggml-org/llama.cpp#21277).

    Raises PlanError for what llama.cpp does not run, in one sentence.
    """
    for name, value in (("context", context), ("slots", slots), ("ubatch", ubatch)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise PlanError(f"{name} must be a whole number of at least 1, not {value!r}.")
    k_format, v_format = _format(kv_format), _format(value_format or kv_format)
    layers = [group for group in a.layers if group.kind not in EMPTY and group.count]
    notes = _refuse_or_note(a, layers)
    shared = slots == 1 if unified is None else unified
    streams = 1 if shared else slots
    total = padded(context)
    cells = total if shared else padded(total // slots)

    ignores = a.model_type in IGNORES_WINDOW
    windowed = [group for group in layers if group.kind in WINDOWED and not ignores]
    full = [
        replace(group, kind=LayerKind.FULL, window=None) if group.kind in WINDOWED else group
        for group in layers
        if group not in windowed and group.kind in (LayerKind.FULL, LayerKind.LATENT, *WINDOWED)
    ]
    caches = []
    if full:
        caches.append(_cache(full, cells, streams, k_format, v_format, sliding=False))
    for window in dict.fromkeys(group.window or 0 for group in windowed):
        held = window * (slots if shared else 1) + ubatch
        size = cells if swa_full else min(cells, padded(held))
        plain = find_format("fp16")
        kept = (k_format, v_format) if quantised_window else (plain, plain)
        if k_format.bits >= 16:
            kept = (k_format, v_format)
        of_window = [group for group in windowed if group.window == window]
        caches.append(_cache(of_window, size, streams, *kept, sliding=True))
    return Plan(
        context=cells * streams,
        context_per_slot=cells,
        slots=slots,
        unified=shared,
        caches=tuple(caches),
        state=_state(layers, slots),
        model_layers=a.num_layers,
        notes=notes,
    )


def padded(tokens: int) -> int:
    """Tokens rounded up to whole runs of 256 cells."""
    return ceil_div(tokens, CELL_PADDING) * CELL_PADDING


def startup_lines(p: Plan) -> list[str]:
    """The lines llama.cpp prints about the caches, without timestamps."""
    lines = []
    both = len({cache.sliding for cache in p.caches}) == 2
    for cache in p.caches:
        if both:
            kind = "    SWA" if cache.sliding else "non-SWA"
            lines.append(
                f"llama_kv_cache_iswa: creating {kind} KV cache, size = {cache.cells} cells"
            )
        streams = cache.streams
        size = f"{cache.bytes / MIB:7.2f} MiB"
        shape = f"({cache.cells:6d} cells, {cache.layers:3d} layers, {p.slots:2d}/{streams} seqs)"
        lines.append(
            f"llama_kv_cache: size = {size} {shape}, "
            f"K ({_printed(cache.k_format)}): {cache.k_bytes / MIB:7.2f} MiB, "
            f"V ({_printed(cache.v_format)}): {cache.v_bytes / MIB:7.2f} MiB"
        )
    if p.state:
        lines.append(
            f"llama_memory_recurrent: size = {p.state.bytes / MIB:7.2f} MiB "
            f"({p.state.slots:6d} cells, {p.model_layers:3d} layers, {p.state.slots:2d} seqs), "
            f"R (f32): {p.state.r_bytes / MIB:7.2f} MiB, S (f32): {p.state.s_bytes / MIB:7.2f} MiB"
        )
    return lines


def _printed(name: str) -> str:
    return PRINTED_TYPES.get(name, name)


def _format(name: str) -> KVFormat:
    fmt = find_format(name)
    if "llama.cpp" not in fmt.engines:
        raise PlanError(
            f"llama.cpp has no cache type “{fmt.name}”; choose f16, bf16, f32 or one of "
            "q8_0 … q4_0."
        )
    return fmt


def _refuse_or_note(a: Architecture, layers: list[LayerGroup]) -> tuple[str, ...]:
    if not layers:
        raise PlanError(f"{a.name or 'This model'} keeps no cache, so there is nothing to plan.")
    if any(group.kind is LayerKind.CROSS_ATTENTION for group in layers):
        raise PlanError("llama.cpp's cross-attention cache is not modelled.")
    if any(group.tokens_per_entry != 1 for group in layers):
        raise PlanError("llama.cpp's layout of compressed attention is not modelled.")
    notes = []
    if any(group.kind is LayerKind.SPARSE_INDEX for group in layers):
        notes.append("The keys of the sparse index are not counted.")
    if a.model_type in IGNORES_WINDOW and any(group.kind in WINDOWED for group in layers):
        notes.append("llama.cpp ignores this model's window and keeps the whole context.")
    return tuple(notes)


def _cache(
    layers: list[LayerGroup],
    cells: int,
    streams: int,
    k_format: KVFormat,
    v_format: KVFormat,
    sliding: bool,
) -> CellCache:
    k_row = sum(group.count * _k_row(group, k_format) for group in layers)
    v_row = sum(group.count * _v_row(group, v_format) for group in layers)
    return CellCache(
        sliding=sliding,
        cells=cells,
        streams=streams,
        layers=sum(group.count for group in layers),
        k_format=k_format.name,
        v_format=v_format.name,
        k_bytes=cells * streams * k_row,
        v_bytes=cells * streams * v_row,
    )


def _k_row(group: LayerGroup, fmt: KVFormat) -> int:
    if group.kind is LayerKind.LATENT:
        return latent_bytes(fmt, group.latent_rank, group.rope_dim)
    return fmt.bytes_for(group.num_kv_heads, group.head_dim)


def _v_row(group: LayerGroup, fmt: KVFormat) -> int:
    if group.kind is LayerKind.LATENT:
        return 0
    return fmt.bytes_for(group.num_kv_heads, group.value_head_dim)


def _state(layers: list[LayerGroup], slots: int) -> StateCache | None:
    states = [group for group in layers if group.kind is LayerKind.RECURRENT]
    if not states:
        return None
    sizes = {True: 0, False: 0}
    for group in states:
        for tensor in group.state:
            convolution = tensor.name == CONVOLUTION
            sizes[convolution] += slots * group.count * tensor.bytes(dtype="fp32")
    return StateCache(sum(group.count for group in states), slots, sizes[True], sizes[False])
