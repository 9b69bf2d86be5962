"""Journeys over the paging page: a real trace uploaded whole, broken ones, the map played."""

import re

from playwright.sync_api import Page, expect

from tests.journeys.app import assert_no_sideways_scroll, settled, visit
from tests.shared_data import shared_data

# A busy machine needs longer than the five seconds that are usual.
LONG = 40_000
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
FIRST = "2023-11-16 18:15:46.6805900,374,44\n"
BROKEN = {
    "missing.csv": (
        "TIMESTAMP,ContextTokens\n2023-11-16 18:15:46,374\n",
        "The column GeneratedTokens is missing",
    ),
    "negative.csv": (
        HEADER + FIRST + "2023-11-16 18:15:47,396,-9\n",
        "Line 3: GeneratedTokens is -9; a length cannot be negative.",
    ),
    "order.csv": (
        HEADER + FIRST + "2023-11-16 18:15:40,396,9\n",
        "Line 3 is earlier than the line before it; sort the trace by time.",
    ),
    "other.csv": ("city,people\nBern,134000\n", "This is not a trace"),
}


def upload(page: Page, path: str) -> None:
    page.get_by_test_id("stFileUploaderDropzoneInput").set_input_files(path)


def test_azures_whole_trace_from_an_upload(page, app_url):
    trace = shared_data("azure_llm_2023_conv.csv.gz")
    visit(page, f"{app_url}/paging?paging_source=trace&paging_count=20000&paging_tab=Export")
    expect(page.get_by_text("Upload a trace to see")).to_be_visible(timeout=LONG)
    upload(page, str(trace))
    expect(page.get_by_text(re.compile("19,366 requests in Azure's form"))).to_be_visible(
        timeout=LONG
    )
    answer = page.get_by_test_id("stMetric").filter(has_text="Memory that holds tokens, paged")
    expect(answer).to_contain_text("9", timeout=120_000)
    settled(page)
    expect(page).to_have_url(re.compile("paging_source="))
    refused = page.get_by_text(re.compile("2,838 of 19,366 requests can never be served"))
    expect(refused).to_have_count(1, timeout=LONG)
    share = float(re.search(r"([\d.]+) %", answer.inner_text())[1])
    assert 90 < share < 100


def test_broken_traces_get_their_sentences(page, app_url, tmp_path):
    visit(page, f"{app_url}/paging?paging_source=trace&paging_tab=Sources")
    for name, (text, sentence) in BROKEN.items():
        path = tmp_path / name
        path.write_text(text)
        upload(page, str(path))
        expect(page.get_by_test_id("stAlert")).to_contain_text(sentence, timeout=LONG)


def test_a_trace_of_300_mb_is_refused_with_a_sentence(page, app_url, tmp_path):
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        file.write((HEADER + FIRST).encode())
        file.truncate(300 * 10**6)
    visit(page, f"{app_url}/paging?paging_source=trace&paging_tab=Sources")
    upload(page, str(path))
    expect(page.get_by_text(re.compile("must be 64.*MB or smaller"))).to_be_visible(timeout=LONG)


def test_the_map_plays_pauses_and_follows_a_click(page, app_url):
    visit(page, f"{app_url}/paging?paging_count=500&paging_step=100")
    step = page.get_by_text(re.compile(r"^Step [\d,]+ of"))
    expect(step).to_contain_text("Step 100 of", timeout=LONG)
    page.get_by_role("button", name="Play").click()
    expect(step).not_to_contain_text("Step 100 of", timeout=LONG)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Play")).to_be_visible(timeout=LONG)
    settled(page)
    paused = int(re.search(r"paging_step=(\d+)", page.url)[1])
    assert paused > 100
    canvas = page.locator("[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg")
    canvas.nth(1).click(position={"x": 250, "y": 22})
    expect(page.get_by_text(re.compile(r"^Request \d+ \(.* tokens in"))).to_have_count(
        2, timeout=LONG
    )
    expect(page).to_have_url(re.compile("paging_follow="))


def test_it_fits_a_phone(phone, app_url):
    visit(phone, f"{app_url}/paging?paging_count=500")
    expect(phone.get_by_text("Would a request fit?")).to_be_visible(timeout=LONG)
    assert_no_sideways_scroll(phone)
