"""How long a move of a slider takes the server, against a page with the same widgets only.

A rerun is timed as AppTest runs it: the script, its messages and their parsing in one process, with
compiled scripts kept as a server keeps them. Processor time is taken, so that others at work on the
machine do not count, and the two pages run in turn. AppTest reruns the whole page, menu and all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median, quantiles
from unittest.mock import patch

from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.testing.v1 import AppTest, app_test, local_script_runner

from kvcore.architecture import Architecture
from kvcore.catalog import MODELS
from kvcore.engines import conformance
from tests.benchmarks.figure import Figure

ROOT = Path(__file__).resolve().parents[2]

# Every round sets sliders to values that no round before has shown: nothing is ready in a cache.
UNSEEN = [{"calculator_layers": 33 + i, "calculator_context": 9_000 + 1_000 * i} for i in range(40)]


def bare() -> None:
    """A menu as long as the app's, and the calculator's widgets, of the same kinds and as many."""
    from tests.benchmarks.bench_calculator import run_in_menu, widgets

    run_in_menu(widgets)


def calculator() -> None:
    """The calculator in the same menu."""
    from tests.benchmarks.bench_calculator import ROOT, run_in_menu

    run_in_menu(ROOT / "pages" / "calculator.py")


def run_in_menu(shown: Path | Callable[[], None]) -> None:
    import streamlit as st

    from pages.common.entry import led_by_app

    def page(i: int) -> st.Page:
        return st.Page(shown, title=f"Page {i}", url_path=f"page_{i}", default=i == 0)

    with led_by_app():
        st.navigation({"": [page(0)], "More": [page(i) for i in range(1, 10)]}).run()


def widgets() -> None:
    """What the calculator asks for, and nothing that it answers."""
    import streamlit as st

    from kvcore.catalog import GPUS, MODELS

    names = iter(range(100))

    def bound(help: str = "What it is.") -> dict[str, str]:
        return {"key": f"bare_{next(names)}", "bind": "query-params", "help": help}

    st.title("Bare")
    st.columns(4)
    asked, shown = st.columns([2, 3])
    with asked:
        st.segmented_control("Size", ["a", "b", "c"], default="a", required=True, **bound())
        for key, low, high, value in (
            ("calculator_context", 1_000, 128_000, 8_000),
            ("calculator_layers", 8, 128, 32),
        ):
            st.slider(key, low, high, value, key=key, bind="query-params", help="What it is.")
        st.slider("KV heads", 1, 64, 8, **bound())
        st.slider("Head dimension", 32, 256, 128, step=8, **bound())
        st.segmented_control("Precision", ["a", "b"], default="a", required=True, **bound())
        st.selectbox("GPU", list(GPUS), **bound())
        st.number_input("Memory", 0.0, 10_000.0, value=None, **bound())
        st.number_input("Weights", 0.0, 10_000.0, 16.0, **bound())
        st.number_input("Overhead", 0.0, 1_000.0, 0.0, **bound())
        with st.expander("Ranks"):
            st.selectbox("Tensor parallel", [1, 2, 4, 8, 16, 32], **bound())
            st.number_input("Stages", 1, 64, 1, **bound())
            st.number_input("Copies", 1, 1_024, 1, **bound())
        with st.expander("Typical"):
            st.number_input("Prompt", 1, 10_000_000, 2_000, **bound())
            st.number_input("Reply", 1, 10_000_000, 500, **bound())
            st.number_input("Prefix", 0, 10_000_000, 1_000, **bound())
    with shown:
        st.multiselect("Compare", list(MODELS), **bound())
        st.toggle("Log", **bound())
    st.tabs([str(i) for i in range(9)], on_change="rerun", key="tab", bind="query-params")


def figures() -> Iterator[Figure]:
    compiled = ScriptCache()
    keep = {"ScriptCache": lambda: compiled}
    with patch.multiple(local_script_runner, **keep), patch.multiple(app_test, **keep):
        yield from _reruns()
    yield from _library()


def _reruns() -> Iterator[Figure]:
    full, empty = (
        AppTest.from_function(app, default_timeout=60).run() for app in (calculator, bare)
    )
    ours, theirs = [], []
    for values in UNSEEN:
        ours.append(_rerun(full, values))
        theirs.append(_rerun(empty, values))
    yield Figure(
        "calculator: rerun after a slider, 95th percentile",
        quantiles(ours, n=20)[-1] * 1000,
        100,
        "ms",
        at_least=False,
        note=f"bare page {quantiles(theirs, n=20)[-1] * 1000:.0f} ms",
    )
    yield Figure(
        "calculator: rerun against a bare page with the same widgets",
        median(ours) / median(theirs),
        2,
        "×",
        at_least=False,
    )


def _rerun(app: AppTest, values: Mapping[str, int]) -> float:
    for key, value in values.items():
        app.slider(key=key).set_value(value)
    start = time.process_time()
    app.run()
    return time.process_time() - start


def _library() -> Iterator[Figure]:
    configs = [model.config for model in MODELS.values()]
    start = time.process_time()
    for config in configs:
        Architecture.from_config(config)
    each = (time.process_time() - start) / len(configs)
    yield Figure("calculator: reading a config.json", each * 1000, 5, "ms", at_least=False)
    start = time.process_time()
    conformance.run()
    elapsed = time.process_time() - start
    yield Figure("calculator: the conformance set, live", elapsed, 1, "s", at_least=False)
