"""The cache lab in a browser: stepping, playing, the rack, the experiment, narrow screens."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.journeys.app import assert_no_sideways_scroll, settled, visit

RACK = "canvas[role=img]"


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()
    settled(page)


def press_now(page: Page, name: str) -> None:
    """Press what starts something long: the page does not come to rest afterwards."""
    page.get_by_role("button", name=name, exact=True).click()


def numbers(page: Page) -> list[str]:
    return [value.inner_text() for value in page.get_by_test_id("stMetricValue").all()]


def frames_drawn(page: Page) -> int:
    """How often the rack was drawn, once it has come to rest."""
    canvas, last = page.locator(RACK), None
    expect(canvas).to_have_attribute("data-frames", re.compile(r"\d+"))
    while last != (last := canvas.get_attribute("data-frames")):
        page.wait_for_timeout(800)
    return int(last)


def drawn(page: Page) -> bytes:
    """The rack as it stands, once it has come to rest."""
    frames_drawn(page)
    return page.locator(RACK).screenshot()


def ask(page: Page, request: int) -> None:
    press_now(page, "Ask")
    expect(page.get_by_text(re.compile(f"Request {request}, step 0 of 0"))).to_be_visible(
        timeout=60_000
    )
    expect(page.get_by_role("button", name="Ask", exact=True)).to_be_enabled(timeout=30_000)
    settled(page)


@pytest.fixture
def lab(page: Page, app_url: str) -> Page:
    visit(page, f"{app_url}/cache_lab")
    expect(page.locator(RACK)).to_be_visible()
    return page


def test_the_prepared_run_is_stepped_through_and_the_rack_is_turned(lab: Page):
    expect(lab.get_by_text(re.compile("A prepared run, nothing was loaded"))).to_be_visible()
    expect(lab.get_by_text(re.compile("step 0 of 40"))).to_be_visible()
    before, rack = numbers(lab), drawn(lab)
    for _ in range(2):
        press(lab, "Step")
    expect(lab.get_by_text(re.compile("step 2 of 40"))).to_be_visible()
    expect(lab.get_by_test_id("stMetricValue").first).to_have_text("180 of 194")
    assert numbers(lab)[:2] != before[:2]
    assert drawn(lab) != rack
    press(lab, "Back")
    expect(lab.get_by_text(re.compile("step 1 of 40"))).to_be_visible()

    canvas = lab.locator(RACK)
    canvas.scroll_into_view_if_needed()
    rest = drawn(lab)
    box = canvas.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    lab.mouse.move(*middle)
    for word in ("norm of key", "position", "layer", "block"):
        expect(lab.locator(".tip")).to_contain_text(word)
    lab.mouse.down()
    lab.mouse.move(middle[0] + 150, middle[1] + 20, steps=6)
    lab.mouse.up()
    lab.mouse.move(5, 5)
    by_mouse = drawn(lab)
    assert by_mouse != rest
    canvas.focus()
    lab.keyboard.press("ArrowLeft")
    assert drawn(lab) != by_mouse
    turned = canvas.get_attribute("data-yaw")
    press(lab, "Step")
    lab.wait_for_timeout(500)
    assert canvas.get_attribute("data-yaw") == turned, "a step keeps the angle"
    canvas.focus()
    lab.keyboard.press("Home")
    expect(canvas).to_have_attribute("data-yaw", "-0.500")


def test_a_live_model_steps_plays_and_pauses_and_everything_moves(lab: Page):
    ask(lab, 1)
    expect(lab.get_by_text(re.compile("^Running here"))).to_be_visible()
    ask(lab, 2)
    first_numbers, first_rack = numbers(lab), drawn(lab)
    assert "176 tokens" in first_numbers[2]
    label = lab.locator(RACK).get_attribute("aria-label")
    block_map = lab.get_by_test_id("stVegaLiteChart").nth(1)
    first_blocks = block_map.screenshot()
    for step in range(1, 11):
        press(lab, "Step")
        expect(lab.get_by_text(re.compile(f"step {step} of {step};"))).to_be_visible()
    expect(lab.get_by_test_id("stMetricValue").first).to_have_text("202 of 202")
    settled(lab)
    last = numbers(lab)
    assert last[1] != first_numbers[1]
    assert last[3] == first_numbers[3]
    assert drawn(lab) != first_rack
    expect(lab.locator(RACK)).not_to_have_attribute("aria-label", label)
    expect(lab.locator(RACK)).to_have_attribute("aria-label", re.compile("in 13 blocks"))
    assert block_map.screenshot() != first_blocks

    press_now(lab, "Play")
    expect(lab.get_by_text(re.compile("step 1[3-9] of 1[3-9]"))).to_be_visible(timeout=20_000)
    press_now(lab, "Pause")
    expect(lab.get_by_role("button", name="Play", exact=True)).to_be_visible()
    settled(lab)
    stopped = numbers(lab)
    lab.wait_for_timeout(1_500)
    assert numbers(lab) == stopped

    explained = lab.get_by_text(re.compile("With the time at the top the hit rate fell to 0%"))
    recorded = explained.inner_text()
    press_now(lab, "Ask in six ways")
    expect(explained).not_to_have_text(recorded, timeout=60_000)
    expect(lab.get_by_role("button", name="Ask in six ways")).to_be_enabled(timeout=60_000)
    expect(explained).to_be_visible()

    lab.get_by_role("radio", name="The row of free blocks today").click()
    expect(lab.get_by_text(re.compile("5 of 5 agree"))).to_be_visible()


def test_phone(phone: Page, app_url: str):
    visit(phone, f"{app_url}/cache_lab")
    press(phone, "Step")
    expect(phone.locator(RACK)).to_be_visible()
    assert_no_sideways_scroll(phone)
    expect(phone.get_by_text(re.compile("The same picture flat"))).to_be_visible()


def test_reduced_motion_draws_once(browser, app_url: str):
    """With motion allowed a step is drawn many times on its way, with it reduced once."""
    frames = {}
    for wish in ("no-preference", "reduce"):
        context = browser.new_context(reduced_motion=wish)
        page = context.new_page()
        visit(page, f"{app_url}/cache_lab")
        before = frames_drawn(page)
        press(page, "Step")
        expect(page.get_by_text(re.compile("step 1 of 40"))).to_be_visible()
        frames[wish] = frames_drawn(page) - before
        context.close()
    assert frames["reduce"] <= 2
    assert frames["no-preference"] > frames["reduce"]


def test_the_link_in_the_open_tab_follows_settings_that_rerun_alone(lab: Page):
    lab.get_by_role("tab", name="Export and link").click()
    blocks = lab.get_by_role("spinbutton", name="Blocks")
    blocks.fill("40")
    blocks.press("Enter")
    expect(lab.get_by_test_id("stCode").get_by_text("lab_blocks=40")).to_be_visible()
