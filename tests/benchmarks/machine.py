"""Where and when something was measured."""

from __future__ import annotations

import os
import platform
from datetime import date
from pathlib import Path

from kvcore.recordings import processor_name


def machine() -> dict[str, str | int | float]:
    """Processor, cores, memory, system, Python, load and date."""
    return {
        "processor": processor_name(),
        "cores": os.cpu_count() or 0,
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0,
        "date": date.today().isoformat(),
    }


def sentence(where: dict[str, str | int | float]) -> str:
    return (
        f"{where['processor']}, {where['cores']} cores, {where['memory_gib']} GiB, "
        f"{where['system']}, Python {where['python']}, load {where['load_average']} at the start, "
        f"{where['date']}."
    )


def _memory_gib() -> float:
    try:
        first = Path("/proc/meminfo").read_text().splitlines()[0]
    except OSError:
        return 0.0
    return round(int(first.split()[1]) / 2**20, 1)
