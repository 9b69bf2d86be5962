"""The server's own doors, tried on a real one: other origins, uploads without a token, errors."""

from __future__ import annotations

import asyncio
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.load.client import Visitor, run_alone
from tests.load.server import serving

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server():
    with serving() as (url, _):
        yield url


def test_protections_are_on():
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    assert config["server"]["enableXsrfProtection"] is True
    assert config["server"]["enableCORS"] is True
    assert config["server"]["maxUploadSize"] <= 200
    assert config["client"]["showErrorDetails"] in ("type", "none")
    assert config["browser"]["gatherUsageStats"] is False


def socket(url: str, origin: str | None) -> None:
    async def talk() -> None:
        address = url.replace("http", "ws", 1) + "/_stcore/stream"
        async with connect(address, subprotocols=["streamlit"], origin=origin) as opened:
            await opened.send(BackMsg(rerun_script=ClientState()).SerializeToString())
            await asyncio.wait_for(opened.recv(), 20)

    run_alone(talk())


def test_another_site_cannot_open_a_session(server):
    socket(server, None)
    socket(server, server)
    for origin in ("http://evil.example", "https://127.0.0.1.evil.example", "null"):
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            socket(server, origin)


def ask(url: str, method: str = "GET", **headers: str):
    request = urllib.request.Request(url, method=method, headers=headers)
    if method == "PUT":
        part = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nx\r\n--b--'
        request.data = part
        request.add_header("Content-Type", "multipart/form-data; boundary=b")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def test_an_upload_without_the_token_is_refused(server):
    status, _, _ = ask(f"{server}/_stcore/upload_file/any/any", "PUT")
    assert status == 403


def test_no_answer_may_be_read_by_another_site(server):
    for path in ("/_stcore/health", "/_stcore/host-config", "/"):
        _, headers, _ = ask(server + path, Origin="http://evil.example")
        allowed = {name.lower(): value for name, value in headers.items()}
        assert allowed.get("access-control-allow-origin") not in ("*", "http://evil.example")


@pytest.mark.parametrize(
    "path",
    ["/.streamlit/config.toml", "/../requirements.txt", "/%2e%2e/requirements.txt", "/app.py"],
)
def test_files_of_the_app_are_not_served(server, path):
    _, _, body = ask(server + path)
    assert b"streamlit==" not in body
    assert b"st.navigation" not in body
    assert b"enableXsrfProtection" not in body


BROKEN = """
import streamlit as st
secret = "zq7-secret"
raise RuntimeError(f"the key {secret} is wrong")
"""


def test_a_fault_shows_no_traceback_and_no_message(tmp_path):
    """A page that raises, served with the app's own configuration."""
    from tests.journeys.conftest import start_server, stop_server

    script = tmp_path / "broken.py"
    script.write_text(BROKEN)
    process, url = start_server(script=str(script))

    async def what_is_shown() -> str:
        async with Visitor(url) as visitor:
            await visitor.open("")
            return "\n".join(str(element) for element in visitor.elements.values())

    try:
        shown = run_alone(what_is_shown())
    finally:
        stop_server(process)
    assert "RuntimeError" in shown
    assert "zq7-secret" not in shown
    assert "broken.py" not in shown
