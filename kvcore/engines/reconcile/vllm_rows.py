"""A vLLM log beside vLLM's rules.

vLLM prints memory with two decimals of GiB, so the true amount is known to ±0.005 GiB and the
number of blocks to a small range. A prediction agrees if some block count in that range gives
exactly the printed tokens and concurrency. If none does, one setting after another is changed, and
the first change that reproduces the log names the term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kvcore.architecture import Architecture
from kvcore.engines import vllm
from kvcore.engines.common import PlanError, version_tuple
from kvcore.engines.logs import VllmLog
from kvcore.engines.reconcile.rows import (
    AGREES,
    NOT_LOGGED,
    UNEXPLAINED,
    Reconciliation,
    Row,
    Settings,
    compared,
    reconciliation,
    within,
)
from kvcore.engines.reconcile.vllm_guesses import Guess, guesses
from kvcore.engines.reconcile.vllm_inputs import (
    Inputs,
    memory_of_ranks,
    rank_bytes,
    settle,
    used,
)
from kvcore.engines.reconcile.vllm_search import (
    PRINTED_CONCURRENCY,
    PRINTED_GIB,
    Printed,
    about,
    explain,
    first_candidate,
    matching_blocks,
)
from kvcore.formats import FormatError
from kvcore.units import GIB, gib

WORTH_SAYING = 0.01
NO_MEMORY = "no memory left"


def compare(log: VllmLog, a: Architecture, settings: Settings) -> Reconciliation:
    """Rows for memory, blocks, tokens, concurrency and what one request needs."""
    inputs, assumed = settle(log, a, settings)
    memory = memory_of_ranks(log, settings, inputs)
    rows = [*_budget_rows(log, inputs, memory)]
    lines: list[str] = []
    problem = ""
    try:
        shape = inputs.plan(None, num_blocks=1)
        if log.aligned_block_size is not None or shape.raised_block_size:
            rows.append(_block_size_row(log, inputs, shape))
        pool, planned = _pool(log, inputs, memory)
        rows += pool
        rows += _request_rows(log, inputs)
        lines = _predicted_lines(log, inputs, planned)
    except (PlanError, FormatError) as error:
        problem = str(error)
    return reconciliation("vllm", rows, assumed, lines, used(inputs, memory), problem)


def _budget_rows(log: VllmLog, inputs: Inputs, memory: list[float] | None) -> Iterator[Row]:
    """Total × utilisation − what is not cache, against the memory printed."""
    if log.total_gib is None or log.utilisation is None:
        return
    share = log.total_gib * log.utilisation
    known = _known_consumption(log)
    logged = min(memory) if memory else None
    counted = version_tuple(inputs.version) >= vllm.GRAPHS_COUNTED_SINCE
    graphs = log.graphs_estimated_gib if log.graphs_estimated_gib is not None else log.graphs_gib
    subtracted = max(0.0, graphs or 0.0) if counted else 0.0
    if known is None:
        if log.weights_gib is None:
            return
        left = share - log.weights_gib
        extra = left - logged if logged is not None else 0.0
        yield compared(
            "Memory for the cache",
            left,
            logged,
            "GiB",
            PRINTED_GIB,
            "activation peak, graphs and memory outside torch",
            f"{log.total_gib} × {log.utilisation} − {log.weights_gib} for weights leaves "
            f"{left:.2f} GiB; {extra:.2f} GiB more went to the activation peak, CUDA graphs and "
            "memory outside torch.",
        )
        return
    parts, sentence = known
    predicted = share - parts - subtracted
    tolerance = PRINTED_GIB * 5
    arithmetic = f"{log.total_gib} × {log.utilisation} − {sentence}"
    if subtracted:
        arithmetic += f" − {subtracted:.2f} for CUDA graphs"
    term, words = UNEXPLAINED, f"{arithmetic} = {predicted:.2f} GiB."
    if logged is not None and graphs:
        other = share - parts - (0.0 if counted else graphs)
        if within(other, logged, tolerance):
            term = "CUDA graphs"
            words += (
                f" The log matches if {graphs:.2f} GiB of CUDA graphs are "
                f"{'not ' if counted else ''}subtracted; they are since 0.21."
            )
    yield compared("Memory for the cache", predicted, logged, "GiB", tolerance, term, words)


def _known_consumption(log: VllmLog) -> tuple[float, str] | None:
    """GiB that are not cache, from whichever set of figures the version prints."""
    outside = log.non_torch_gib or 0.0
    if log.peak_torch_gib is not None:
        return (
            log.peak_torch_gib + outside,
            f"{log.peak_torch_gib:.2f} for weights and activation peak − {outside:.2f} outside "
            "torch",
        )
    if log.consumed_gib is not None and log.activation_gib is not None:
        return (
            log.consumed_gib + log.activation_gib,
            f"{log.consumed_gib:.2f} for weights and memory outside torch − "
            f"{log.activation_gib:.2f} for the activation peak",
        )
    if log.weights_gib is not None and log.activation_gib is not None:
        return (
            log.weights_gib + log.activation_gib + outside,
            f"{log.weights_gib:.2f} for weights − {log.activation_gib:.2f} for the activation "
            f"peak − {outside:.2f} outside torch",
        )
    return None


def _pool(
    log: VllmLog, inputs: Inputs, memory: list[float] | None
) -> tuple[list[Row], vllm.Plan | None]:
    """Rows for blocks, tokens and concurrency, and the plan they were predicted with."""
    logged = Printed.of(log)
    if memory is None:
        return _without_memory(inputs, logged)
    if min(memory) <= 0:
        words = f"{min(memory):.2f} GiB is left for the cache, so vLLM stops here."
        return [Row("Blocks", 0, logged.blocks, "blocks", 0, NO_MEMORY, words)], None
    middle = inputs.plan(rank_bytes(memory, inputs))
    found = matching_blocks(inputs, memory, logged)
    if found is not None:
        best = inputs.plan(rank_bytes(memory, inputs), num_blocks=found)
        return _three_rows(best, logged, AGREES, _exact_words(best, middle)), best
    guess, blocks = explain(inputs, memory, logged)
    if guess is None:
        words = (
            f"{min(memory):.2f} GiB in blocks of {middle.bytes_per_block:,} bytes are "
            f"{middle.num_blocks:,} blocks; no single setting tried here gives the logged figures."
        )
        return _three_rows(middle, logged, UNEXPLAINED, words), middle
    words = f"{guess.sentence} The log then fits {blocks:,} blocks."
    return _three_rows(middle, logged, guess.term, words), middle


def _three_rows(p: vllm.Plan, logged: Printed, term: str, words: str) -> list[Row]:
    old = version_tuple(p.version) < vllm.CONCURRENCY_TOKENS_SINCE and len(p.groups) > 1
    note = " Up to 0.20 tokens were counted as blocks ÷ groups × block size." if old else ""
    return [
        compared("Blocks", p.num_blocks, logged.blocks, "blocks", 0, term, words),
        compared(
            "KV cache size", p.kv_cache_tokens, logged.tokens, "tokens", 0, term, words + note
        ),
        compared(
            f"Concurrency at {p.max_model_len:,} tokens",
            p.max_concurrency,
            logged.concurrency,
            "×",
            PRINTED_CONCURRENCY,
            term,
            words,
        ),
    ]


def _exact_words(best: vllm.Plan, middle: vllm.Plan) -> str:
    words = f"{best.num_blocks:,} blocks of {best.bytes_per_block:,} bytes per rank."
    plain = middle.plain_tokens
    if plain is not None and abs(plain - best.kv_cache_tokens) > WORTH_SAYING * plain:
        words += f" Memory ÷ bytes per token would say {plain:,} tokens."
    over = ", ".join(f"{each.term} {gib(each.bytes)}" for each in best.overheads)
    return f"{words} Beyond its need a request reserves: {over}." if over else words


def _without_memory(inputs: Inputs, logged: Printed) -> tuple[list[Row], vllm.Plan | None]:
    """No memory printed: the figures can still be checked against each other."""
    if logged.empty:
        return [], None
    found = first_candidate(inputs, logged)
    if found is not None:
        p = inputs.plan(None, num_blocks=found)
        words = (
            f"{found:,} blocks of {p.bytes_per_block:,} bytes are {gib(p.pool_bytes)} on each "
            "rank; the log does not print the memory."
        )
        memory = Row(
            "Memory for the cache", p.pool_bytes / GIB, None, "GiB", PRINTED_GIB, NOT_LOGGED, words
        )
        return [*_three_rows(p, logged, AGREES, words), memory], p
    for guess in guesses(inputs):
        found = first_candidate(guess.inputs, logged)
        if found is not None:
            stated = inputs.plan(None, num_blocks=found)
            explained = guess.inputs.plan(None, num_blocks=found)
            return _three_rows(stated, logged, guess.term, guess.sentence), explained
    p = inputs.plan(None, num_blocks=about(inputs, logged))
    words = "The printed figures do not belong together for this model and length."
    return _three_rows(p, logged, UNEXPLAINED, words), p


def _block_size_row(log: VllmLog, inputs: Inputs, shape: vllm.Plan) -> Row:
    logged = log.aligned_block_size
    words = (
        f"A state takes {shape.state_page_used:,} bytes per layer, so attention blocks grow to "
        f"{shape.block_size:,} tokens."
    )
    term = UNEXPLAINED
    if logged is not None and logged != shape.block_size:
        for guess in guesses(inputs):
            if _planned_block_size(guess.inputs) == logged:
                term, words = guess.term, guess.sentence
                break
    return compared("Attention block size", shape.block_size, logged, "tokens", 0, term, words)


def _planned_block_size(inputs: Inputs) -> int | None:
    try:
        return inputs.plan(None, num_blocks=1).block_size
    except (PlanError, FormatError):
        return None


def _request_rows(log: VllmLog, inputs: Inputs) -> Iterator[Row]:
    """What one request needs, from the message vLLM stops with."""
    if log.needed_gib is None:
        return
    length = log.needed_for_tokens or inputs.max_model_len
    asked = replace(inputs, max_model_len=max(1, length))

    def needed(each: Inputs) -> float | None:
        try:
            p = each.plan(None, num_blocks=1)
        except (PlanError, FormatError):
            return None
        return max(rank.bytes_per_request for rank in p.ranks) / GIB

    predicted = needed(asked)
    own = asked.a.cache_bytes(asked.max_model_len, asked.kv_format, asked.tensor_parallel) / GIB
    words = f"The architecture alone needs {own:.3f} GiB for {length:,} tokens."
    term, sentence = _first_fit(guesses(asked), needed, log.needed_gib)
    agrees = within(predicted, log.needed_gib, PRINTED_GIB)
    yield compared(
        f"One request of {length:,} tokens",
        predicted,
        log.needed_gib,
        "GiB",
        PRINTED_GIB,
        term,
        words if agrees else f"{sentence} {words}",
    )


def _first_fit(
    guesses: Iterator[Guess], measure: Callable[[Inputs], float | None], logged: float
) -> tuple[str, str]:
    for guess in guesses:
        if guess.scale != 1.0 or guess.term == "version meaning":
            continue
        value = measure(guess.inputs)
        if within(value, logged, PRINTED_GIB):
            return guess.term, guess.sentence
    return UNEXPLAINED, "No single setting tried here gives the logged amount."


def _predicted_lines(log: VllmLog, inputs: Inputs, p: vllm.Plan | None) -> list[str]:
    if p is None:
        return []
    printed = replace(p, device=log.device or "GPU")
    if printed.fits:
        return vllm.startup_lines(printed)
    memory = [rank.available_bytes for rank in p.ranks]
    longest = vllm.longest_context(inputs.a, memory, inputs.max_model_len, **inputs.settings())
    return vllm.startup_lines(printed, longest)
