"""The few settings: documented, read once, and refused with a sentence when they cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from kvcore.config_json import ConfigError, fetch_config
from kvcore.decoding import LoadError
from kvcore.decoding import hub as decoding_hub
from kvcore.decoding.known import KNOWN, offered
from kvcore.decoding.shelf import Shelf
from kvcore.settings import MODELS, VARIABLES, Settings, SettingsError, read, settings

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def setting(monkeypatch):
    """`setting(WORKBENCH_HUB="off")` holds for one test."""

    def put(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        settings.cache_clear()

    yield put
    monkeypatch.undo()
    settings.cache_clear()


def test_without_settings_everything_is_offered():
    assert read({"PATH": "/bin"}) == Settings()


def test_the_models_are_those_that_are_known():
    assert tuple(KNOWN) == MODELS


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("WORKBENCH_MODELS", "SmolLM2, gpt2,smollm2", "models", ("smollm2", "gpt2")),
        ("WORKBENCH_HUB", "Off", "hub", False),
        ("WORKBENCH_HUB", "1", "hub", True),
        ("WORKBENCH_HUB", " ", "hub", True),
        ("WORKBENCH_MAX_WAITING", "5", "max_waiting", 5),
        ("WORKBENCH_MAX_MINUTES", "10", "max_minutes", 10),
        ("WORKBENCH_SERVERS", "gpu.example.com:8000", "servers", "gpu.example.com:8000"),
    ],
)
def test_each_setting_is_read(name, text, field, value):
    assert getattr(read({name: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("WORKBENCH_MODELS", "gpt2,gpt5"),
        ("WORKBENCH_MODELS", ","),
        ("WORKBENCH_HUB", "maybe"),
        ("WORKBENCH_MAX_WAITING", "0"),
        ("WORKBENCH_MAX_WAITING", "-1"),
        ("WORKBENCH_MAX_WAITING", "٣"),
        ("WORKBENCH_MAX_MINUTES", "1e9"),
        ("WORKBENCH_MAX_MINUTES", "9" * 5_000),
        ("WORKBENCH_SERVERS", "https://[nonsense"),
        ("WORKBENCH_HUBS", "off"),
    ],
)
def test_a_bad_setting_is_named(name, text):
    with pytest.raises(SettingsError, match=name):
        read({name: text})


def test_every_setting_is_documented():
    text = (ROOT / "docs" / "hosting.md").read_text()
    for variable in VARIABLES:
        assert f"`{variable.name}`" in text


def test_they_are_checked_at_start():
    done = subprocess.run(
        [sys.executable, "-m", "kvcore.settings"],
        cwd=ROOT,
        env={**os.environ, "WORKBENCH_MAX_WAITING": "many"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("WORKBENCH_MAX_WAITING should be a whole number")


def test_the_app_says_what_is_wrong_with_them(setting):
    setting(WORKBENCH_HUB="perhaps")
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    assert not app.exception
    assert "WORKBENCH_HUB should be on or off" in app.error[0].value


def test_a_model_that_is_not_offered_is_not_loaded(setting):
    setting(WORKBENCH_MODELS="smollm2")
    with pytest.raises(LoadError, match="GPT-2 is not offered on this server; choose smollm2"):
        Shelf().take("openai-community/GPT2")


def test_with_the_hub_off_nothing_is_asked(setting, monkeypatch):
    """Where nothing listens, asking would say that it cannot be reached."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(decoding_hub.HubError, match="cannot be reached|did not answer"):
        decoding_hub.download(("gpt2",))
    setting(WORKBENCH_HUB="off")
    with pytest.raises(decoding_hub.HubError, match="WORKBENCH_HUB is off"):
        decoding_hub.download(("gpt2",))
    with pytest.raises(ConfigError, match="WORKBENCH_HUB is off"):
        fetch_config("gpt2")


def test_pages_offer_what_the_server_offers(setting):
    assert offered(("smollm2", "gpt2")) == ("smollm2", "gpt2")
    setting(WORKBENCH_MODELS="gpt2,smollm2")
    assert offered() == ("gpt2", "smollm2")
    assert offered(("smollm2", "distilgpt2")) == ("smollm2",)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    app.switch_page("pages/live_timing.py").run()
    assert app.selectbox(key="live_timing_model").options == ["GPT-2", "SmolLM2-135M-Instruct"]
