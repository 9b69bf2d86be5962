"""An SGLang log beside SGLang's rules. Its GB are GiB, printed with two decimals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvcore.architecture import WINDOWED, Architecture
from kvcore.engines import sglang
from kvcore.engines.common import PlanError
from kvcore.engines.logs import Reading, SglangLog
from kvcore.engines.reconcile.rows import (
    AGREES,
    UNEXPLAINED,
    Reconciliation,
    Row,
    Settings,
    compared,
    reconciliation,
    within,
)
from kvcore.formats import FormatError, find_format
from kvcore.units import GB, GIB

PRINTED_GIB = 0.005
FORMATS_TRIED = ("bf16", "fp8", "fp8_ds_mla", "nvfp4", "fp32")
HELD_BACK = 0.10
"""A pool at most this share below the prediction may be another rank's minimum."""


@dataclass(frozen=True)
class Inputs:
    """Settled settings of one rank."""

    a: Architecture
    kv_format: str
    tensor_parallel: int
    page_size: int
    swa_full_tokens_ratio: float
    state_ratio: float

    def plan(self, available: int | None, tokens: int | None = None) -> sglang.Plan:
        return sglang.plan(
            self.a,
            available,
            kv_format=self.kv_format,
            tensor_parallel=self.tensor_parallel,
            page_size=self.page_size,
            swa_full_tokens_ratio=self.swa_full_tokens_ratio,
            state_ratio=self.state_ratio,
            tokens=tokens,
        )


@dataclass(frozen=True)
class Printed:
    """The pools as printed, None where a figure is missing."""

    tokens: int | None
    k_gib: float | None
    v_gib: float | None
    kv_gib: float | None


def compare(log: SglangLog, a: Architecture, settings: Settings) -> Reconciliation:
    """Rows for the memory left, the tokens, the sizes of K and V, the window and state pools."""
    inputs, assumed = _settle(log, a, settings)
    printed = Printed(
        _least(log.tokens) or log.full_layer_tokens or log.max_total_tokens,
        _least(log.k_gib),
        _least(log.v_gib),
        _least(log.kv_gib),
    )
    rows: list[Row] = []
    lines: tuple[str, ...] = ()
    problem = ""
    try:
        pool = _pool_range(log, settings)
        if pool:
            rows += _token_rows(log, inputs, pool, printed)
        rows += _size_rows(log, inputs, printed)
        lines = tuple(_lines(inputs, pool, printed))
    except (PlanError, FormatError) as error:
        problem = str(error)
    used = {
        "kv_format": inputs.kv_format,
        "tensor_parallel": inputs.tensor_parallel,
        "page_size": inputs.page_size,
        "swa_full_tokens_ratio": inputs.swa_full_tokens_ratio,
        "mem_fraction_static": settings.mem_fraction_static or log.mem_fraction_static,
    }
    return reconciliation("sglang", rows, assumed, lines, used, problem)


def _settle(log: SglangLog, a: Architecture, settings: Settings) -> tuple[Inputs, list[str]]:
    assumed: list[str] = []
    ranks = settings.tensor_parallel or _attention_ranks(log)
    if ranks is None:
        ranks = 1
        assumed.append("tensor_parallel is 1: the log does not print it.")
    name = settings.kv_format or log.kv_cache_dtype or "auto"
    fallback = a.kv_dtype or a.model_dtype or "bf16"
    try:
        kv_format = fallback if name == "auto" else find_format(name).name
    except FormatError:
        kv_format = "bf16"
        assumed.append(f"kv_format is bf16: “{name}” is not a format known here.")
    if name == "auto":
        assumed.append(f"kv_format is {fallback}: the log does not print the KV cache dtype.")
    ratio = settings.swa_full_tokens_ratio or log.swa_full_tokens_ratio
    if ratio is None and any(group.kind in WINDOWED for group in a.layers):
        assumed.append(f"swa_full_tokens_ratio is {sglang.DEFAULT_SWA_RATIO}: SGLang's default.")
    return (
        Inputs(
            a,
            kv_format,
            max(1, ranks),
            max(1, settings.page_size or log.page_size or 1),
            ratio or sglang.DEFAULT_SWA_RATIO,
            settings.state_ratio or sglang.DEFAULT_STATE_RATIO,
        ),
        assumed,
    )


def _attention_ranks(log: SglangLog) -> int | None:
    """Ranks that share the attention heads: with data-parallel attention only tp ÷ dp."""
    if log.tensor_parallel and log.dp_attention and log.data_parallel:
        return max(1, log.tensor_parallel // log.data_parallel)
    return log.tensor_parallel


def _least(readings: list[Reading]) -> float | None:
    """The smallest over ranks of what each rank printed first (a drafter prints later)."""
    first: dict[str, float] = {}
    for reading in readings:
        first.setdefault(reading.rank, reading.value)
    value = min(first.values(), default=None)
    return int(value) if value is not None and value == int(value) else value


def _pool_range(log: SglangLog, settings: Settings) -> tuple[int, int, int] | None:
    """Bytes for the pools: at least, about, at most, given two printed decimals."""
    given = settings.available_gib
    if given is not None:
        gib = given if isinstance(given, (int, float)) else min(given)
        return tuple(int((gib + shift) * GIB) for shift in (-PRINTED_GIB, 0.0, PRINTED_GIB))
    before, after = _least(log.free_before_load), _least(log.free_after_load)
    share = settings.mem_fraction_static or log.mem_fraction_static
    if before is None or after is None or not share:
        return None

    def left(shift: float) -> int:
        return sglang.pool_bytes(
            int((before - shift) * GIB), int((after + shift) * GIB), mem_fraction_static=share
        )

    return left(-PRINTED_GIB), left(0.0), left(PRINTED_GIB)


def _token_rows(
    log: SglangLog, inputs: Inputs, pool: tuple[int, int, int], printed: Printed
) -> Iterator[Row]:
    low, middle, high = pool
    if middle <= 0:
        yield Row(
            "KV cache size",
            0,
            printed.tokens,
            "tokens",
            0,
            "no memory left",
            f"{middle / GIB:.2f} GiB is left for the pools, so SGLang stops here.",
        )
        return
    p = inputs.plan(middle)
    spread = max(1, inputs.plan(high).tokens - inputs.plan(max(1, low)).tokens)
    words = (
        f"{middle / GIB:.2f} GiB left of mem_fraction_static ÷ {p.cell_bytes:,.0f} bytes per token."
    )
    term, sentence = UNEXPLAINED, words
    if printed.tokens is not None and abs(p.tokens - printed.tokens) > spread:
        term, sentence = _explain_tokens(log, inputs, pool, printed.tokens, words)
    yield compared("KV cache size", p.tokens, printed.tokens, "tokens", spread, term, sentence)
    if p.state_slots is not None:
        yield compared(
            "State slots",
            p.state_slots,
            log.state_slots,
            "sequences",
            2,
            "state share",
            "The share of memory for states (mamba_full_memory_ratio, or a fixed "
            "max_mamba_cache_size) is another than assumed.",
        )


def _explain_tokens(
    log: SglangLog, inputs: Inputs, pool: tuple[int, int, int], logged: int, words: str
) -> tuple[str, str]:
    if log.max_total_tokens and log.max_total_tokens == logged and _capped(inputs, pool, logged):
        return (
            "token limit",
            f"The log has fewer tokens than fit: max_total_tokens was set. {words}",
        )
    for term, changed, sentence in _guesses(inputs):
        try:
            low, high = changed.plan(max(1, pool[0])).tokens, changed.plan(pool[2]).tokens
        except (PlanError, FormatError):
            continue
        if low <= logged <= high:
            return term, f"{sentence} {words}"
    fitting = inputs.plan(pool[1])
    if fitting.tokens * (1 - HELD_BACK) <= logged < fitting.tokens:
        missing = (fitting.tokens - logged) * fitting.cell_bytes / GIB
        term = "rank minimum" if inputs.tensor_parallel > 1 else "headroom"
        reason = (
            "another rank has less free memory, and the pool is the minimum over ranks"
            if inputs.tensor_parallel > 1
            else "memory was taken between loading and sizing"
        )
        return term, f"{missing:.2f} GiB fewer were used: {reason}. {words}"
    return UNEXPLAINED, f"No single setting tried here gives the logged tokens. {words}"


def _capped(inputs: Inputs, pool: tuple[int, int, int], logged: int) -> bool:
    """Round numbers well below what fits are set, not derived."""
    return logged % 1024 == 0 and logged < inputs.plan(max(1, pool[0])).tokens


def _guesses(inputs: Inputs) -> Iterator[tuple[str, Inputs, str]]:
    now = inputs.a.storage_format(inputs.kv_format).name
    for name in FORMATS_TRIED:
        if inputs.a.storage_format(name).name != now:
            yield (
                "KV precision",
                replace(inputs, kv_format=name),
                f"The log fits a cache stored as {name}, not {now}.",
            )
    for ranks in (1, 2, 4, 8, 16):
        if ranks != inputs.tensor_parallel:
            yield (
                "tensor parallelism",
                replace(inputs, tensor_parallel=ranks),
                f"The log fits attention split over {ranks} ranks, not {inputs.tensor_parallel}.",
            )
    for size in (16, 32, 64, 128, 256):
        if size != inputs.page_size:
            yield (
                "page size",
                replace(inputs, page_size=size),
                f"The log fits pages of {size} tokens.",
            )
    if any(group.kind in WINDOWED for group in inputs.a.layers):
        for ratio in (1.0, 0.5, 0.25, 0.2, 0.1, 0.05):
            yield (
                "window ratio",
                replace(inputs, swa_full_tokens_ratio=ratio),
                f"The log fits swa_full_tokens_ratio {ratio}, not {inputs.swa_full_tokens_ratio}.",
            )


def _size_rows(log: SglangLog, inputs: Inputs, printed: Printed) -> Iterator[Row]:
    """What the printed tokens weigh."""
    if printed.tokens is None:
        return
    p = inputs.plan(None, tokens=printed.tokens)
    windowed = p.window_tokens is not None
    if not windowed and (printed.k_gib is not None or p.k_bytes):
        for figure, size, logged in (
            ("Keys", p.k_bytes, printed.k_gib),
            ("Values", p.v_bytes, printed.v_gib),
        ):
            yield _size_row(figure, size, logged, inputs, printed, figure == "Keys")
    if not windowed and (p.latent_bytes or printed.kv_gib is not None):
        yield _latent_row(p, inputs, printed)
    if windowed:
        yield compared(
            "Window pool",
            p.window_tokens,
            log.swa_layer_tokens,
            "tokens",
            inputs.page_size,
            "window ratio",
            _ratio_words(log, inputs, printed.tokens),
        )
    if log.state_slots is not None and inputs.a.is_hybrid:
        yield from _state_rows(log, inputs)


def _ratio_words(log: SglangLog, inputs: Inputs, tokens: int) -> str:
    assumed = inputs.swa_full_tokens_ratio
    if not log.swa_layer_tokens or not tokens:
        return f"Window tokens are {assumed} of the full ones."
    return f"Window tokens are {log.swa_layer_tokens / tokens:.3f} of the full ones, not {assumed}."


def _size_row(
    figure: str, size: int, logged: float | None, inputs: Inputs, printed: Printed, keys: bool
) -> Row:
    words = (
        f"{printed.tokens:,} tokens weigh {size / GIB:.3f} GiB, which is {size / GB:.2f} GB: "
        "SGLang's GB are GiB."
    )
    term, sentence = UNEXPLAINED, f"No single setting tried here gives the logged size. {words}"
    if logged is not None:
        for name, changed, said in _guesses(inputs):
            try:
                other = changed.plan(None, tokens=printed.tokens)
            except (PlanError, FormatError):
                continue
            if within((other.k_bytes if keys else other.v_bytes) / GIB, logged, PRINTED_GIB):
                term, sentence = name, f"{said} {words}"
                break
    row = compared(figure, size / GIB, logged, "GiB", PRINTED_GIB, term, sentence)
    return replace(row, explanation=words) if row.term == AGREES else row


def _latent_row(p: sglang.Plan, inputs: Inputs, printed: Printed) -> Row:
    """Latent attention prints one size; whether the index keys are in it depends on the version."""
    total = (p.latent_bytes + p.index_bytes) / GIB
    words = (
        f"{printed.tokens:,} tokens weigh {p.latent_bytes / GIB:.3f} GiB, "
        f"and {p.index_bytes / GIB:.3f} GiB of index keys."
        if p.index_bytes
        else f"{printed.tokens:,} tokens weigh {total:.3f} GiB; SGLang's GB are GiB."
    )
    term, sentence = UNEXPLAINED, f"No single setting tried here gives the logged size. {words}"
    logged = printed.kv_gib
    if logged is not None:
        if within(p.latent_bytes / GIB, logged, PRINTED_GIB):
            term, sentence = "index keys", f"The log counts the latent vectors only. {words}"
        else:
            for name, changed, said in _guesses(inputs):
                try:
                    other = changed.plan(None, tokens=printed.tokens)
                except (PlanError, FormatError):
                    continue
                sizes = (other.latent_bytes, other.latent_bytes + other.index_bytes)
                if any(within(each / GIB, logged, PRINTED_GIB) for each in sizes):
                    term, sentence = name, f"{said} {words}"
                    break
    row = compared("Latent vectors and index", total, logged, "GiB", PRINTED_GIB, term, sentence)
    return replace(row, explanation=words) if row.term == AGREES else row


def _state_rows(log: SglangLog, inputs: Inputs) -> Iterator[Row]:
    """States of the printed slots, plus the spare one."""
    convolution, matrix = sglang.state_bytes(inputs.a, log.state_slots, inputs.tensor_parallel)
    words = f"{log.state_slots:,} slots and a spare one, one state each."
    for figure, size, logged in (
        ("Convolution states", convolution, log.conv_state_gib),
        ("Recurrent states", matrix, log.ssm_state_gib),
    ):
        term, sentence = UNEXPLAINED, words
        if logged and abs(size / GIB / logged - 2) < 0.05:
            term, sentence = "state precision", f"The log fits states of half the width. {words}"
        elif logged and abs(logged * GIB / size - 2) < 0.05:
            term, sentence = "state precision", f"The log fits states of twice the width. {words}"
        yield compared(figure, size / GIB, logged, "GiB", PRINTED_GIB, term, sentence)


def _lines(inputs: Inputs, pool: tuple[int, int, int] | None, printed: Printed) -> list[str]:
    if pool and pool[1] > 0:
        return sglang.startup_lines(inputs.plan(pool[1]))
    if printed.tokens is not None:
        return sglang.startup_lines(inputs.plan(None, tokens=printed.tokens))
    return []
