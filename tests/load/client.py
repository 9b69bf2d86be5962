"""A visitor without a browser: a real session of a real server, over its websocket.

Speaks what Streamlit's own front end speaks (BackMsg out, ForwardMsg in, as protobuf): it opens a
page, moves widgets, presses buttons, reads what is drawn, and runs the timed fragments a page asks
for. A widget inside a fragment reruns that fragment alone. Nothing on the server is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.Element_pb2 import Element
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

Result = TypeVar("Result")

PATIENCE = 300.0
DONE = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_WITH_COMPILE_ERROR)
FRAGMENT_DONE = ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY


class Visitor:
    """One session. Use as `async with Visitor(url) as visitor`.

    elements: what the page shows now, by its place. seconds: how long each rerun took, from the
    message sent to "script finished". received: bytes of all messages.
    """

    def __init__(self, url: str) -> None:
        self._address = url.replace("http://", "ws://", 1) + "/_stcore/stream"
        self._states: dict[str, WidgetState] = {}
        self._query = ""
        self._page, self._script = "", ""
        self._finished = asyncio.Event()
        self._began = False
        self._fragment = ""
        self._fragment_of: dict[str, str] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._socket: ClientConnection | None = None
        self._next: dict[tuple[int, ...], Element] = {}
        self.elements: dict[tuple[int, ...], Element] = {}
        self.seconds: list[float] = []
        self.received = 0

    async def __aenter__(self) -> Visitor:
        self._socket = await connect(
            self._address, subprotocols=["streamlit"], max_size=None, open_timeout=PATIENCE
        )
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop_timers()
        await self._socket.close()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
            await self._reader

    async def vanish(self) -> None:
        """Lose the connection without a goodbye, as a browser that is killed does."""
        self._stop_timers()
        self._socket.transport.abort()
        await self._socket.wait_closed()

    async def open(self, page: str, /, **query: str) -> float:
        """Go to a page by its address; seconds until it is drawn."""
        self._page, self._query, self._script = page, urlencode(query), ""
        self._states.clear()
        self._fragment_of.clear()
        self._stop_timers()
        return await self._rerun()

    async def move(self, key: str, value: float | str | bool) -> float:
        """Set a slider, number, choice or text by its key; seconds until what it moves is drawn."""
        state = self._state(key, value)
        self._states[state.id] = state
        return await self._rerun(fragment=self._fragment_of.get(state.id, ""))

    async def press(self, key: str) -> float:
        """Press a button."""
        pressed = WidgetState(id=self.widget(key).id, trigger_value=True)
        return await self._rerun(pressed, fragment=self._fragment_of.get(pressed.id, ""))

    def widget(self, key: str) -> object:
        """The message of the widget with this key. Raises KeyError."""
        for _, message in self.widgets():
            if message.id.endswith(f"-{key}"):
                return message
        raise KeyError(f"the page shows no widget {key!r}")

    def widgets(self) -> Iterator[tuple[str, object]]:
        """(kind, message) of everything with an id that a visitor can set or press."""
        for element in self.elements.values():
            kind = element.WhichOneof("type")
            message = getattr(element, kind) if kind else None
            if getattr(message, "id", "") and kind in SETTERS:
                yield kind, message

    def texts(self) -> Iterator[str]:
        """Every message, warning, error and caption on the page."""
        for element in self.elements.values():
            kind = element.WhichOneof("type")
            if kind in ("alert", "markdown", "text", "exception", "progress"):
                message = getattr(element, kind)
                yield getattr(message, "body", "") or getattr(message, "text", "") or str(message)

    def shows(self, part: str) -> bool:
        return any(part in text for text in self.texts())

    async def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Wait for something to be on the page; False if it never came."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    def _state(self, key: str, value: float | str | bool) -> WidgetState:
        for kind, message in self.widgets():
            if message.id.endswith(f"-{key}"):
                state = WidgetState(id=message.id)
                SETTERS[kind](state, value)
                return state
        raise KeyError(f"the page shows no widget {key!r}")

    async def _rerun(self, *triggers: WidgetState, fragment: str = "") -> float:
        self._finished.clear()
        self._began, self._fragment = False, fragment
        start = time.perf_counter()
        await self._send(triggers, fragment)
        await asyncio.wait_for(self._finished.wait(), PATIENCE)
        if self._reader.done():
            raise ConnectionError("the server closed the session")
        self.seconds.append(time.perf_counter() - start)
        return self.seconds[-1]

    async def _send(
        self, triggers: tuple[WidgetState, ...] = (), fragment: str = "", timed: bool = False
    ) -> None:
        message = BackMsg()
        rerun = message.rerun_script
        rerun.page_name = "" if self._script else self._page
        rerun.page_script_hash, rerun.query_string = self._script, self._query
        rerun.fragment_id, rerun.is_auto_rerun = fragment, timed
        rerun.widget_states.widgets.extend([*self._states.values(), *triggers])
        await self._socket.send(message.SerializeToString())

    async def _read(self) -> None:
        try:
            async for data in self._socket:
                self.received += len(data)
                message = ForwardMsg()
                message.ParseFromString(data)
                self._take(message)
        finally:
            self._stop_timers()
            self._finished.set()

    def _take(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self._begin(list(message.metadata.run.fragment_ids))
        elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
            self._show(tuple(message.metadata.delta_path), message.delta)
        elif kind == "navigation":
            self._script = message.navigation.page_script_hash
        elif kind == "page_info_changed":
            self._query = message.page_info_changed.query_string
        elif kind == "auto_rerun":
            self._keep_running(message.auto_rerun.fragment_id, message.auto_rerun.interval)
        elif kind == "script_finished" and self._began:
            self._end(message.script_finished)

    def _begin(self, fragments: list[str]) -> None:
        """A run starts: of the whole page, or of some fragments and perhaps the one asked for."""
        self._began = not fragments or self._fragment in fragments
        if not fragments:
            self._next = {}
            self._stop_timers()

    def _show(self, place: tuple[int, ...], delta: Delta) -> None:
        element = delta.new_element
        self._next[place] = self.elements[place] = element
        kind = element.WhichOneof("type")
        if delta.fragment_id and kind in SETTERS:
            self._fragment_of[getattr(element, kind).id] = delta.fragment_id

    def _end(self, status: int) -> None:
        if status in DONE:
            self.elements = dict(self._next)
        if status in DONE or (status == FRAGMENT_DONE and self._fragment):
            self._finished.set()

    def _keep_running(self, fragment: str, interval: float) -> None:
        if fragment not in self._timers:
            self._timers[fragment] = asyncio.create_task(self._timer(fragment, interval))

    async def _timer(self, fragment: str, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            await self._send(fragment=fragment, timed=True)

    def _stop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


def _set_numbers(state: WidgetState, value: float | str | bool) -> None:
    state.double_array_value.data.append(float(value))


def _set_strings(state: WidgetState, value: float | str | bool) -> None:
    state.string_array_value.data.append(str(value))


def _set(field: str) -> Callable[[WidgetState, float | str | bool], None]:
    return lambda state, value: setattr(state, field, value)


SETTERS: dict[str, Callable[[WidgetState, float | str | bool], None]] = {
    "slider": _set_numbers,
    "number_input": _set("double_value"),
    "selectbox": _set("string_value"),
    "button_group": _set_strings,
    "multiselect": _set_strings,
    "radio": _set("string_value"),
    "checkbox": _set("bool_value"),
    "text_input": _set("string_value"),
    "text_area": _set("string_value"),
    "button": _set("trigger_value"),
    "download_button": _set("trigger_value"),
    "file_uploader": _set("string_value"),
}


def run_alone(story: Coroutine[Any, Any, Result]) -> Result:
    """The outcome of `story`, in a thread and event loop of its own.

    Playwright keeps a loop running in the thread of the tests that use it.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, story).result()
