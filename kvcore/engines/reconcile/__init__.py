"""Put what an engine printed beside what its rules predict, and name what makes the difference."""

from __future__ import annotations

from collections.abc import Mapping

from kvcore.architecture import Architecture
from kvcore.engines.logs import EngineLog, LlamaCppLog, SglangLog, VllmLog
from kvcore.engines.reconcile import llamacpp_rows, sglang_rows, vllm_rows
from kvcore.engines.reconcile.rows import (
    AGREES,
    NOT_LOGGED,
    UNEXPLAINED,
    Reconciliation,
    Row,
    Settings,
)

__all__ = ["AGREES", "NOT_LOGGED", "UNEXPLAINED", "Reconciliation", "Row", "Settings", "reconcile"]


def reconcile(
    log: EngineLog,
    a: Architecture,
    settings: Settings | Mapping[str, object] | None = None,
) -> Reconciliation:
    """Predict what the log should say for this architecture, and compare figure by figure.

    A model that does not fit the log is no error: the rows then say that nothing explains the gap.
    Raises ValueError for a setting that does not exist.
    """
    chosen = Settings.read(settings)
    if isinstance(log, VllmLog):
        return vllm_rows.compare(log, a, chosen)
    if isinstance(log, SglangLog):
        return sglang_rows.compare(log, a, chosen)
    if isinstance(log, LlamaCppLog):
        return llamacpp_rows.compare(log, a, chosen)
    raise TypeError(f"{type(log).__name__} is not a log; use read_log first.")
