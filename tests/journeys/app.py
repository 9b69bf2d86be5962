"""Moves that every journey makes."""

from __future__ import annotations

from playwright.sync_api import Page, expect


def path_of(name: str) -> str:
    """The address of a page; the home page has none of its own."""
    return "/" if name == "tour" else f"/{name}"


def settled(page: Page) -> None:
    """Wait until the run of the page is over and nothing is being drawn."""
    expect(page.get_by_test_id("stApp")).to_have_attribute(
        "data-test-script-state", "notRunning", timeout=60_000
    )
    expect(page.locator("[data-testid=stSkeleton]")).to_have_count(0, timeout=60_000)


def visit(page: Page, url: str) -> None:
    page.goto(url, timeout=90_000)
    expect(page.get_by_test_id("stApp")).to_be_visible(timeout=60_000)
    settled(page)


def assert_no_sideways_scroll(page: Page) -> None:
    """Nothing may stand wider than the window."""
    overflow = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0, f"the page is {overflow} px wider than the window"
