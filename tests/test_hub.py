"""Fetching a config from a hub that is good, slow, broken or hostile, served on 127.0.0.1."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kvcore.config_json import ConfigError, fetch_config, repository_id

GOOD = json.dumps({"model_type": "llama", "num_hidden_layers": 2}).encode()


class Hub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.split("/")[2]
        answer = getattr(self, f"answer_{name}", self.answer_missing)
        answer()

    def send(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_good(self) -> None:
        assert self.path.endswith("/resolve/main/config.json")
        self.send(200, GOOD)

    def answer_moved(self) -> None:
        self.send(307, Location=self.path.replace("moved", "good"))

    def answer_elsewhere(self) -> None:
        self.send(302, Location="http://127.0.0.1:9/secret")

    def answer_gated(self) -> None:
        self.send(401)

    def answer_busy(self) -> None:
        self.send(429)

    def answer_broken(self) -> None:
        self.send(500)

    def answer_missing(self) -> None:
        self.send(404)

    def answer_large(self) -> None:
        self.send(200, b"x" * 3_000_000)

    def answer_page(self) -> None:
        self.send(200, b"<!doctype html><title>Log in</title>")

    def answer_slow(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        for _ in range(20):
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.2)

    def answer_cut(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(GOOD[:10])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.fixture(autouse=True)
def hub(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_a_good_hub_gives_the_config():
    assert fetch_config("org/good")["num_hidden_layers"] == 2


def test_redirects_within_the_hub_are_followed():
    assert fetch_config("org/moved")["num_hidden_layers"] == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("elsewhere", "another host"),
        ("gated", "gated"),
        ("busy", "slow down"),
        ("broken", "error 500"),
        ("nothing", "no config.json"),
        ("large", "larger"),
        ("page", "web page"),
        ("cut", "not JSON|cannot be reached"),
    ],
)
def test_everything_else_is_one_sentence(name, says):
    with pytest.raises(ConfigError, match=says):
        fetch_config(f"org/{name}")


def test_a_slow_hub_is_given_up_in_time():
    start = time.monotonic()
    with pytest.raises(ConfigError, match="too long"):
        fetch_config("org/slow", seconds=0.5)
    assert time.monotonic() - start < 3


def test_no_hub_at_all_is_told_at_once(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    start = time.monotonic()
    with pytest.raises(ConfigError, match="cannot be reached"):
        fetch_config("org/good")
    assert time.monotonic() - start < 3


def test_an_offline_server_says_so(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE"):
        fetch_config("org/good")


@pytest.mark.parametrize(
    ("typed", "repository"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        (" gpt2 ", "gpt2"),
        ("https://huggingface.co/Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("huggingface.co/Qwen/Qwen3-8B/blob/main/config.json", "Qwen/Qwen3-8B"),
        ("https://hf.co/Qwen/Qwen3-8B?library=vllm", "Qwen/Qwen3-8B"),
    ],
)
def test_repository_ids_and_addresses(typed, repository):
    assert repository_id(typed) == repository


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "a/b/c",
        "../etc/passwd",
        "org/..",
        "http://127.0.0.1/org/model",
        "https://example.com/org/model",
        "org/model?x=1",
        "file:///etc/passwd",
        "org name/model",
        "org/" + "m" * 200,
    ],
)
def test_what_is_no_repository_is_never_fetched(typed):
    with pytest.raises(ConfigError, match="owner/name"):
        repository_id(typed)
