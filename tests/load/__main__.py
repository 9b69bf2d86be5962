"""`make load`: many visitors at once, over real websockets, against a server on this machine.

Three parts. 200 sessions come and go: does the server give back their memory? One measurement on a
quiet server. Then 50 sessions move sliders on the pages without a model, one measures and five
wait: how long is a rerun, and does the measurement say that it was disturbed?

Nothing is replaced by a stand-in but the model's weights, which are random where the hub cannot be
asked. Bounded: at most 260 sessions, about five minutes, 127.0.0.1 only. Writes build/load.json;
exits 1 when a limit is missed.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median, quantiles

from tests.benchmarks.figure import Figure
from tests.benchmarks.machine import machine
from tests.load.client import Visitor
from tests.load.server import MB, resident_bytes, serving

# page: the sliders and numbers that its visitors move, with the values they move between.
MOVES: dict[str, tuple[tuple[str, tuple[float, ...]], ...]] = {
    "tour": (("tour_step", tuple(range(1, 25))), ("tour_piece", tuple(range(1, 8)))),
    "calculator": (
        ("calculator_layers", tuple(range(8, 129))),
        ("calculator_kv_heads", tuple(range(1, 65))),
        ("calculator_context", tuple(range(1_000, 128_000, 1_000))),
    ),
    "gqa": (("gqa_layers", tuple(range(8, 97))),),
    "prompt_caching": (
        ("prompt_caching_prefix_tokens", tuple(range(1_000, 20_000, 500))),
        ("prompt_caching_requests_per_hour", tuple(range(1, 400))),
    ),
    "cache_lab": (("lab_blocks", tuple(range(3, 500))),),
}
VISITORS = 50
WAITING = 5
COMING_AND_GOING = 200
AT_ONCE = 10
SECONDS_BETWEEN_MOVES = 5.0
SECONDS_OF_LOAD = 60.0
BUSY = "Other work took the processor"
MEASURED = {
    "live_timing_model": "DistilGPT-2",
    "live_timing_new_tokens": "200",
    "live_timing_peer": "false",
}


async def come_and_go(url: str, pid: int) -> dict[str, float]:
    """Memory of the server before, with, and after 200 sessions that each used a page."""
    async with Visitor(url) as first:
        for page in MOVES:
            await first.open(page)
    before = resident_bytes(pid)
    gate = asyncio.Semaphore(AT_ONCE)
    visitors = [Visitor(url) for _ in range(COMING_AND_GOING)]
    await asyncio.gather(*(visit(each, index, gate) for index, each in enumerate(visitors)))
    during = resident_bytes(pid)
    await asyncio.gather(*(each.__aexit__() for each in visitors))
    after, deadline = resident_bytes(pid), time.monotonic() + 150
    while after > 1.15 * before and time.monotonic() < deadline:
        await asyncio.sleep(5)
        after = resident_bytes(pid)
    return {"before": before, "during": during, "after": after}


async def visit(visitor: Visitor, index: int, gate: asyncio.Semaphore) -> None:
    async with gate:
        await visitor.__aenter__()
        page = list(MOVES)[index % len(MOVES)]
        await visitor.open(page)
        key, values = MOVES[page][0]
        await visitor.move(key, random.Random(index).choice(values))


async def measure(visitor: Visitor) -> None:
    """A live run from Start to its end."""
    await visitor.open("live_timing", **MEASURED)
    await visitor.press("live_timing_start")
    await visitor.until(lambda: stop_is(visitor, disabled=False), 60)


async def ended(visitor: Visitor, seconds: float = 300) -> bool:
    return await visitor.until(lambda: stop_is(visitor, disabled=True), seconds)


def stop_is(visitor: Visitor, *, disabled: bool) -> bool:
    """Whether the Stop button is there, and in this state."""
    buttons = [m for kind, m in visitor.widgets() if m.id.endswith("-live_timing_stop")]
    return bool(buttons) and buttons[0].disabled is disabled


async def measured_alone(url: str) -> bool:
    """Whether a measurement on the quiet server says that it was disturbed."""
    async with Visitor(url) as visitor:
        await measure(visitor)
        assert await ended(visitor), "the run did not end"
        return visitor.shows(BUSY)


async def under_load(url: str, pid: int) -> dict[str, object]:
    """50 sessions move sliders while one measures and five wait."""
    movers = [Visitor(url) for _ in range(VISITORS)]
    measuring = [Visitor(url) for _ in range(1 + WAITING)]
    for each in [*movers, *measuring]:
        await each.__aenter__()
    try:
        return await _under_load(movers, measuring, pid)
    finally:
        await asyncio.gather(*(each.__aexit__() for each in [*movers, *measuring]))


async def _under_load(
    movers: list[Visitor], measuring: list[Visitor], pid: int
) -> dict[str, object]:
    pages = list(MOVES)
    opened = [mover.open(pages[i % len(pages)]) for i, mover in enumerate(movers)]
    await asyncio.gather(*opened)
    for mover in movers:
        mover.seconds.clear()
    for each in measuring:
        await measure(each)
    places = [each for each in measuring if each.shows("ahead of this one")]
    errors: Counter[str] = Counter()
    until = time.monotonic() + SECONDS_OF_LOAD
    moving = asyncio.gather(*(keep_moving(m, i, until, errors) for i, m in enumerate(movers)))
    first_ended = await ended(measuring[0])
    disturbed = measuring[0].shows(BUSY)
    await moving
    for each in measuring[1:]:
        if stop_is(each, disabled=False):
            await each.press("live_timing_stop")
    seconds = [s for mover in movers for s in mover.seconds]
    return {
        "seconds": seconds,
        "waiting": len(places),
        "first_ended": first_ended,
        "disturbed": disturbed,
        "errors": dict(errors),
        "memory": resident_bytes(pid),
    }


async def keep_moving(visitor: Visitor, index: int, until: float, errors: Counter[str]) -> None:
    """One rerun about every five seconds, as people do who look at what changed."""
    draw = random.Random(index)
    sliders = MOVES[list(MOVES)[index % len(MOVES)]]
    await asyncio.sleep(draw.uniform(0, SECONDS_BETWEEN_MOVES))
    while time.monotonic() < until:
        key, values = draw.choice(sliders)
        try:
            await visitor.move(key, draw.choice(values))
        except Exception as error:  # a lost session is a result, too
            errors[type(error).__name__] += 1
        if any(e.WhichOneof("type") == "exception" for e in visitor.elements.values()):
            errors["exception on the page"] += 1
        await asyncio.sleep(draw.uniform(0.6, 1.4) * SECONDS_BETWEEN_MOVES)


def figures(memory: dict[str, float], alone: bool, load: dict[str, object]) -> list[Figure]:
    cuts = quantiles(load["seconds"], n=100)
    faults = sum(load["errors"].values())
    note = f"{len(load['seconds'])} reruns of {VISITORS} sessions {load['errors'] or ''}"
    at_most = [
        ("rerun under load, median", median(load["seconds"]) * 1e3, 300, "ms"),
        ("rerun under load, 95th percentile", cuts[94] * 1e3, 1_000, "ms"),
        ("rerun under load, 99th percentile", cuts[98] * 1e3, 2_000, "ms"),
        ("faults under load", faults, 0, ""),
        ("memory before any session", memory["before"] / MB, 250, "MB"),
        (f"memory with {COMING_AND_GOING} sessions", memory["during"] / MB, 2_250, "MB"),
        ("memory after they left, over before", memory["after"] / memory["before"], 1.15, "×"),
        ("memory with a model and 56 sessions", load["memory"] / MB, 1_700, "MB"),
        ("quiet measurement says it was disturbed (0: no)", alone, 0, ""),
    ]
    at_least = [
        ("sessions that saw their place in the queue", load["waiting"], WAITING, ""),
        ("measurement under load says it was disturbed (1: yes)", load["disturbed"], 1, ""),
    ]
    return [
        *(Figure(*each, at_least=False, note=note) for each in at_most),
        *(Figure(*each, note=note) for each in at_least),
    ]


async def run() -> list[Figure]:
    with serving() as (url, pid):
        print("# 200 sessions come and go", flush=True)
        memory = await come_and_go(url, pid)
        print({when: f"{size / MB:.0f} MB" for when, size in memory.items()}, flush=True)
    with serving() as (url, pid):
        print("# one measurement alone", flush=True)
        alone = await measured_alone(url)
        print(f"# {VISITORS} sessions move sliders, one measures, {WAITING} wait", flush=True)
        load = await under_load(url, pid)
    return figures(memory, alone, load)


def main() -> int:
    found = asyncio.run(run())
    for figure in found:
        print(figure.line())
    print(found[0].note)
    out = Path("build/load.json")
    out.parent.mkdir(exist_ok=True)
    document = {"machine": machine(), "figures": [figure.as_dict() for figure in found]}
    out.write_text(json.dumps(document, indent=1))
    return 0 if all(figure.holds for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
