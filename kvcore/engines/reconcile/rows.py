"""The rows of a reconciliation, and the settings it may be given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

AGREES = "agrees"
UNEXPLAINED = "unexplained"
NOT_LOGGED = "not in the log"


@dataclass(frozen=True)
class Settings:
    """What the user knows about a run. None: take it from the log, else the engine's default.

    available_gib: memory for the cache on each rank. context, slots, ubatch, unified, swa_full,
    quantised_window and value_format are llama.cpp's; page_size, mem_fraction_static,
    swa_full_tokens_ratio and state_ratio SGLang's; the others vLLM's, or common.
    """

    kv_format: str | None = None
    value_format: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    layers_per_stage: Sequence[int] | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    max_num_batched_tokens: int | None = None
    concurrent_batches: int | None = None
    prefix_caching: bool | None = None
    speculative_tokens: int | None = None
    version: str | None = None
    available_gib: float | Sequence[float] | None = None
    page_size: int | None = None
    mem_fraction_static: float | None = None
    swa_full_tokens_ratio: float | None = None
    state_ratio: float | None = None
    context: int | None = None
    slots: int | None = None
    ubatch: int | None = None
    unified: bool | None = None
    swa_full: bool | None = None
    quantised_window: bool | None = None

    @classmethod
    def read(cls, values: Settings | Mapping[str, object] | None) -> Settings:
        """Settings from a mapping; raises ValueError naming a key that is none of them."""
        if values is None:
            return cls()
        if isinstance(values, Settings):
            return values
        unknown = set(values) - {each.name for each in fields(cls)}
        if unknown:
            raise ValueError(f"“{sorted(unknown)[0]}” is not a setting of an engine.")
        return cls(**values)


@dataclass(frozen=True)
class Row:
    """One figure: predicted, logged, and the term that explains why they differ.

    tolerance: the largest difference that printing alone can cause, in `unit`.
    term: AGREES, NOT_LOGGED, UNEXPLAINED, or the name of the term.
    """

    figure: str
    predicted: float | None
    logged: float | None
    unit: str
    tolerance: float
    term: str
    explanation: str

    @property
    def agrees(self) -> bool:
        return self.term == AGREES

    @property
    def difference(self) -> float | None:
        if self.predicted is None or self.logged is None:
            return None
        return self.logged - self.predicted


@dataclass(frozen=True)
class Reconciliation:
    """All rows of one log.

    assumed: settings the log does not print and nobody gave, each a sentence.
    predicted_lines: the engine's own lines as its rules predict them.
    problem: the sentence that says why nothing could be predicted, or "".
    """

    engine: str
    rows: tuple[Row, ...]
    summary: str
    assumed: tuple[str, ...] = ()
    predicted_lines: tuple[str, ...] = ()
    used: Mapping[str, object] = field(default_factory=dict)
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Whether something was compared and all of it agrees."""
        compared = [row for row in self.rows if row.difference is not None]
        return bool(compared) and all(row.agrees for row in compared)


def reconciliation(
    engine: str,
    rows: Sequence[Row],
    assumed: Sequence[str],
    lines: Sequence[str],
    used: Mapping[str, object],
    problem: str = "",
) -> Reconciliation:
    """What an engine's rows come to; a problem takes the place of their summary."""
    return Reconciliation(
        engine, tuple(rows), problem or summarise(rows), tuple(assumed), tuple(lines), used, problem
    )


def within(predicted: float | None, logged: float | None, tolerance: float) -> bool:
    """Whether two figures differ by no more than printing can cause."""
    if predicted is None or logged is None:
        return False
    return abs(logged - predicted) <= tolerance + 1e-9


def compared(
    figure: str,
    predicted: float | None,
    logged: float | None,
    unit: str,
    tolerance: float,
    term: str,
    explanation: str,
) -> Row:
    """A row that agrees within tolerance, or else carries the term and its explanation."""
    if logged is None:
        return Row(figure, predicted, None, unit, tolerance, NOT_LOGGED, "The log does not say.")
    if within(predicted, logged, tolerance):
        return Row(figure, predicted, logged, unit, tolerance, AGREES, explanation or "")
    return Row(figure, predicted, logged, unit, tolerance, term, explanation)


def summarise(rows: Sequence[Row]) -> str:
    """One sentence: how many figures agree, and which terms explain the others."""
    told = [row for row in rows if row.difference is not None]
    if not told:
        return "The log has no figure that can be compared."
    agreeing = sum(row.agrees for row in told)
    if agreeing == len(told):
        return (
            f"All {len(told)} figures agree with the log."
            if len(told) > 1
            else ("The figure agrees with the log.")
        )
    terms = dict.fromkeys(row.term for row in told if not row.agrees and row.term != UNEXPLAINED)
    start = f"{agreeing} of {len(told)} figures agree with the log"
    if terms:
        return f"{start}; the difference is explained by: {', '.join(terms)}."
    return f"{start}; nothing known here explains the rest. Check the model and the settings."
