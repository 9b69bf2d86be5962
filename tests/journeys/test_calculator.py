"""From a model to a reconciled log, and the same state again from the link."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.engines.logs import VLLM_LLAMA_20K
from tests.journeys.app import assert_no_sideways_scroll, settled, visit
from tests.journeys.conftest import DESKTOP
from tests.test_architecture import llama

expect.set_options(timeout=30_000)

CONFIG = json.dumps(
    {
        **llama(32, 8),
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    },
    indent=2,
)


@pytest.fixture(params=["page", "phone"])
def window(request: pytest.FixtureRequest) -> Page:
    """The same journey at desktop and at phone width."""
    return request.getfixturevalue(request.param)


def metric(page: Page, label: str) -> str:
    return page.get_by_test_id("stMetric").filter(has_text=label).first.inner_text()


def write(page: Page, label: str, text: str) -> None:
    area = page.get_by_role("textbox", name=label)
    area.fill(text)
    area.press("Control+Enter")
    settled(page)


def pick(page: Page, label: str, option: str) -> None:
    """Choose from a list, with a finger where there is a touch screen."""
    touch = page.evaluate("navigator.maxTouchPoints > 0")
    for part in (
        page.get_by_role("combobox", name=label),
        page.get_by_role("option", name=option, exact=True),
    ):
        part.tap() if touch else part.click()
    settled(page)


def test_the_whole_way(app_url: str, window: Page, browser: Browser):
    visit(window, app_url + "/calculator")
    assert "0.98 GiB" in metric(window, "Cache of one request")
    assert "61" in metric(window, "Users at once")
    assert_no_sideways_scroll(window)

    window.get_by_role("radio", name="A named model").click()
    settled(window)
    pick(window, "Model", "Llama-3.1-70B")
    expect(window.get_by_text("327,680 bytes")).to_be_visible()

    window.get_by_role("radio", name="Your config").click()
    settled(window)
    write(window, "config.json", CONFIG)
    expect(window.get_by_text("131,072 bytes")).to_be_visible()

    window.get_by_role("tab", name="Paste a log").click()
    settled(window)
    write(window, "Start-up log of vLLM", VLLM_LLAMA_20K)
    expect(window.get_by_text("figures agree with the log")).to_be_visible()
    assert_no_sideways_scroll(window)

    link = window.url
    for part in ("calculator_config=", "calculator_startup=", "calculator_tab="):
        assert part in link
    other = browser.new_context(viewport=DESKTOP)
    other.set_default_timeout(30_000)
    copy = other.new_page()
    visit(copy, link)
    expect(copy.get_by_text("131,072 bytes")).to_be_visible()
    expect(copy.get_by_text("figures agree with the log")).to_be_visible()
    pasted = copy.get_by_role("textbox", name="config.json")
    expect(pasted).to_have_value(re.compile("num_hidden_layers"))
    other.close()


def test_a_slider_moves_the_answer_and_the_address(app_url: str, page: Page):
    visit(page, app_url + "/calculator")
    slider = page.get_by_role("slider", name="Context (tokens)")
    slider.press("ArrowRight")
    settled(page)
    expect(page.get_by_text("GB, at 9,000 tokens")).to_be_visible()
    expect(page).to_have_url(re.compile("calculator_context=9000"))


def test_an_uploaded_config_lands_in_the_text_area(app_url: str, page: Page):
    visit(page, app_url + "/calculator?calculator_source=Your+config")
    page.get_by_role("button", name="Upload or fetch").click()
    page.locator("input[type=file]").set_input_files(
        {"name": "config.json", "mimeType": "application/json", "buffer": CONFIG.encode()}
    )
    settled(page)
    expect(page.get_by_text("131,072 bytes")).to_be_visible()
    typed = page.get_by_role("textbox", name="config.json")
    expect(typed).to_have_value(re.compile("num_hidden_layers"))
