"""Does the rack stay responsive at 28 layers × 512 positions?

A page with that rack is served, opened in headless Chromium without a graphics card and turned with
the mouse, 60 moves. Each drawing is timed inside the page, from the start of its callback to the
last box; the median of them must allow 30 drawings a second. The 95th percentile stands in the
note: on a shared machine it tells of the neighbours. Beside it: what a step costs the server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from statistics import median, quantiles

from playwright.sync_api import Page, expect, sync_playwright

from kvcore.lab import frames
from kvcore.lab.rack import rack_data
from tests.benchmarks.figure import Figure
from tests.benchmarks.long_run import long_run
from tests.journeys.conftest import DESKTOP, FLAGS, find_chromium, start_server, stop_server

MOVES = 60
RACK = "canvas[role=img]"


def figures() -> Iterator[Figure]:
    yield server_side()
    chromium = find_chromium()
    if chromium is None:
        print("# rack: no Chromium on this machine, the drawing is not timed")
        return
    yield in_the_browser(chromium)


def server_side() -> Figure:
    """A step that is drawn for the first time: past the cache that keeps the steps drawn last."""
    trace = long_run()
    spent = []
    for _ in range(5):
        for frame in trace.frames:
            start = time.thread_time()
            for data in (rack_data, frames.heat_map, frames.block_slots):
                data.__wrapped__(trace, frame)
            spent.append(1_000 * (time.thread_time() - start))
    name = "cache lab, data of one step at 28 layers × 512 positions"
    return Figure(name, median(spent), 50, "ms", at_least=False, note="median of processor time")


def in_the_browser(chromium: str) -> Figure:
    process, url = start_server(script="tests/benchmarks/rack_page.py", PYTHONPATH=os.getcwd())
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, headless=True, args=FLAGS)
            page = browser.new_page(viewport=DESKTOP)
            page.goto(url)
            page.locator(RACK).wait_for(timeout=60_000)
            page.wait_for_timeout(2_000)
            boxes = page.locator(RACK).get_attribute("data-boxes")
            times = turn(page)
            browser.close()
    finally:
        stop_server(process)
    name = "rack, 28 layers × 512 positions turned in Chromium, one drawing"
    note = f"{boxes} boxes, {len(times)} drawings, p95 {quantiles(times, n=20)[-1]:.1f} ms"
    return Figure(name, median(times), 33, "ms", at_least=False, note=note)


def turn(page: Page) -> list[float]:
    """Milliseconds of each drawing while the rack is dragged to and fro."""
    canvas = page.locator(RACK)
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    times: list[float] = []
    page.mouse.move(x, y)
    page.mouse.down()
    for move in range(MOVES):
        seen = canvas.get_attribute("data-frames")
        page.mouse.move(x + 120 * (move % 20 - 10) / 10, y + move % 7)
        expect(canvas).not_to_have_attribute("data-frames", seen)
        times.append(float(canvas.get_attribute("data-draw-ms")))
    page.mouse.up()
    return times
