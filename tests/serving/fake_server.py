"""A small OpenAI-compatible server on 127.0.0.1 that can misbehave in every way we have a name for.

It keeps prefixes as engines do: whole blocks of 16 words of any earlier prompt are reused, and a
word that has to be computed takes `seconds_per_word`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOCK = 16
MODEL = "fake-1"


class FakeClock:
    """Seconds that pass only while somebody sleeps, so that what is measured is exact."""

    def __init__(self) -> None:
        self.now = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds


@dataclass
class Behaviour:
    """What the server does. limit: so many 429 come first. sleep: how it waits."""

    fault: str = ""
    limit: int = 0
    retry_after: str | None = None
    usage: bool = True
    cached_details: bool = True
    metrics: bool = True
    engine: str = "vllm"
    caches: bool = True
    seconds_per_word: float = 0.0
    seconds_per_token: float = 0.0
    clock_ahead: float = 0.0
    sleep: Callable[[float], None] = time.sleep
    key: str = ""
    redirect_to: str = ""
    body: str = ""
    status: int = 400
    seen: set = field(default_factory=set)
    hits: int = 0
    queries: int = 0
    requests: list = field(default_factory=list)
    keys_seen: list = field(default_factory=list)
    open_streams: int = 0
    aborted: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reuse(self, words: list[str]) -> int:
        """Words found in the prefix cache; the prompt is kept for the next."""
        blocks = [tuple(words[:end]) for end in range(BLOCK, len(words), BLOCK)]
        with self.lock:
            found = 0
            for block in blocks:
                if not self.caches or block not in self.seen:
                    break
                found += BLOCK
            self.seen.update(blocks)
            self.hits += found
            self.queries += len(words)
        return found


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeServer

    @property
    def does(self) -> Behaviour:
        return self.server.behaviour

    def log_message(self, *_: object) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(time.time() + self.does.clock_ahead, usegmt=True)

    def send_text(
        self, text: str, status: int = 200, kind: str = "application/json", **headers: str
    ) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def misbehaves(self) -> bool:
        """Faults that hit every path alike."""
        does = self.does
        does.keys_seen.append(self.headers.get("Authorization"))
        if does.fault == "html":
            self.send_text("<html><title>Sign in</title></html>", kind="text/html")
        elif does.fault == "redirect":
            self.send_text("", 307, Location=does.redirect_to)
        elif does.key and self.headers.get("Authorization") != f"Bearer {does.key}":
            message = f"Incorrect API key provided: {self.headers.get('Authorization')}"
            self.send_text(json.dumps({"error": {"message": message}}), 401)
        elif does.fault == "refuse-with":
            self.send_text(does.body, does.status)
        elif does.fault == "hang":
            self.server.released.wait(30)
        else:
            return False
        return True

    def do_GET(self) -> None:
        if self.misbehaves():
            return
        if self.path == "/v1/models":
            entry = {"id": MODEL, "object": "model", "owned_by": self.does.engine}
            entry["max_model_len"] = 4096
            self.send_text(json.dumps({"object": "list", "data": [entry]}))
        elif self.path == "/metrics" and self.does.metrics:
            self.send_text(self.metrics(), kind="text/plain")
        elif self.path in self.server.documents:
            self.send_text(json.dumps(self.server.documents[self.path]))
        else:
            self.send_text('{"error": "not found"}', 404)

    def metrics(self) -> str:
        does = self.does
        return (
            "# TYPE vllm:prefix_cache_queries_total counter\n"
            f'vllm:prefix_cache_queries_total{{model_name="{MODEL}",engine="0"}} {does.queries}\n'
            "# TYPE vllm:prefix_cache_hits_total counter\n"
            f'vllm:prefix_cache_hits_total{{model_name="{MODEL}",engine="0"}} {does.hits}\n'
            "# TYPE vllm:kv_cache_usage_perc gauge\n"
            f"vllm:kv_cache_usage_perc {0.05 * does.open_streams}\n"
            "# TYPE vllm:num_preemptions_total counter\n"
            "vllm:num_preemptions_total 0\n"
            "# TYPE vllm:cache_config_info gauge\n"
            'vllm:cache_config_info{block_size="128",cache_dtype="auto",'
            'enable_prefix_caching="True",num_gpu_blocks="728",kv_cache_size_tokens="93184",'
            'kv_cache_max_concurrency="22.75",kv_cache_memory_bytes="2147483648"} 1\n'
        )

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length))
        does = self.does
        does.requests.append(body)
        if self.misbehaves():
            return
        if does.limit > 0:
            does.limit -= 1
            headers = {"Retry_After": does.retry_after} if does.retry_after is not None else {}
            self.send_text('{"error": {"message": "slow down"}}', 429, **headers)
            return
        if body["model"] != MODEL:
            message = f"The model `{body['model']}` does not exist."
            self.send_text(json.dumps({"error": {"message": message}}), 404)
            return
        with does.lock:
            does.open_streams += 1
        try:
            self.stream(body)
        except OSError:
            does.aborted += 1
        finally:
            with does.lock:
                does.open_streams -= 1

    def stream(self, body: dict) -> None:
        does = self.does
        words = body["messages"][-1]["content"].split()
        reused = does.reuse(words)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
        does.sleep(does.seconds_per_word * (len(words) - reused))
        wanted = body.get("max_tokens") or body.get("max_completion_tokens")
        for place in range(wanted):
            if does.fault == "drop" and place == wanted // 2:
                self.close_connection = True
                self.connection.close()
                return
            if does.fault == "end-early" and place == wanted // 2:
                self.chunk(b"")
                return
            if does.fault == "stall" and place == wanted // 2:
                self.server.released.wait(30)
                return
            if does.fault == "error-event" and place == wanted // 2:
                self.event({"error": {"message": "CUDA out of memory"}})
            if does.fault == "not-json" and place == wanted // 2:
                self.chunk(b"data: {broken\n\n")
            self.event({"choices": [{"index": 0, "delta": {"content": "word "}}]})
            does.sleep(does.seconds_per_token * does.open_streams)
        if does.fault == "endless":
            for _ in range(10_000):
                self.event({"choices": [{"index": 0, "delta": {"content": "more "}}]})
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        if does.usage:
            usage = {"prompt_tokens": len(words), "completion_tokens": wanted}
            if does.cached_details:
                usage["prompt_tokens_details"] = {"cached_tokens": reused}
            self.event({"choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, document: dict) -> None:
        self.chunk(f"data: {json.dumps(document)}\n\n".encode())

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class FakeServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviour = behaviour
        self.released = threading.Event()
        self.documents: dict[str, object] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def fake_server(**behaviour: object) -> Iterator[FakeServer]:
    server = FakeServer(Behaviour(**behaviour))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
