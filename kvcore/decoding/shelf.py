"""The models a server has loaded, so that a second visitor need not load them again.

Memory is short where such servers run, so only the model asked for last is held; others live on
for as long as somebody still uses them.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from kvcore.decoding.errors import LoadError
from kvcore.decoding.known import find
from kvcore.decoding.load import load
from kvcore.settings import settings

if TYPE_CHECKING:
    from kvcore.decoding.model import Model


class Shelf:
    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._last: Model | None = None
        self._in_use: WeakValueDictionary[str, Model] = WeakValueDictionary()

    def holds(self, name: str) -> bool:
        """Whether `take(name)` would come at once."""
        return name in self._in_use

    def take(self, name: str, **options: Any) -> "Model":
        """The model, loaded if need be with `options` for `load`; one is loaded at a time.

        Raises what `load` raises, and LoadError for a model that this server does not offer.
        """
        _require_offered(name)
        with self._turn(options.get("should_stop", lambda: False)):
            model = self._in_use.get(name)
            if model is None:
                self._last = None
                model = load(name, **options)
                self._in_use[name] = model
            self._last = model
            return model

    def forget(self, name: str) -> None:
        """Load `name` anew next time: the hub may have come back."""
        with self._loading:
            forgotten = self._in_use.pop(name, None)
            if self._last is forgotten:
                self._last = None

    @contextmanager
    def _turn(self, should_stop: Callable[[], bool]) -> Iterator[None]:
        """Wait for the model somebody else is loading, unless told to stop."""
        while not self._loading.acquire(timeout=0.1):
            if should_stop():
                raise LoadError("Loading was stopped while another model was being loaded.")
        try:
            yield
        finally:
            self._loading.release()


def _require_offered(name: str) -> None:
    known = find(name)
    if known is not None and known.name not in settings().models:
        raise LoadError(
            f"{known.title} is not offered on this server; choose {', '.join(settings().models)}."
        )


SHELF = Shelf()
