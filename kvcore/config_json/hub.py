"""Fetching a config.json by repository id: the official hub, one small file, a few seconds."""

from __future__ import annotations

import os
import re
import time
import urllib.error
import urllib.request
from email.message import Message
from http.client import HTTPException, HTTPResponse
from typing import IO
from urllib.parse import urljoin, urlsplit

from kvcore.config_json.errors import ConfigError
from kvcore.config_json.identify import LARGEST_TEXT, parse
from kvcore.settings import settings

OFFICIAL = "https://huggingface.co"
SECONDS = 5.0
CHUNK = 65_536

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REPOSITORY = re.compile(rf"^(?:{_PART}/)?{_PART}$")
_ADDRESS = re.compile(
    rf"^(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/({_PART}/{_PART})(?:[/?#]|$)"
)

PASTE = "Paste its config.json instead."


def repository_id(text: str) -> str:
    """The repository in what was typed: `owner/name`, or the address of its page.

    Raises ConfigError for anything else; nothing is fetched from other hosts.
    """
    text = text.strip()
    address = _ADDRESS.match(text)
    found = address.group(1) if address else text
    if not _REPOSITORY.match(found) or ".." in found or "--" in found:
        raise ConfigError(
            "This is no repository id of the Hugging Face hub; it looks like owner/name, as in "
            "Qwen/Qwen3-8B."
        )
    return found


def fetch_config(text: str, seconds: float = SECONDS) -> dict:
    """The config.json of a repository on the hub.

    The hub is the official one, or the one HF_ENDPOINT names. No code of the repository runs, no
    other file is read, redirects stay on the hub, and the whole takes at most `seconds`.
    Raises ConfigError, in one sentence, for everything that goes wrong.
    """
    repository = repository_id(text)
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        raise ConfigError(f"This server does not use the network (HF_HUB_OFFLINE is set). {PASTE}")
    if not settings().hub:
        raise ConfigError(f"This server asks no hub (WORKBENCH_HUB is off). {PASTE}")
    endpoint = os.environ.get("HF_ENDPOINT", OFFICIAL).rstrip("/")
    address = f"{endpoint}/{repository}/resolve/main/config.json"
    return parse(_download(address, repository, seconds))


def _download(address: str, repository: str, seconds: float) -> bytes:
    deadline = time.monotonic() + seconds
    opener = urllib.request.build_opener(_StayOnHub(address))
    request = urllib.request.Request(address, headers={"User-Agent": "kv-cache-workbench"})
    try:
        with opener.open(request, timeout=seconds) as answer:
            return _read(answer, deadline, repository)
    except ConfigError:
        raise
    except urllib.error.HTTPError as error:
        raise ConfigError(_status(error.code, repository)) from None
    except TimeoutError:
        raise ConfigError(_slow(repository)) from None
    except (OSError, ValueError, HTTPException) as error:
        if isinstance(getattr(error, "reason", None), TimeoutError):
            raise ConfigError(_slow(repository)) from None
        raise ConfigError(f"The hub cannot be reached from this server. {PASTE}") from None


def _read(answer: HTTPResponse, deadline: float, repository: str) -> bytes:
    parts, size = [], 0
    while part := answer.read1(CHUNK):
        size += len(part)
        parts.append(part)
        if size > LARGEST_TEXT:
            raise ConfigError(
                f"The config.json of {repository} is larger than any config should be. {PASTE}"
            )
        if time.monotonic() > deadline:
            raise ConfigError(_slow(repository))
    return b"".join(parts)


def _slow(repository: str) -> str:
    return f"The hub took too long to send the config of {repository}. Try again, or paste it."


def _status(code: int, repository: str) -> str:
    if code in (401, 403):
        return (
            f"{repository} is gated, private, or does not exist: the hub asks for a login, which "
            f"this page never uses. {PASTE}"
        )
    if code == 404:
        return f"The hub has no config.json under {repository}. Check the spelling, or paste it."
    if code == 429:
        return "The hub asks this server to slow down. Try again in a minute, or paste the config."
    return f"The hub answered with error {code}. Try again, or paste the config."


class _StayOnHub(urllib.request.HTTPRedirectHandler):
    """Follow redirects to the same host over the same protocol only."""

    def __init__(self, address: str) -> None:
        self.origin = urlsplit(address)[:2]

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> urllib.request.Request | None:
        target = urljoin(req.full_url, newurl)
        if urlsplit(target)[:2] != self.origin:
            raise ConfigError(f"The hub sent this request to another host. {PASTE}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
