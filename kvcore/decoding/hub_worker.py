"""Download a model's files from the Hugging Face hub, as a program so that it can be ended.

    python hub_worker.py REPO CACHE_FOLDER [--force]

huggingface_hub retries and waits by its own clock; a process can be stopped whatever it is doing.
Prints one JSON object a line: {"file", "done", "total"} as bytes arrive, at last {"folder"} or
{"error", "kind"}. The endpoint is huggingface_hub's own: HF_ENDPOINT, else the official hub.
"""

import errno
import json
import os
import signal
import sys
from pathlib import Path

os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_XET"] = "1"  # it would fetch by a way of its own, past `stay_on_hub`

import httpx2  # noqa: E402
from huggingface_hub import constants, hf_hub_download, set_client_factory  # noqa: E402
from huggingface_hub.errors import (  # noqa: E402
    EntryNotFoundError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from tqdm.auto import tqdm  # noqa: E402

TOKENIZER_FILES = (("tokenizer.json",), ("vocab.json", "merges.txt"))
OPTIONAL_FILES = ("tokenizer_config.json", "chat_template.jinja")

# Where the official hub keeps large files; it redirects there.
HUB_DOMAINS = (".huggingface.co", ".hf.co")
STORAGE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


def say(**message: object) -> None:
    print(json.dumps(message), flush=True)


class ElsewhereError(Exception):
    """The hub sent a request to a host that is not its own."""


def stay_on_hub(request: httpx2.Request) -> None:
    """Called before each request, redirected ones included."""
    hub = httpx2.URL(constants.ENDPOINT)
    url = request.url
    if (url.scheme, url.host, url.port) == (hub.scheme, hub.host, hub.port):
        return
    if url.scheme == "https" and url.host.endswith(HUB_DOMAINS) and url.port is None:
        return
    raise ElsewhereError(url.host)


def client() -> httpx2.Client:
    hooks = {"request": [stay_on_hub]}
    return httpx2.Client(event_hooks=hooks, follow_redirects=True, timeout=None)


class Progress(tqdm):
    """Reports instead of drawing."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.update(file=open(os.devnull, "w"), disable=False)  # noqa: SIM115
        kwargs.pop("name", None)
        super().__init__(*args, **kwargs)

    def update(self, n: float | None = 1) -> bool | None:
        shown = super().update(n)
        say(file=str(self.desc), done=int(self.n), total=self.total and int(self.total))
        return shown


class Downloads:
    def __init__(self, repo: str, cache: str, force: bool) -> None:
        self.repo, self.cache, self.force = repo, cache, force

    def get(self, name: str) -> Path:
        path = hf_hub_download(
            self.repo,
            name,
            cache_dir=self.cache,
            force_download=self.force,
            token=False,
            tqdm_class=Progress,
        )
        say(file=name, done=Path(path).stat().st_size, total=Path(path).stat().st_size)
        return Path(path)

    def get_all(self, names: tuple[str, ...]) -> bool:
        """True when all are there; False when the repository lacks one."""
        try:
            for name in names:
                self.get(name)
        except EntryNotFoundError as error:
            if isinstance(error, LocalEntryNotFoundError):
                raise
            return False
        return True

    def model(self) -> Path:
        folder = self.get("config.json").parent
        if not self.get_all(("model.safetensors",)):
            index = self.get("model.safetensors.index.json")
            for name in sorted(set(json.loads(index.read_text())["weight_map"].values())):
                self.get(name)
        for choice in TOKENIZER_FILES:
            if self.get_all(choice):
                break
        for name in OPTIONAL_FILES:
            self.get_all((name,))
        return folder


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # unwinds, so partial files are removed
    repo, cache, *options = sys.argv[1:]
    set_client_factory(client)
    try:
        say(folder=str(Downloads(repo, cache, "--force" in options).model()))
    except ElsewhereError as error:
        say(error=f"it sent the download to another host ({error})", kind="network")
    except RepositoryNotFoundError:
        say(error=f"there is no {repo} there", kind="missing")
    except EntryNotFoundError as error:
        if isinstance(error, LocalEntryNotFoundError):
            say(error="it stopped answering", kind="network")
        else:
            say(error=f"{repo} has no safetensors weights there", kind="missing")
    except OSError as error:
        if error.errno in STORAGE_ERRORS:
            say(error=f"the files could not be stored ({error.strerror})", kind="disk")
        else:
            say(error="the download broke off", kind="network")
    except Exception as error:  # any other failure must reach the reader as a sentence too
        say(error=f"the download broke off ({type(error).__name__})", kind="network")


if __name__ == "__main__":
    main()
