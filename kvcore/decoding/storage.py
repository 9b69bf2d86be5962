"""Where converted files are kept, and how they are written so that no half of one is ever read."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """KV_WORKBENCH_CACHE, else the user's cache folder. It can be deleted at any time."""
    if folder := os.environ.get("KV_WORKBENCH_CACHE"):
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "kv-cache-workbench"


def write_atomically(path: Path, write: Callable[[Path], None]) -> bool:
    """Let `write` fill a temporary neighbour (a file), then put it in place; False if it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            temporary = Path(scratch) / path.name
            write(temporary)
            os.replace(temporary, path)
    except Exception:  # a full or read-only disk; libraries wrap it in errors of their own
        return False
    return True


def fill_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary folder, then move it into place, replacing a damaged one.

    When two processes do this together the later one wins; both have written the same.
    Raises OSError when the disk is full or cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write(scratch)
        if folder.exists():
            shutil.rmtree(folder, ignore_errors=True)
        os.replace(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
