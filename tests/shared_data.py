"""Real configs, traces and runs of real engines, where they lie beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"


def shared_data(name: str) -> Path:
    """The file's path; skips the test, saying so, where it is absent."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"the reference data file {name} is not beside this checkout")
    return path
