"""Results kept by the values they follow from, for every session."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

import streamlit as st

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """The last `most` results, found by a hash of their settings: in microseconds, where
    Streamlit's caches take a millisecond each to hash the same settings anew."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Value], words: str) -> Value:
        """What is kept under `key`; else `make()`, with these words and a spinner meanwhile."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        with st.spinner(words):
            value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self.most:
                self._values.popitem(last=False)
        return value
