"""What is installed: everything pinned, with its reason, and torch exactly once on any machine."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
FILES = ("requirements.txt", "requirements-dev.txt", "requirements-offline.txt")


def lines(name):
    return [line.strip() for line in (ROOT / name).read_text().splitlines()]


def requirements(name):
    return [Requirement(line) for line in lines(name) if line and not line.startswith("#")]


@pytest.mark.parametrize("name", FILES)
def test_everything_is_pinned(name):
    for requirement in requirements(name):
        pins = [spec.operator for spec in requirement.specifier]
        assert pins == ["=="] or requirement.url, requirement


@pytest.mark.parametrize("name", FILES)
def test_every_line_has_its_reason_above_it(name):
    listed = lines(name)
    for number, line in enumerate(listed):
        if line and not line.startswith("#"):
            above = listed[number - 1]
            assert above.startswith(("#", "torch")), line


def test_no_index_line_and_no_lock_file():
    text = (ROOT / "requirements.txt").read_text()
    assert "--extra-index-url" not in text
    assert "--index-url" not in text
    assert not (ROOT / "uv.lock").exists()


@pytest.mark.parametrize(
    ("system", "machine", "python", "direct"),
    [
        ("linux", "x86_64", "3.12", True),
        ("linux", "x86_64", "3.11", False),
        ("linux", "x86_64", "3.13", False),
        ("linux", "aarch64", "3.12", False),
        ("darwin", "arm64", "3.12", False),
        ("win32", "AMD64", "3.12", False),
    ],
)
def test_torch_comes_once_and_as_a_cpu_wheel_where_the_cloud_runs(system, machine, python, direct):
    here = {"sys_platform": system, "platform_machine": machine, "python_version": python}
    chosen = [
        requirement
        for requirement in requirements("requirements.txt")
        if requirement.name == "torch" and requirement.marker.evaluate(here)
    ]
    assert len(chosen) == 1
    assert bool(chosen[0].url) is direct
    if direct:
        assert "2.13.0%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl" in chosen[0].url
    else:
        assert str(chosen[0].specifier) == "==2.13.0"
