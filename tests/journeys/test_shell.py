"""The first visit to a server that has just started, by the front door and by a deep link."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.journeys.app import assert_no_sideways_scroll, settled, visit
from tests.journeys.conftest import start_server, stop_server

WATCH_THE_MENU = """
window.menus = [];
new MutationObserver(() => {
    const links = [...document.querySelectorAll('[data-testid=stSidebarNavLink]')];
    const menu = links.map(link => link.innerText).join('|');
    if (menu && window.menus.at(-1) !== menu) window.menus.push(menu);
}).observe(document, {subtree: true, childList: true, characterData: true});
"""


@pytest.fixture
def new_server(chromium_path):
    process, url = start_server()
    yield url
    stop_server(process)


@pytest.mark.parametrize("path", ["/", "/whiteboard", "/tour"])
def test_no_old_menu_at_a_first_visit(new_server, page: Page, path):
    page.add_init_script(WATCH_THE_MENU)
    visit(page, new_server + path)
    expect(page.get_by_test_id("stSidebarNavLink").first).to_be_visible()
    menus = page.evaluate("window.menus")
    assert len(menus) == 1, menus
    assert "Whiteboard" in menus[0]
    assert page.title() == "KV Cache Workbench" or "Whiteboard" in page.title()


def test_the_app_asks_nobody_but_its_own_server(app_url, page: Page):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    visit(page, app_url)
    own = app_url.removeprefix("http://")
    outside = [url for url in asked if own not in url and not url.startswith(("data:", "blob:"))]
    assert outside == []


def test_the_tour_answers_at_its_name_and_keeps_its_settings(app_url, page: Page):
    visit(page, app_url + "/tour?tour_step=7")
    expect(page.get_by_role("heading", level=1)).to_contain_text("reread")
    assert "Page not found" not in page.content()
    expect(page).to_have_url(re.compile("tour_step=7"))


def test_phone_width_has_no_sideways_scroll(app_url, phone: Page):
    visit(phone, app_url + "/whiteboard")
    assert_no_sideways_scroll(phone)


def test_the_whiteboard_survives_a_reload(app_url, page: Page):
    visit(page, app_url + "/whiteboard")
    typed = page.get_by_role("textbox", name="Your number, with its unit").first
    typed.fill("2 GB")
    typed.press("Enter")
    expect(page.get_by_text("Not yet.")).to_be_visible()
    typed.fill("1.05 GB")
    typed.press("Enter")
    expect(page.get_by_text("1,048,576,000 B").first).to_be_visible()

    page.get_by_role("tab", name="Checklist").click()
    page.get_by_text("Size the cache from the model's config").click()
    settled(page)
    expect(page.get_by_text("1 of 13")).to_be_visible()
    page.reload()
    settled(page)
    expect(page.get_by_text("1 of 13")).to_be_visible()
