"""Settings all tests share, and a last line that says what was not tested."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "workbench", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("workbench")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)}
    if any("Chromium" in reason for reason in reasons):
        terminalreporter.write_line("")
        terminalreporter.write_line(
            "The browser journeys were SKIPPED: no Chromium was found and none could be installed."
        )
