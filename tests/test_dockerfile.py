"""The container: an ordinary user, a health check, only what it needs, and a clean lint."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "Dockerfile").read_text()


def test_it_runs_as_an_ordinary_user():
    users = re.findall(r"^USER (\S+)", TEXT, re.MULTILINE)
    assert users
    assert int(users[-1]) >= 1000
    assert TEXT.index("USER ") < TEXT.index('CMD ["sh"')


def test_it_has_a_health_check_of_the_servers_own():
    check = TEXT[TEXT.index("HEALTHCHECK") : TEXT.index("# Bad settings")]
    assert "/_stcore/health" in check
    assert "--timeout" in check


def test_what_it_copies_is_there_and_not_ignored():
    allowed = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if "!" in line
    ]
    copied = [
        source
        for line in re.findall(r"^COPY (.+)$", TEXT, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert copied
    for source in copied:
        assert (ROOT / source).exists()
        assert source in allowed


def test_nothing_but_what_it_copies_reaches_the_builder():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert "**/secrets.toml" in lines


def test_the_linter_has_nothing_to_say():
    linter = shutil.which("hadolint", path=Path(sys.executable).parent) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed on this machine")
    done = subprocess.run([linter, "Dockerfile"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
