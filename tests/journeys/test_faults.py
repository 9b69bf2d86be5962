"""Runs that are left, interrupted and doubled, on a real server with real sessions.

Over the websocket rather than in a browser: so a connection can break off without a goodbye.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.load.client import Visitor, run_alone
from tests.load.server import serving

SETTINGS = {"live_timing_model": "DistilGPT-2", "live_timing_peer": "false"}
LONG = SETTINGS | {"live_timing_new_tokens": "800"}
SHORT = SETTINGS | {"live_timing_new_tokens": "2"}
AHEAD = "ahead of this one"
PATIENCE_S = 150  # the tests beside this one may have the processor


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as (url, _):
        yield url


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_alone(story())


async def start(visitor: Visitor, settings: dict[str, str]) -> None:
    await visitor.open("live_timing", **settings)
    await visitor.press("live_timing_start")


def running(visitor: Visitor) -> bool:
    return visitor.shows(" tokens, ") or visitor.shows(" tokens run")


def stopped(visitor: Visitor) -> bool:
    buttons = [m for _, m in visitor.widgets() if m.id.endswith("-live_timing_stop")]
    return bool(buttons) and buttons[0].disabled


async def the_next_visitor_measures(url: str) -> None:
    async with Visitor(url) as visitor:
        await start(visitor, SHORT)
        assert await visitor.until(lambda: stopped(visitor), PATIENCE_S), list(visitor.texts())
        assert not [e for e in visitor.elements.values() if e.WhichOneof("type") == "exception"]
        assert visitor.shows("DistilGPT-2")


def test_a_browser_that_closes_during_a_run_frees_the_place(url):
    async def story() -> None:
        async with Visitor(url) as leaving, Visitor(url) as second_tab:
            await start(leaving, LONG)
            assert await leaving.until(lambda: running(leaving), PATIENCE_S)
            await start(second_tab, LONG)
            assert await second_tab.until(lambda: second_tab.shows(AHEAD), PATIENCE_S)
            await leaving.vanish()
            assert await second_tab.until(lambda: running(second_tab), PATIENCE_S)
        await the_next_visitor_measures(url)

    play(story)


def test_a_rerun_during_a_run_keeps_it(url):
    async def story() -> None:
        async with Visitor(url) as visitor:
            await start(visitor, LONG)
            assert await visitor.until(lambda: running(visitor), PATIENCE_S)
            await visitor.move("live_timing_new_tokens", 5)
            assert not stopped(visitor)
            await visitor.open("calculator")
            await visitor.open("live_timing")
            assert not stopped(visitor)
            await visitor.press("live_timing_stop")
            assert await visitor.until(lambda: stopped(visitor), PATIENCE_S)
            assert visitor.shows("Stopped after")
        await the_next_visitor_measures(url)

    play(story)


def test_the_first_visitors_of_a_cold_server_may_all_come_at_once():
    """Their pages import overlapping packages at the same moment."""
    pages = ("tour", "calculator", "gqa", "prompt_caching", "cache_lab", "paging")

    async def story(url: str) -> None:
        visitors = [Visitor(url) for _ in pages]
        for visitor in visitors:
            await visitor.__aenter__()
        try:
            opened = (each.open(page) for each, page in zip(visitors, pages, strict=True))
            await asyncio.gather(*opened)
            for visitor in visitors:
                kinds = {element.WhichOneof("type") for element in visitor.elements.values()}
                assert "exception" not in kinds
        finally:
            await asyncio.gather(*(visitor.__aexit__() for visitor in visitors))

    with serving() as (url, _):
        run_alone(story(url))
