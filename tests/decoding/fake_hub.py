"""A model hub on 127.0.0.1 that can be good, slow, broken, lying or silent."""

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves the files of `folder` as repository `repo`, at branch main.

    slow: seconds between pieces. cut: connections break off half-way through weights. wrong_hash:
    how many times weights are sent with a byte changed. status: answer everything with this.
    """

    daemon_threads = True

    def __init__(self, repo: str, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repo, self.folder = repo, folder
        self.slow = 0.0
        self.cut = False
        self.wrong_hash = 0
        self.status: int | None = None
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        repo, _, rest = self.path[1:].partition("/resolve/")
        name = rest.partition("/")[2]
        path = self.server.folder / name
        if self.server.status is not None:
            self._refuse(self.server.status, "")
        elif repo != self.server.repo:
            self._refuse(404, "RepoNotFound")
        elif not path.is_file():
            self._refuse(404, "EntryNotFound")
        else:
            self._send(path.read_bytes(), name.endswith(".safetensors"), with_body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, body: bytes, is_weights: bool, with_body: bool) -> None:
        git_blob = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
        etag = hashlib.sha256(body).hexdigest() if is_weights else git_blob
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if not with_body:
            return
        if is_weights and self.server.wrong_hash:
            self.server.wrong_hash -= 1
            body = body[:-1] + bytes([body[-1] ^ 1])
        if is_weights and self.server.cut:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        pieces = 10 if is_weights and self.server.slow else 1
        size = -(-len(body) // pieces)
        for start in range(0, len(body), size):
            time.sleep(self.server.slow)
            self.wfile.write(body[start : start + size])
            self.wfile.flush()


@contextmanager
def serving(repo: str, folder: Path) -> Iterator[Hub]:
    hub = Hub(repo, folder)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


@contextmanager
def silent_server() -> Iterator[str]:
    """Accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
