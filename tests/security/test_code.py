"""What the source may do at all: who may open connections, and that nothing runs foreign code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [ROOT / "app.py", *(ROOT / "kvcore").rglob("*.py"), *(ROOT / "pages").rglob("*.py")]

# Modules that open connections or start programs, and the files that may import them.
NETWORK = {"urllib.request", "http.client", "socket", "ssl", "httpx", "httpx2", "requests"}
NETWORK |= {"aiohttp", "urllib3", "websockets", "openai", "huggingface_hub", "ftplib", "smtplib"}
MAY_CONNECT = ("kvcore/config_json/hub.py", "kvcore/decoding/hub", "kvcore/serving/")
MAY_START_PROGRAMS = ("kvcore/decoding/hub.py",)

# Readers that run what they read.
UNPICKLERS = {
    "pickle",
    "cPickle",
    "dill",
    "joblib",
    "cloudpickle",
    "shelve",
    "marshal",
    "jsonpickle",
}
CALLS_THAT_RUN_TEXT = {"eval", "exec", "compile", "__import__"}
METHODS_THAT_UNPICKLE = ("read_pickle", "torch.load", "np.load", "numpy.load", "pd.eval")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(source: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def uses(source: ast.Module, wanted: set[str]) -> set[str]:
    names = imported(source)
    return {
        each for each in wanted for name in names if name == each or name.startswith(each + ".")
    }


def dangers(source: ast.Module) -> list[str]:
    found = sorted(uses(source, UNPICKLERS))
    for node in ast.walk(source):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in CALLS_THAT_RUN_TEXT or any(
            name.endswith(each) for each in METHODS_THAT_UNPICKLE
        ):
            found.append(name)
        for word in node.keywords:
            text = f"{word.arg}={ast.unparse(word.value)}"
            if text in ("shell=True", "trust_remote_code=True", "unsafe_allow_html=True"):
                found.append(text)
            if text in ("unsafe_allow_javascript=True", "allow_pickle=True", "verify=False"):
                found.append(text)
    return found


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=short)
def test_nothing_runs_what_it_reads(path):
    assert dangers(tree(path)) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "eval(typed)",
        "torch.load('model.bin')",
        "pd.read_pickle(upload)",
        "np.load(file, allow_pickle=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "st.markdown(typed, unsafe_allow_html=True)",
        "subprocess.run(typed, shell=True)",
    ],
)
def test_the_check_above_can_fail(line):
    assert dangers(ast.parse(line))


def test_only_the_hub_and_the_server_client_open_connections():
    may = [short(path) for path in SOURCES if uses(tree(path), NETWORK)]
    assert all(name.startswith(MAY_CONNECT) for name in may), may
    assert "kvcore/config_json/hub.py" in may


def test_only_the_download_starts_a_program():
    may = [short(path) for path in SOURCES if uses(tree(path), {"subprocess", "multiprocessing"})]
    assert may == list(MAY_START_PROGRAMS)


def test_weights_are_read_from_safetensors_and_gguf_only():
    asked = set()
    for path in (ROOT / "kvcore" / "decoding").rglob("*.py"):
        asked |= set(
            re.findall(r"[\w*.-]+\.(?:bin|pt|pth|pkl|ckpt|h5|msgpack)\b", path.read_text())
        )
    assert asked == set()


def test_library_models_are_built_from_our_own_tensors():
    """`from_pretrained` may not be given a name, which it would look up and fetch."""
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("from_pretrained"):
                assert ast.unparse(node.args[0]) == "None", short(path)
