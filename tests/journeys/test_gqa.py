"""Sharing heads in a real browser: turn the sharing, measure, stop, export, follow the link."""

from __future__ import annotations

import csv
import json
import re

from playwright.sync_api import Page, expect

from tests.journeys.app import assert_no_sideways_scroll, settled, visit


def saved(download) -> str:
    return download.value.path().read_text(encoding="utf-8")


def test_turning_from_one_sharing_to_another(page: Page, app_url: str) -> None:
    visit(page, f"{app_url}/gqa")
    expect(page.get_by_test_id("stMetric").first).to_contain_text("4 (GQA-8)")
    expect(page.get_by_test_id("stVegaLiteChart").first).to_be_visible()
    slider = page.get_by_role("slider", name="KV heads")
    slider.focus()
    slider.press("End")
    settled(page)
    expect(page.get_by_test_id("stMetric").first).to_contain_text("32 (MQA)")
    expect(page).to_have_url(re.compile("gqa_sharing=MQA"))
    page.get_by_role("tab", name="Export and link").click()
    link = page.get_by_test_id("stCode").last.inner_text().strip()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").last.click()
    rows = list(csv.DictReader(saved(download).splitlines()))
    assert [row["sharing"] for row in rows][-1] == "MQA"
    assert rows[-1]["times_less"] == "32.0"

    other = page.context.browser.new_page()
    visit(other, link)
    expect(other.get_by_test_id("stMetric").first).to_contain_text("32 (MQA)")
    other.close()


def test_measuring_stopping_and_keeping_what_was_measured(page: Page, app_url: str) -> None:
    visit(
        page,
        f"{app_url}/gqa?gqa_tab=Time, measured&gqa_query_heads=8&gqa_sharing=GQA-2"
        "&gqa_head_dim=64&gqa_batch=1&gqa_rounds=15&gqa_longest=8192",
    )
    expect(page.get_by_text("Recorded on").first).to_be_visible()
    page.get_by_role("button", name="Measure here").click()
    expect(page.get_by_test_id("stProgress")).to_be_visible()
    expect(page.get_by_text(re.compile("reads 4 times fewer bytes")).first).to_be_visible(
        timeout=60_000
    )
    page.locator(".st-key-gqa_stop button").click()
    settled(page)
    expect(page.get_by_text(re.compile("Measured here|what was measured")).first).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSON").last.click()
    document = json.loads(saved(download))
    assert {row["sharing"] for row in document["rows"]} == {"MHA", "GQA-2", "MQA"}
    assert document["settings"]["measured"] == "measured here"


def test_on_a_phone(phone: Page, app_url: str) -> None:
    visit(phone, f"{app_url}/gqa")
    expect(phone.get_by_test_id("stVegaLiteChart").first).to_be_visible()
    assert_no_sideways_scroll(phone)
