"""The connection: made to the address that was checked, whatever its name stands for by now."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

import httpx2

from kvcore.serving.addresses import Target


class PinnedTransport(httpx2.BaseTransport):
    """Sends every request to one address; the server still sees the name, as does TLS.

    A request for any other host is refused. `abort()` closes the connections at once, from any
    thread, so that a reading thread ends and the server stops generating.
    """

    def __init__(self, target: Target, max_connections: int, **options: Any) -> None:
        limits = httpx2.Limits(
            max_connections=max_connections, max_keepalive_connections=max_connections
        )
        # Proxies would resolve the name again, so none is used.
        self._inner = httpx2.HTTPTransport(trust_env=False, limits=limits, retries=0, **options)
        self._target = target
        self._streams: list[Any] = []
        self._lock = threading.Lock()
        self._aborted = False

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        target = self._target
        asked = (request.url.scheme, request.url.host.strip("[]"))
        if asked != (target.scheme, target.host):
            raise httpx2.ConnectError("another host than the one that was allowed")
        host = httpx2.URL(target.origin).netloc.decode()
        request.headers["Host"] = host
        request.url = request.url.copy_with(host=target.address, port=target.port)
        request.extensions = {
            **request.extensions,
            "sni_hostname": target.host,
            "trace": self._watch,
        }
        return self._inner.handle_request(request)

    def abort(self) -> None:
        with self._lock:
            self._aborted = True
            streams, self._streams = self._streams, []
        for stream in streams:
            self._shut(stream)

    def close(self) -> None:
        self._inner.close()

    def _watch(self, event: str, info: dict[str, Any]) -> None:
        """Remember connections as they are made (httpcore's `trace` extension)."""
        if event not in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            return
        with self._lock:
            self._streams.append(info["return_value"])
            late = self._aborted
        if late:
            self._shut(info["return_value"])

    @staticmethod
    def _shut(stream: Any) -> None:
        """Wakes a thread that waits for bytes, which closing alone would not."""
        sock = stream.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
