"""What goes wrong around a model: the hub dies, the disk is full, files are half there, memory is
short. After each the next visitor finds a working shelf and no lock held."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kvcore.decoding import LoadError, hub, load
from kvcore.decoding import load as load_function
from kvcore.decoding import memory as memory_module
from kvcore.decoding.errors import NoRoomError
from kvcore.decoding.shelf import Shelf
from kvcore.jobs import Job, Queue, State
from tests.decoding.fake_hub import COMMIT, Handler, serving

pytestmark = pytest.mark.usefixtures("small_known")

REPO = "openai-community/gpt2"
PATIENCE_S = 30


class Mortal(Handler):
    """Drops every connection once the hub has no lives left."""

    def _answer(self, with_body):
        if len(self.server.requests) >= self.server.lives:
            self.server.requests.append("dropped")
            self.close_connection = True
            return
        super()._answer(with_body)


@pytest.fixture(scope="module")
def checkpoint_folder(networks, tmp_path_factory):
    import shutil

    folder = tmp_path_factory.mktemp("mortal") / "gpt2"
    shutil.copytree(networks["gpt2"][1], folder)
    model = {"type": "BPE", "vocab": {letter: i for i, letter in enumerate("abc")}, "merges": []}
    rest = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    tokenizer = dict.fromkeys(rest) | {"version": "1.0", "added_tokens": [], "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture
def mortal(checkpoint_folder, monkeypatch):
    with serving(REPO, checkpoint_folder) as served:
        served.RequestHandlerClass = Mortal
        served.lives = 10**9
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        yield served


def snapshot():
    return hub.cache_folder() / "models--openai-community--gpt2" / "snapshots" / COMMIT


def partial_files():
    return list(hub.cache_folder().rglob("*.incomplete"))


PHASES = {
    1: "it has answered, and dies at the first file's head",
    2: "the config is on its way",
    3: "the weights are asked for",
    4: "the weights are on their way",
    5: "the tokenizer is asked for",
}


@pytest.mark.parametrize("lives", PHASES, ids=PHASES.get)
def test_the_hub_dies_in_each_phase_and_comes_back(mortal, lives):
    shelf = Shelf()
    mortal.lives = lives
    fallen_back = shelf.take("gpt2", time_limit=4.0)
    assert fallen_back.source == "random"
    assert mortal.url in fallen_back.notice
    assert "dropped" in mortal.requests
    assert not partial_files()
    mortal.lives = 10**9
    shelf.forget("gpt2")
    assert shelf.take("gpt2").source == "hub"


def test_a_cache_without_its_tokenizer_is_completed_or_used_as_it_is(mortal):
    load("gpt2")
    (snapshot() / "tokenizer.json").unlink()
    mortal.lives = len(mortal.requests)
    model = load("gpt2", time_limit=4.0)
    assert model.source == "cache"
    assert "cached copy has no tokenizer" in model.notice
    mortal.lives = 10**9
    assert load("gpt2").source == "hub"
    assert load("gpt2").source == "cache"


FULL_DISK = """
import errno, io
_open = io.open
def open_(file, mode="r", *args, **kwargs):
    opened = _open(file, mode, *args, **kwargs)
    if str(file).endswith(".incomplete") and ("w" in mode or "a" in mode):
        raise OSError(errno.ENOSPC, "No space left on device")
    return opened
io.open = open_
"""


def test_a_full_disk_is_named_and_leaves_nothing(mortal, monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(FULL_DISK)
    with monkeypatch.context() as full:
        full.setenv("PYTHONPATH", str(tmp_path))
        model = load("gpt2")
    assert model.source == "random"
    assert "could not be stored (No space left on device)" in model.notice
    assert not (snapshot() / "model.safetensors").exists()
    assert load("gpt2").source == "hub"


@pytest.mark.parametrize(
    ("name", "length"), [("config.json", 0), ("tokenizer.json", 40), ("model.safetensors", 40)]
)
def test_any_half_written_file_of_the_cache_is_fetched_again(mortal, name, length):
    load("gpt2")
    path = (snapshot() / name).resolve()
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    model = load("gpt2")
    assert model.source == "hub"
    assert name in model.notice
    assert path.read_bytes() == whole


def test_memory_is_asked_before_anything_is_fetched(mortal, monkeypatch):
    monkeypatch.setattr(memory_module, "available_bytes", lambda: 10 * 2**20)
    with pytest.raises(NoRoomError, match=r"GPT-2 needs .* and 0\.01 GiB are free"):
        load("gpt2")
    assert mortal.requests == []


def test_memory_is_asked_by_the_size_of_what_lies_in_the_cache(mortal, monkeypatch):
    load("gpt2")
    asked = []

    def available():
        asked.append(1)
        return 2**60 if len(asked) == 1 else 1000

    monkeypatch.setattr(memory_module, "available_bytes", available)
    with pytest.raises(NoRoomError):
        load("gpt2")


def test_running_out_of_memory_while_loading_frees_the_shelf_and_the_place(monkeypatch):
    shelf, queue = Shelf(), Queue()

    def out_of_memory(*_, **__):
        raise MemoryError("no room for the weights")

    monkeypatch.setattr("kvcore.decoding.shelf.load", out_of_memory)
    job = Job(lambda job: iter([shelf.take("gpt2")]), queue).start()
    job.join(PATIENCE_S)
    assert job.state is State.FAILED
    assert len(queue) == 0

    monkeypatch.setattr("kvcore.decoding.shelf.load", load_function)
    after = Job(lambda job: iter([shelf.take("gpt2")]), queue).start()
    after.join(PATIENCE_S)
    assert after.state is State.DONE


def test_whoever_waits_for_anothers_download_can_stop(monkeypatch):
    shelf, gate, stop = Shelf(), threading.Event(), threading.Event()
    loading = threading.Event()

    def slow(*_, **__):
        loading.set()
        gate.wait(PATIENCE_S)
        raise LoadError("given up")

    monkeypatch.setattr("kvcore.decoding.shelf.load", slow)
    first = Job(lambda job: iter([shelf.take("gpt2")]), None).start()
    assert loading.wait(PATIENCE_S)
    refusals = []

    def wait_in_vain():
        try:
            shelf.take("distilgpt2", should_stop=stop.is_set)
        except LoadError as error:
            refusals.append(str(error))

    waiting = threading.Thread(target=wait_in_vain)
    waiting.start()
    stop.set()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert "stopped" in refusals[0]
    gate.set()
    first.join(PATIENCE_S)


class Elsewhere(BaseHTTPRequestHandler):
    """Another host on this machine, which must never be asked."""

    def do_GET(self):
        self.server.requests.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


class Redirecting(Handler):
    """Sends whoever asks for weights to another host."""

    def _answer(self, with_body):
        if with_body and self.path.endswith(".safetensors"):
            self.send_response(302)
            self.send_header("Location", f"{self.server.other}/stolen")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super()._answer(with_body)


def test_a_download_sent_to_another_host_is_not_followed(mortal):
    other = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    other.daemon_threads, other.requests = True, []
    threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
    mortal.RequestHandlerClass = Redirecting
    mortal.other = f"http://127.0.0.1:{other.server_address[1]}"
    try:
        model = load("gpt2")
    finally:
        other.shutdown()
        other.server_close()
    assert model.source == "random"
    assert "another host" in model.notice
    assert other.requests == []


def test_the_clock_may_jump_during_a_download(mortal, monkeypatch):
    jumps = iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: 1e9 + 1e6 * (-1) ** next(jumps))
    assert load("gpt2").source == "hub"
