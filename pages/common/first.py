"""Pages import their modules one page at a time.

Each visitor's page runs in a thread of its own. When two pages import overlapping packages for the
first time at the same moment, Python breaks the deadlock of its import locks by handing one of them
a half-made module, and that visitor sees an ImportError.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.RLock()
_imported: set[str] = set()


@contextmanager
def alone_at_first(page: str) -> Iterator[None]:
    """Hold other first runs back until this page has once run to its end."""
    if page in _imported:
        yield
        return
    with _lock:
        yield
    _imported.add(page)
