"""The app as visitors meet it: reruns, memory, the first picture, imports, the size of charts.

Reruns are timed from outside, over a real websocket: from the message that moves a slider to
"script finished". Beside each page stands a bare one with the same widgets and nothing else, on a
server of its own, and the two are moved in turn, so that noise on the machine hits both alike.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from playwright.sync_api import Browser, sync_playwright

from tests.benchmarks.figure import Figure
from tests.journeys.conftest import DESKTOP, FLAGS, find_chromium, start_server, stop_server
from tests.load.client import Visitor
from tests.load.server import MB, maps, resident_bytes, serving

# What is moved on each page, and between which values.
SLIDERS: dict[str, tuple[str, tuple[float, ...] | tuple[str, ...]]] = {
    "tour": ("tour_step", tuple(range(1, 25))),
    "calculator": ("calculator_layers", tuple(range(8, 129))),
    "gqa": ("gqa_layers", tuple(range(8, 97))),
    "paging": ("paging_watermark", (0.0, 0.01, 0.02, 0.03)),
    "prompt_caching": ("prompt_caching_prefix_tokens", tuple(range(1_000, 20_000, 500))),
    "cache_lab": ("lab_blocks", tuple(range(3, 500))),
    "cache_quality": ("cache_quality_sinks", tuple(range(17))),
    "live_timing": ("live_timing_new_tokens", tuple(range(1, 1_000))),
    "server": ("server_repeats", tuple(range(1, 21))),
    "whiteboard": ("whiteboard_typed_estimate", tuple(f"{size} GB" for size in range(2, 60))),
}
# Pages that simulate for a value they have not met and keep the outcome; bench_paging times that.
SIMULATE = ("paging",)
ROUNDS = 40
SESSIONS = 40
MAX_MARKS, MAX_CHART_KB = 5_000, 500
FIRST_PICTURE = """
window.firstPicture = new Promise(resolve => {
  const seen = () => document.querySelector(
    '[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg.marks');
  const look = () => seen() ? resolve(performance.now()) : requestAnimationFrame(look);
  look();
});
"""


def figures() -> Iterator[Figure]:
    yield from imports()
    with serving() as (url, pid):
        yield from asyncio.run(visits(url, pid))
        yield from first_picture(url)
    yield from memory_with_a_model()
    yield fallback_without_a_hub()


def imports() -> Iterator[Figure]:
    """What the pages without a model import, against Streamlit, Altair and pandas alone."""
    modules = [f"kvcore.charts.{name}" for name in ("calculator", "gqa", "paging", "tour")]
    modules += ["kvcore.calculator", "kvcore.paging", "kvcore.costs", "kvcore.whiteboard"]
    ours = "import streamlit, altair, pandas, " + ", ".join(modules)
    theirs = "import streamlit, altair, pandas"
    seconds: dict[str, list[float]] = {ours: [], theirs: []}
    for _ in range(5):
        for line, taken in seconds.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", line], check=True)
            taken.append(time.perf_counter() - start)
    ratio = median(a / b for a, b in zip(*seconds.values(), strict=True))
    note = f"{median(seconds[ours]):.1f} s against {median(seconds[theirs]):.1f} s"
    yield Figure(
        "imports of the pages over streamlit + altair + pandas", ratio, 2, "×", False, note
    )


async def visits(url: str, pid: int) -> list[Figure]:
    """Reruns, the memory of sessions, and what the charts ship."""
    found: list[Figure] = []
    widgets: dict[str, list[dict[str, Any]]] = {}
    marks, chart_kb = 0, 0.0
    async with Visitor(url) as visitor:
        for page in SLIDERS:
            await visitor.open(page)
            widgets[page] = [described(kind, message) for kind, message in visitor.widgets()]
            for rows, size in charts(visitor):
                marks, chart_kb = max(marks, rows), max(chart_kb, size / 1e3)
        found.append(Figure("largest chart, rows", marks, MAX_MARKS, "", False))
        found.append(Figure("largest chart, bytes sent", chart_kb, MAX_CHART_KB, "kB", False))
        found += memory_before_a_model(pid)
    found += await memory_of_sessions(url, pid)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "widgets.json"
        path.write_text(json.dumps(widgets))
        process, bare = start_server(script="tests/benchmarks/bare_app.py", BARE_WIDGETS=str(path))
        try:
            for page in SLIDERS:
                found += await reruns(url, bare, page)
        finally:
            stop_server(process)
    return found


def described(kind: str, message: Any) -> dict[str, Any]:
    """What the bare page needs to know to show the same widget."""
    options = [getattr(each, "content", each) for each in getattr(message, "options", [])]
    return {
        "kind": kind,
        "key": message.id.split("-", 2)[-1],
        "label": message.label,
        "options": [str(each) or "x" for each in options],
        "min": float(getattr(message, "min", 0)),
        "max": float(getattr(message, "max", 0)),
        "step": float(getattr(message, "step", 1)),
    }


def charts(visitor: Visitor) -> Iterator[tuple[int, int]]:
    """(rows, bytes) of every chart on the page."""
    for element in visitor.elements.values():
        if element.WhichOneof("type") == "vega_lite_chart":
            chart = element.vega_lite_chart
            data = chart.data.data
            rows = pa.ipc.open_stream(data).read_all().num_rows if data else 0
            yield rows, len(chart.spec) + len(data)


def memory_before_a_model(pid: int) -> Iterator[Figure]:
    name = "server's memory before a model is loaded, every page visited"
    yield Figure(name, resident_bytes(pid) / MB, 250, "MB", False)
    torch = maps(pid, "libtorch")
    if torch is not None:
        yield Figure("torch loaded before a model is asked for (0: no)", torch, 0, "", False)


async def memory_of_sessions(url: str, pid: int) -> list[Figure]:
    """Sessions that each opened the calculator and moved a slider, all still there."""
    before = resident_bytes(pid)
    visitors = [Visitor(url) for _ in range(SESSIONS)]
    for index, visitor in enumerate(visitors):
        await visitor.__aenter__()
        await visitor.open("calculator")
        await visitor.move("calculator_layers", 8 + index)
    each = (resident_bytes(pid) - before) / SESSIONS / MB
    await asyncio.gather(*(visitor.__aexit__() for visitor in visitors))
    return [Figure(f"memory of each further session ({SESSIONS})", each, 10, "MB", False)]


async def reruns(url: str, bare: str, page: str) -> list[Figure]:
    key, values = SLIDERS[page]
    async with Visitor(url) as ours, Visitor(bare) as theirs:
        await ours.open(page)
        await theirs.open("", page=page)
        for visitor in (ours, theirs):
            for value in values if page in SIMULATE else values[:1]:
                await visitor.move(key, value)
            visitor.seconds.clear()
        for index in range(1, ROUNDS + 1):
            for visitor in (ours, theirs):
                await visitor.move(key, values[index % len(values)])
                await asyncio.sleep(0.05)
        mine, others = ours.seconds, theirs.seconds
    p95 = quantiles(mine, n=20)[-1] * 1e3
    ratio = median(mine) / median(others)
    note = f"median {median(mine) * 1e3:.0f} ms, bare page {median(others) * 1e3:.0f} ms"
    return [
        Figure(f"{page}: rerun, 95th percentile", p95, 100, "ms", False, note),
        Figure(f"{page}: rerun over a bare page with its widgets", ratio, 2, "×", False),
    ]


def first_picture(url: str) -> Iterator[Figure]:
    """From the first byte of the page to the first chart of the calculator; fresh browsers."""
    chromium = find_chromium()
    if chromium is None:
        print("# app: no Chromium on this machine, the first picture is not timed")
        return
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, headless=True, args=FLAGS)
        seconds = [_first_picture(browser, f"{url}/calculator") for _ in range(6)][1:]
        browser.close()
    note = f"median of {len(seconds)}, slowest {max(seconds):.1f} s"
    yield Figure("calculator: first byte to first picture", median(seconds), 2, "s", False, note)


def _first_picture(browser: Browser, url: str) -> float:
    context = browser.new_context(viewport=DESKTOP)
    page = context.new_page()
    page.add_init_script(FIRST_PICTURE)
    page.goto(url)
    at = page.evaluate("window.firstPicture")
    first_byte = page.evaluate("performance.getEntriesByType('navigation')[0].responseStart")
    context.close()
    return (at - first_byte) / 1e3


def memory_with_a_model() -> Iterator[Figure]:
    """GPT-2 through 1,000 new tokens with the cache, uncached steps sampled, as a visitor runs it.

    While it runs, the transformers library's own copy of some weights is there to compare with.
    """
    with serving() as (url, pid):
        ran, text, highest = asyncio.run(_run_gpt2(url, pid))
        after = resident_bytes(pid)
    if not ran:
        print("# app: the run of 1,000 tokens did not end in time", flush=True)
    name = "server's memory with GPT-2, after a run of 1,000 tokens"
    yield Figure(name, after / MB, 1_200, "MB", False, text)
    name = "the same at its highest, transformers beside it for comparison"
    yield Figure(name, highest / MB, 1_700, "MB", False)


async def _run_gpt2(url: str, pid: int) -> tuple[bool, str, int]:
    settings = {"live_timing_model": "GPT-2", "live_timing_new_tokens": "980"}
    settings["live_timing_mode"] = "Uncached sampled"
    highest = 0

    def over() -> bool:
        nonlocal highest
        highest = max(highest, resident_bytes(pid))
        buttons = [m for _, m in visitor.widgets() if m.id.endswith("-live_timing_stop")]
        return bool(buttons) and buttons[0].disabled

    async with Visitor(url) as visitor:
        await visitor.open("live_timing", **settings)
        await visitor.press("live_timing_start")
        await asyncio.sleep(1)
        ended = await visitor.until(over, 600)
        told = next((t for t in visitor.texts() if t.startswith("GPT-2:")), "real weights")
        return ended, told[:80], highest


def fallback_without_a_hub() -> Figure:
    """Nothing listens at the hub's address: seconds lost before something else is tried."""
    from kvcore.decoding import hub
    from tests.decoding.fake_hub import silent_server

    with silent_server() as url, patch.dict("os.environ", HF_ENDPOINT=url, HF_HUB_OFFLINE=""):
        start = time.perf_counter()
        with suppress(hub.HubError):
            hub.download(("openai-community/gpt2",))
        lost = time.perf_counter() - start
    return Figure("time lost on a hub that says nothing", lost, 3, "s", False)
