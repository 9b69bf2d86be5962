"""A llama.cpp log beside llama.cpp's rules: each cache, its cells, and the recurrent states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kvcore.architecture import WINDOWED, Architecture
from kvcore.engines import llamacpp
from kvcore.engines.common import PlanError
from kvcore.engines.logs import KvBuffer, LlamaCppLog
from kvcore.engines.reconcile.rows import (
    NOT_LOGGED,
    UNEXPLAINED,
    Reconciliation,
    Row,
    Settings,
    compared,
    reconciliation,
    within,
)
from kvcore.formats import FormatError, find_format
from kvcore.units import MIB

PRINTED_MIB = 0.005


@dataclass(frozen=True)
class Inputs:
    """Settled settings of one context."""

    a: Architecture
    context: int
    kv_format: str
    value_format: str
    slots: int
    unified: bool
    ubatch: int
    swa_full: bool
    quantised_window: bool

    def plan(self) -> llamacpp.Plan:
        return llamacpp.plan(
            self.a,
            self.context,
            self.kv_format,
            value_format=self.value_format,
            slots=self.slots,
            unified=self.unified,
            ubatch=self.ubatch,
            swa_full=self.swa_full,
            quantised_window=self.quantised_window,
        )


def compare(log: LlamaCppLog, a: Architecture, settings: Settings) -> Reconciliation:
    """Rows for the full and the window cache (cells and MiB) and for the recurrent states."""
    inputs, assumed = _settle(log, a, settings)
    rows: list[Row] = []
    lines: tuple[str, ...] = ()
    problem = ""
    try:
        p = inputs.plan()
        rows += _cache_rows(log, inputs, p)
        rows += _state_row(log, inputs, p)
        lines = tuple(llamacpp.startup_lines(p))
    except (PlanError, FormatError) as error:
        problem = str(error)
    used = {
        "context": inputs.context,
        "kv_format": inputs.kv_format,
        "value_format": inputs.value_format,
        "slots": inputs.slots,
        "unified": inputs.unified,
        "ubatch": inputs.ubatch,
    }
    return reconciliation("llama.cpp", rows, assumed, lines, used, problem)


def _settle(log: LlamaCppLog, a: Architecture, settings: Settings) -> tuple[Inputs, list[str]]:
    assumed: list[str] = []
    full = _logged_cache(log, sliding=False)
    any_cache = full or (log.caches[0] if log.caches else None)
    slots = settings.slots or log.slots or (any_cache.slots if any_cache else None)
    states = log.states[0] if log.states else None
    slots = slots or (states.slots if states else None)
    if slots is None:
        slots = 1
        assumed.append("slots is 1: the log does not print n_seq_max.")
    streams = any_cache.streams if any_cache else None
    unified = settings.unified if settings.unified is not None else log.unified
    if unified is None:
        unified = streams == 1 if streams else slots == 1
    context = settings.context or log.context
    if context is None and full and full.cells:
        context = full.cells * (1 if unified else slots)
    if context is None:
        context = a.max_context or 4096
        assumed.append(f"context is {context:,}: the log does not print n_ctx.")
    ubatch = settings.ubatch or log.ubatch
    if ubatch is None:
        ubatch = llamacpp.DEFAULT_UBATCH
        if any(group.kind in WINDOWED for group in a.layers):
            assumed.append(f"ubatch is {ubatch}: llama.cpp's default.")
    k_format = settings.kv_format or (any_cache.k_type if any_cache else None) or "f16"
    v_format = settings.value_format or (any_cache.v_type if any_cache else None) or k_format
    known = []
    for name in (k_format, v_format):
        try:
            known.append(find_format(name).name)
        except FormatError:
            assumed.append(f"the cache type is f16: “{name}” is not one known here.")
            known.append("fp16")
    return (
        Inputs(
            a=a,
            context=max(1, context),
            kv_format=known[0],
            value_format=known[1],
            slots=max(1, slots),
            unified=unified,
            ubatch=max(1, ubatch),
            swa_full=bool(settings.swa_full if settings.swa_full is not None else log.swa_full),
            quantised_window=bool(settings.quantised_window),
        ),
        assumed,
    )


def _logged_cache(log: LlamaCppLog, sliding: bool) -> KvBuffer | None:
    """The model's own cache: the first of its kind (a drafter's comes later)."""
    return next((cache for cache in log.caches if cache.sliding is sliding), None)


def _cache_rows(log: LlamaCppLog, inputs: Inputs, p: llamacpp.Plan) -> Iterator[Row]:
    for sliding in (False, True):
        planned = next((cache for cache in p.caches if cache.sliding is sliding), None)
        logged = _logged_cache(log, sliding)
        name = "Window cache" if sliding else "KV cache"
        if planned is None and logged is None:
            continue
        if planned is None:
            yield Row(
                name,
                None,
                logged.mib,
                "MiB",
                PRINTED_MIB,
                UNEXPLAINED,
                "The model has no such layers; check that it is the one in the log.",
            )
            continue
        if logged is None:
            yield Row(
                name,
                planned.bytes / MIB,
                None,
                "MiB",
                PRINTED_MIB,
                NOT_LOGGED,
                "The log has no such cache.",
            )
            continue
        yield from _one_cache(name, sliding, planned, logged, inputs)


def _one_cache(
    name: str,
    sliding: bool,
    planned: llamacpp.CellCache,
    logged: KvBuffer,
    inputs: Inputs,
) -> Iterator[Row]:
    per_cell = planned.bytes / (planned.cells * planned.streams)
    words = (
        f"{planned.cells:,} cells × {planned.streams} × {planned.layers} layers at "
        f"{per_cell:,.0f} bytes per cell."
    )

    def cells(p: llamacpp.Plan) -> float | None:
        return _attribute(p, sliding, lambda cache: cache.cells)

    def mib(p: llamacpp.Plan) -> float | None:
        return _attribute(p, sliding, lambda cache: cache.bytes / MIB)

    if logged.cells is not None:
        term, sentence = _explain(inputs, cells, logged.cells, 0)
        yield compared(
            f"{name}: cells",
            planned.cells,
            logged.cells,
            "cells",
            0,
            term,
            f"{sentence} {words}" if planned.cells != logged.cells else words,
        )
    term, sentence = _explain(inputs, mib, logged.mib, PRINTED_MIB)
    agrees = within(planned.bytes / MIB, logged.mib, PRINTED_MIB)
    yield compared(
        f"{name}: size",
        planned.bytes / MIB,
        logged.mib,
        "MiB",
        PRINTED_MIB,
        term,
        words if agrees else f"{sentence} {words}",
    )


def _attribute(
    p: llamacpp.Plan, sliding: bool, read: Callable[[llamacpp.CellCache], float]
) -> float | None:
    cache = next((each for each in p.caches if each.sliding is sliding), None)
    return None if cache is None else read(cache)


def _explain(
    inputs: Inputs,
    measure: Callable[[llamacpp.Plan], float | None],
    logged: float,
    tolerance: float,
) -> tuple[str, str]:
    for term, changed, sentence in _guesses(inputs):
        try:
            value = measure(changed.plan())
        except (PlanError, FormatError):
            continue
        if within(value, logged, tolerance):
            return term, sentence
    return UNEXPLAINED, "No single setting tried here gives the logged figure."


def _guesses(inputs: Inputs) -> Iterator[tuple[str, Inputs, str]]:
    """Changes worth trying, the likeliest first."""
    for size in (128, 256, 512, 1024, 2048, 4096):
        if size != inputs.ubatch:
            yield (
                "window in flight",
                replace(inputs, ubatch=size),
                f"The log fits {size:,} tokens computed at once (ubatch), not {inputs.ubatch:,}.",
            )
    yield (
        "window precision",
        replace(inputs, quantised_window=not inputs.quantised_window),
        "The log fits a window part that takes the cache type of the rest."
        if not inputs.quantised_window
        else "The log fits a window part that stays F16.",
    )
    yield (
        "windows kept in full",
        replace(inputs, swa_full=not inputs.swa_full),
        f"The log fits --swa-full {'off' if inputs.swa_full else 'on'}.",
    )
    if inputs.slots > 1:
        yield (
            "slots and streams",
            replace(inputs, unified=not inputs.unified),
            "The log fits "
            + ("one context per slot." if inputs.unified else "one context shared by all slots."),
        )
    for count in (1, 2, 4, 8):
        if count != inputs.slots:
            yield (
                "slots and streams",
                replace(inputs, slots=count),
                f"The log fits {count} slots, not {inputs.slots}.",
            )
    for name in ("fp16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "fp32"):
        if name != inputs.kv_format:
            yield (
                "KV precision",
                replace(inputs, kv_format=name, value_format=name),
                f"The log fits a cache stored as {name}.",
            )


def _state_row(log: LlamaCppLog, inputs: Inputs, p: llamacpp.Plan) -> Iterator[Row]:
    logged = log.states[0] if log.states else None
    if p.state is None and logged is None:
        return
    if p.state is None:
        yield Row(
            "Recurrent states",
            None,
            logged.mib,
            "MiB",
            PRINTED_MIB,
            UNEXPLAINED,
            "The model has no such layers; check that it is the one in the log.",
        )
        return
    words = f"{p.state.layers} layers × {p.state.slots} slots, everything in f32."

    def mib(each: llamacpp.Plan) -> float | None:
        return each.state.bytes / MIB if each.state else None

    term, sentence = UNEXPLAINED, words
    if logged is not None and not within(p.state.bytes / MIB, logged.mib, PRINTED_MIB):
        term, said = _explain(inputs, mib, logged.mib, PRINTED_MIB)
        sentence = f"{said} {words}"
        narrow = inputs.slots * inputs.a.state_bytes() / MIB
        if term == UNEXPLAINED and within(narrow, logged.mib, PRINTED_MIB):
            term = "state precision"
            sentence = f"The log fits the model's own precision for the convolution part. {words}"
    yield compared(
        "Recurrent states",
        p.state.bytes / MIB,
        logged.mib if logged else None,
        "MiB",
        PRINTED_MIB,
        term,
        sentence,
    )
