"""Measurements made earlier and shown at first sight, each with a label that says how it was made.

They lie in `data/recordings/` as JSON and are made again by `make record`.
"""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data" / "recordings"


@dataclass(frozen=True)
class Label:
    """What a reader must know to trust a recorded number.

    processor: as the machine names it. weights: which, and where from. date: ISO. command: what
    makes the recording again.
    """

    processor: str
    threads: int
    weights: str
    date: str
    command: str = "make record"

    def __str__(self) -> str:
        plural = "thread" if self.threads == 1 else "threads"
        return (
            f"Recorded on {self.date}: {self.processor}, {self.threads} {plural}, {self.weights}; "
            f"made again by “{self.command}”."
        )


@dataclass(frozen=True)
class Recording:
    label: Label
    data: Mapping[str, Any]


def label(threads: int, weights: str) -> Label:
    """A label for a recording made here and now."""
    return Label(processor_name(), threads, weights, date.today().isoformat())


def write(name: str, label: Label, data: Mapping[str, Any]) -> Path:
    """Keep `data` (JSON values) as the recording `name`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    document = {"label": asdict(label), "data": data}
    path.write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
    read.cache_clear()
    return path


@lru_cache
def read(name: str) -> Recording:
    """The recording `name`. Raises FileNotFoundError when there is none."""
    document = json.loads((FOLDER / f"{name}.json").read_text())
    return Recording(Label(**document["label"]), document["data"])


def processor_name() -> str:
    """The processor as Linux names it, else as Python's platform module does."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")
    return named or platform.processor() or platform.machine() or "unknown processor"
