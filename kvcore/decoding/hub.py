"""Checkpoints from the Hugging Face cache and from the hub, checked before they are used.

Endpoint and cache folder are those of huggingface_hub: HF_ENDPOINT, HF_HUB_CACHE, HF_HOME and
HF_HUB_OFFLINE are respected, and read at each call.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue

from kvcore.decoding.errors import LoadError
from kvcore.settings import settings

OFFICIAL_ENDPOINT = "https://huggingface.co"
ANSWER_WITHIN = 1.5
TIME_LIMIT = 900.0
TOKENIZER_FILES = (("tokenizer.json",), ("vocab.json", "merges.txt"))
HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class Progress:
    """Bytes of one file that have arrived. total: None while unknown."""

    file: str
    done: int
    total: int | None

    def __str__(self) -> str:
        share = f" of {self.total / 1e6:,.0f}" if self.total else ""
        return f"Downloading {self.file}: {self.done / 1e6:,.0f}{share} MB"


ProgressCallback = Callable[[Progress], None]


class HubError(LoadError):
    """The hub could not deliver.

    kind: "network", "missing", "disk", "hash", "timeout" or "stopped".
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or OFFICIAL_ENDPOINT).rstrip("/")


def cache_folder() -> Path:
    if folder := os.environ.get("HF_HUB_CACHE"):
        return Path(folder).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def cached_checkpoint(repo: str) -> Path | None:
    """The snapshot folder of `repo` in the cache if config and weights are in it, else None."""
    from huggingface_hub import try_to_load_from_cache

    for weights in ("model.safetensors", "model.safetensors.index.json"):
        paths = [
            try_to_load_from_cache(repo, name, cache_dir=cache_folder())
            for name in ("config.json", weights)
        ]
        if all(isinstance(path, str) for path in paths):
            return Path(paths[0]).parent
    return None


def lacks_tokenizer(repo: str) -> bool:
    """Whether a cached checkpoint has no tokenizer though the repository may have one.

    So it is when a download broke off before it, or when somebody fetched the weights alone. Where
    the hub has said that there is none, the cache remembers it.
    """
    from huggingface_hub import try_to_load_from_cache

    for choice in TOKENIZER_FILES:
        found = [try_to_load_from_cache(repo, name, cache_dir=cache_folder()) for name in choice]
        if all(isinstance(path, str) for path in found):
            return False
        if None in found:
            return True
    return False


def verify(folder: Path) -> None:
    """Compare each file with the hash the hub published for it; HubError on the first mismatch.

    In the cache a snapshot's file links to a blob named by its hash: SHA-256 for weights, a git
    blob's SHA-1 for the rest (mirrors may name it by the plain SHA-1). Files without such a name
    are not checked.
    """
    for path in sorted(folder.iterdir()):
        published = path.resolve().name if path.is_symlink() else ""
        if HASH.fullmatch(published) and published not in _hashes(path, len(published)):
            raise HubError(f"{path.name} does not match its published checksum", "hash")


def _hashes(path: Path, digits: int) -> set[str]:
    """What a file may be named by, if the name has 64 (SHA-256) or 40 (SHA-1) hex digits."""
    with path.open("rb") as file:
        if digits == 64:
            return {hashlib.file_digest(file, "sha256").hexdigest()}
        plain = hashlib.file_digest(file, "sha1").hexdigest()
        file.seek(0)
        as_git_blob = hashlib.sha1(b"blob %d\0" % path.stat().st_size)
        as_git_blob.update(file.read())
    return {plain, as_git_blob.hexdigest()}


def download(
    repos: tuple[str, ...],
    *,
    progress: ProgressCallback | None = None,
    time_limit: float = TIME_LIMIT,
    answer_within: float = ANSWER_WITHIN,
    should_stop: Callable[[], bool] = lambda: False,
    force: bool = False,
) -> Path:
    """Fetch the first of `repos` that the hub has; return the snapshot folder, verified.

    A broken connection is taken up again by huggingface_hub; a file that does not match its
    published hash is fetched once more.

    time_limit: seconds for everything, a second attempt included.
    answer_within: seconds in which the hub must say anything at all.
    Raises HubError whose message fits after "the hub failed: ".
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        raise HubError("HF_HUB_OFFLINE is set", "network")
    if not settings().hub:
        raise HubError("WORKBENCH_HUB is off", "network")
    deadline = time.monotonic() + time_limit
    _require_answer(repos[0], min(answer_within, time_limit))
    try:
        return _first_of(repos, progress, deadline, should_stop, force)
    except HubError as error:
        if error.kind != "hash" or time.monotonic() > deadline:
            raise
    return _first_of(repos, progress, deadline, should_stop, force=True)


def _require_answer(repo: str, seconds: float) -> None:
    """HubError unless the hub answers a request, even with "not found", within `seconds`.

    The request runs in a thread of its own because looking up a host name cannot be interrupted;
    its own limit is wider, so that this one decides.
    """
    outcome: Queue[Exception | None] = Queue()

    def ask() -> None:
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.errors import HfHubHTTPError

        url = hf_hub_url(repo, "config.json", endpoint=endpoint())
        try:
            get_hf_file_metadata(url, timeout=2 * seconds, token=False, endpoint=endpoint())
        except HfHubHTTPError as error:
            status = error.response.status_code
            outcome.put(error if status >= 500 else None)
        except Exception as error:  # whatever it is, the hub cannot be used
            outcome.put(error)
        else:
            outcome.put(None)

    threading.Thread(target=ask, daemon=True, name="hub-answer").start()
    try:
        error = outcome.get(timeout=seconds)
    except Empty:
        raise HubError(f"it did not answer within {seconds:g} seconds", "network") from None
    if error is not None:
        raise HubError("it cannot be reached", "network") from error


def _first_of(
    repos: tuple[str, ...],
    progress: ProgressCallback | None,
    deadline: float,
    should_stop: Callable[[], bool],
    force: bool,
) -> Path:
    for repo in repos:
        try:
            folder = _fetch(repo, progress, deadline, should_stop, force)
        except HubError as error:
            if error.kind == "missing" and repo != repos[-1]:
                continue
            raise
        verify(folder)
        return folder
    raise HubError("no repository was named", "missing")


def _fetch(
    repo: str,
    progress: ProgressCallback | None,
    deadline: float,
    should_stop: Callable[[], bool],
    force: bool,
) -> Path:
    """Run the worker to its end, the deadline, or a stop."""
    command = [sys.executable, str(Path(__file__).with_name("hub_worker.py"))]
    command += [repo, str(cache_folder()), *(["--force"] if force else [])]
    environment = os.environ | {"HF_ENDPOINT": endpoint()}
    worker = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    )
    try:
        for message in _messages(worker, deadline, should_stop):
            if "folder" in message:
                return Path(message["folder"])
            if "error" in message:
                raise HubError(message["error"], message["kind"])
            if progress is not None:
                progress(Progress(message["file"], message["done"], message["total"]))
    finally:
        _end(worker)
    raise HubError("the download broke off", "network")


def _end(worker: subprocess.Popen) -> None:
    """Ask it to stop, so that it removes its partial file; insist after two seconds."""
    worker.terminate()
    try:
        worker.wait(timeout=2)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


def _messages(
    worker: subprocess.Popen, deadline: float, should_stop: Callable[[], bool]
) -> Iterator[dict]:
    lines: Queue[str] = Queue()

    def read() -> None:
        for line in worker.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True, name="hub-download").start()
    while time.monotonic() < deadline:
        if should_stop():
            raise HubError("the download was stopped", "stopped")
        try:
            line = lines.get(timeout=0.1)
        except Empty:
            continue
        if not line:
            return
        yield json.loads(line)
    raise HubError("the download took longer than its time limit", "timeout")
