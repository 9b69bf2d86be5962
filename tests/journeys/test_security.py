"""In a real browser: hostile names in an upload, a config and a link act in no way."""

from __future__ import annotations

import json

from playwright.sync_api import Page

from tests.journeys.app import settled, visit

HOSTILE = (
    '![zq7](http://zq7.invalid/a.png) <img src="http://zq7.invalid/b.png" onerror="window.zq7=1"> '
    "[zq7](javascript:window.zq7=1) https://zq7.invalid/c www.zq7.invalid a@zq7.invalid :red[zq7]"
)


def assert_nothing_acts(page: Page, asked: list[str]) -> None:
    assert page.locator("img[src*=zq7], a[href*=zq7], iframe[src*=zq7]").count() == 0
    assert page.evaluate("window.zq7") is None
    assert [url for url in asked if "zq7.invalid" in url] == []


def test_hostile_configs_and_links_are_text(app_url, page):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    visit(page, f"{app_url}/calculator?calculator_source=Your+config")
    config = {"model_type": HOSTILE, "num_hidden_layers": 2}
    box = page.get_by_label("config.json", exact=True)
    box.fill(json.dumps(config))
    box.press("Control+Enter")
    page.get_by_test_id("stAlert").first.wait_for()
    settled(page)
    assert "zq7" in page.get_by_test_id("stAlert").first.inner_text()
    assert_nothing_acts(page, asked)


def test_hostile_names_of_an_upload_are_text(app_url, page):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    rows = [
        {
            "model": model,
            "timestamp": "2026-10-01T00:00:00Z",
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }
        for model in (HOSTILE, "claude-sonnet-4-5")
    ]
    data = "\n".join(json.dumps(row) for row in rows).encode()
    visit(page, f"{app_url}/prompt_caching")
    page.get_by_role("tab", name="Your own usage").click()
    settled(page)
    page.locator("input[type=file]").first.set_input_files(
        {"name": "zq7 [a](http:zq7.invalid).jsonl", "mimeType": "text/plain", "buffer": data}
    )
    page.get_by_text("zq7").first.wait_for()
    settled(page)
    assert_nothing_acts(page, asked)
