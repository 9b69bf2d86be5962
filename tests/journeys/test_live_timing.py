"""A run in the browser: it grows, it stops, others wait for it, a closed tab frees the place."""

import csv
import io
import re

from playwright.sync_api import Browser, Locator, Page, expect

from tests.journeys.app import assert_no_sideways_scroll, settled, visit
from tests.journeys.conftest import DESKTOP

PATIENCE_MS = 120_000
LONG = "/live_timing?live_timing_model=smollm2&live_timing_new_tokens=900&live_timing_peer=false"
SHORT = "/live_timing?live_timing_model=smollm2&live_timing_new_tokens=6&live_timing_peer=false"


def start(page: Page) -> None:
    page.get_by_role("button", name="Start").click()


def stop(page: Page) -> None:
    page.get_by_role("button", name="Stop").click()


def tokens_done(page: Page) -> int:
    line = page.get_by_text(re.compile(r"^\d+ of 900 tokens"))
    expect(line).to_be_visible(timeout=PATIENCE_MS)
    return int(line.inner_text().split()[0])


def wait_for_tokens(page: Page, count: int) -> None:
    page.wait_for_function(
        """count => [...document.querySelectorAll('[data-testid=stProgress]')]
            .some(each => parseInt(each.innerText.replace(/,/g, '')) >= count)""",
        arg=count,
        timeout=PATIENCE_MS,
    )


def value_of(page: Page, label: str) -> Locator:
    name = page.get_by_test_id("stMetricLabel").get_by_text(label, exact=True)
    holder = page.get_by_test_id("stMetric").filter(has=name)
    return holder.get_by_test_id("stMetricValue")


def test_a_run_grows_stops_and_is_exported(app_url, page: Page):
    visit(page, app_url + LONG)
    expect(page.get_by_text("Recorded on")).to_be_visible()
    start(page)
    first = tokens_done(page)
    wait_for_tokens(page, first + 4)
    texts = page.get_by_test_id("stText").all_inner_texts()
    assert len(texts) >= 2
    assert all(text.startswith("The librarian never read") for text in texts[:2])
    stop(page)
    expect(page.get_by_text("Stopped after")).to_be_visible(timeout=PATIENCE_MS)
    settled(page)
    expect(value_of(page, "Same reply?")).to_have_text("Yes")

    page.get_by_role("tab", name="Sources and export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text(), newline="")))
    compared = page.get_by_text(re.compile(r"^\d+ tokens compared$")).inner_text()
    assert len(rows) == int(compared.split()[0])
    total = sum(float(row["cached_seconds"]) for row in rows)
    shown = value_of(page, "With the cache").inner_text()
    if shown.endswith(" s"):
        assert abs(total - float(shown.removesuffix(" s"))) < 0.06


def test_a_second_session_waits_and_a_closed_tab_frees_the_place(
    app_url, page: Page, browser: Browser
):
    visit(page, app_url + LONG)
    start(page)
    tokens_done(page)

    other_context = browser.new_context(viewport=DESKTOP)
    other = other_context.new_page()
    visit(other, app_url + SHORT)
    start(other)
    expect(other.get_by_text("one measurement is ahead of this one")).to_be_visible(
        timeout=PATIENCE_MS
    )
    page.close()
    expect(other.get_by_text("6 tokens compared")).to_be_visible(timeout=PATIENCE_MS)
    other_context.close()


def test_phone_width(app_url, phone: Page):
    visit(phone, app_url + "/live_timing")
    expect(phone.get_by_text("Recorded on")).to_be_visible()
    assert_no_sideways_scroll(phone)


def test_the_link_follows_the_settings_and_the_results_stay(app_url, page: Page):
    visit(page, app_url + "/live_timing")
    page.get_by_text("Link to these settings").click()
    slider = page.get_by_role("slider", name="New tokens")
    slider.focus()
    slider.press("ArrowRight")
    link = page.get_by_test_id("stCode").filter(has_text="live_timing_new_tokens=49")
    expect(link).to_be_visible()
    expect(page.get_by_text("1,000 tokens compared")).to_be_visible()
