"""The tour from start to each lab and back."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.journeys.app import assert_no_sideways_scroll, settled, visit

LABS = {
    "I pay the bill": "Prompt caching",
    "I size the GPUs": "Memory calculator",
    "I want to see it run": "Live timing",
    "Look into a real drawer": "Cache lab",
    "Share": "Sharing heads",
    "Forget and round": "Cache quality",
    "Page": "Paging",
    "Could you explain it?": "Whiteboard",
}


@pytest.mark.parametrize("link", LABS)
def test_each_lab_and_back(app_url, page: Page, link):
    visit(page, app_url)
    page.get_by_test_id("stPageLink").get_by_role("link", name=link, exact=False).first.click()
    expect(page.get_by_test_id("stHeading").first).not_to_have_text(re.compile("reread"))
    settled(page)
    expect(
        page.get_by_test_id("stSidebarNavLink").and_(page.locator("[aria-current=page]"))
    ).to_contain_text(LABS[link].split(" bill")[0])
    page.go_back()
    settled(page)
    expect(page.get_by_role("heading", name="It does not reread your whole chat")).to_be_visible()


def test_a_step_moves_the_count(app_url, page: Page):
    visit(page, app_url)
    slider = page.get_by_role("slider", name="Step")
    slider.focus()
    slider.press("End")
    settled(page)
    expect(page.get_by_test_id("stMetricValue").get_by_text("300", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile("tour_step=24"))
    page.reload()
    settled(page)
    expect(page.get_by_test_id("stMetricValue").get_by_text("300", exact=True)).to_be_visible()


def test_the_tour_fits_a_phone(app_url, phone: Page):
    visit(phone, app_url)
    assert_no_sideways_scroll(phone)
