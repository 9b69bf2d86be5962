"""A manager's way from the defaults to a page to forward; uploads; two prompts compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.journeys.app import assert_no_sideways_scroll, settled, visit

# A page that is being drawn on a busy machine is late, not wrong.
expect.set_options(timeout=30_000)

SAMPLES = Path(__file__).parents[1] / "data" / "usage"

# One sample for each format, and what the page must call it.
FORMATS = {
    "claude_api_tokens_2026_11.csv": "Claude Console usage CSV",
    "claude_api_cost_2026_11.csv": "Claude Console cost CSV",
    "anthropic_usage_report.json": "Anthropic usage report",
    "openai_usage.csv": "OpenAI usage",
    "openai_usage.json": "OpenAI usage",
    "openai_costs.csv": "OpenAI cost",
    "openrouter_activity_2026-11-02.csv": "OpenRouter activity",
    "litellm_spend_logs.json": "LiteLLM spend logs",
    "litellm_daily_user_spend.csv": "LiteLLM daily spend",
    "langfuse_observations.jsonl": "Langfuse",
    "helicone_requests.jsonl": "Helicone",
    "helicone_requests.csv": "Helicone",
    "claude_code_session.jsonl": "Coding-assistant transcript",
    "codex_rollout.jsonl": "Coding-assistant transcript",
    "api_responses.jsonl": "API responses",
}


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).click()
    settled(page)


def download(page: Page, button: str) -> str:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=button).click()
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def test_from_the_defaults_to_a_page_to_forward(app_url, page: Page):
    visit(page, app_url + "/prompt_caching")
    sentence = page.get_by_role("heading", name=re.compile("You would save"))
    expect(sentence).to_contain_text(re.compile(r"You would save \$[\d,.]+ a month, [\d.]+ % of"))
    said = sentence.inner_text()
    expect(page.locator("[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg")
           .first).to_be_visible()  # fmt: skip
    amount = re.search(r"\$[\d,.]+", said).group()
    written = download(page, "Summary (HTML)")
    assert amount in written
    assert "<script" not in written
    assert said in written
    markdown = download(page, "Summary (Markdown)").replace("\\", "")
    assert said in markdown
    assert "| Model" in markdown

    requests = page.get_by_role("spinbutton", name="Requests an hour")
    requests.fill("1")
    requests.press("Enter")
    settled(page)
    expect(sentence).not_to_have_text(said)
    expect(page).to_have_url(re.compile("prompt_caching_requests_per_hour=1"))
    now = sentence.inner_text()
    page.reload()
    settled(page)
    expect(sentence).to_have_text(now)


def test_every_format_can_be_uploaded(app_url, page: Page):
    visit(page, app_url + "/prompt_caching")
    tab(page, "Your own usage")
    for name, form in FORMATS.items():
        page.locator("input[type=file]").set_input_files(SAMPLES / name)
        settled(page)
        expect(page.get_by_text(f"{name}: {form}", exact=False)).to_be_visible()
        shown = "In this export" if "cost" in name else "Paid, by the list"
        expect(page.get_by_text(shown, exact=True)).to_be_visible()
    page.get_by_role("button", name="Forget this file").scroll_into_view_if_needed()
    body = page.locator("body").inner_text()
    for secret in ("sample-hash", "support-bot", "sample question"):
        assert secret not in body


def test_two_prompts_side_by_side(app_url, page: Page):
    visit(page, app_url + "/prompt_caching")
    tab(page, "What breaks my cache?")
    rules = "Follow the rules of the house with care. " * 300
    for label, second in (("First prompt", "01"), ("Second prompt", "07")):
        area = page.get_by_role("textbox", name=label)
        area.fill(f"You help. It is 2026-11-29 10:00:{second}.\n{rules}")
        area.press("Control+Enter")
        settled(page)
    expect(page.get_by_role("heading", name=re.compile("tokens are shared; then"))).to_be_visible()
    expect(page.get_by_text(re.compile(r"that is worth \$[\d,.]+ a month"))).to_be_visible()
    expect(page).not_to_have_url(re.compile("rules"))


def test_phone_width(app_url, phone: Page):
    visit(phone, app_url + "/prompt_caching")
    expect(phone.get_by_role("heading", name=re.compile("You would save"))).to_be_visible()
    assert_no_sideways_scroll(phone)


@pytest.mark.parametrize("typed", ["<b>x</b>", "openai/[link](http://x)"])
def test_a_typed_model_is_text(app_url, page: Page, typed):
    visit(page, f"{app_url}/prompt_caching?prompt_caching_model={typed}")
    expect(page.get_by_text("left out of every sum").first).to_be_visible()
    assert page.locator("main b, main a[href='http://x']").count() == 0


def test_a_large_export_shows_progress_and_can_be_stopped(app_url, page: Page, tmp_path):
    row = '{"model":"claude-sonnet-4-5","usage":{"input_tokens":10,"output_tokens":5},"id":"%d"}\n'
    large = tmp_path / "large.jsonl"
    large.write_text("".join(row % number for number in range(250_000)), encoding="utf-8")
    visit(page, app_url + "/prompt_caching")
    tab(page, "Your own usage")
    page.locator("input[type=file]").set_input_files(large)
    expect(page.get_by_text(re.compile(r"^[1-9][\d,]* rows read"))).to_be_visible()
    page.get_by_role("button", name="Stop reading").click()
    expect(page.get_by_text("Stopped: nothing of this file is counted.")).to_be_visible()
    expect(page.get_by_role("button", name="Read it again")).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("You would save"))).to_be_visible()
