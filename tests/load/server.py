"""A server to try, on this machine only, and what it takes of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.journeys.conftest import start_server, stop_server

MB = 1_000_000


@contextmanager
def serving(**environment: str) -> Iterator[tuple[str, int]]:
    """The app on a free port of 127.0.0.1: its address and process id. Fetches nothing."""
    process, url = start_server(**{"HF_HUB_OFFLINE": "1", **environment})
    try:
        yield url, process.pid
    finally:
        stop_server(process)


def resident_bytes(pid: int) -> int:
    """Memory of the process that is in RAM, as `ps` says."""
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
    return int(said.stdout) * 1024


def maps(pid: int, part: str) -> bool | None:
    """Whether a library of this name is loaded in the process; None where that cannot be seen."""
    try:
        return part in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return None
