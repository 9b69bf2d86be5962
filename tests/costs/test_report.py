"""The page that is forwarded: complete, plain, and nothing in it can turn into markup."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from kvcore.costs import estimate
from kvcore.costs.doubts import Band
from kvcore.costs.estimate import ModelChoice, repriced
from kvcore.costs.report import (
    band_sentence,
    later_sentence,
    summary_html,
    summary_markdown,
    workload_sentences,
)
from kvcore.costs.workload import Workload

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
GEMINI = ModelChoice("gemini-3.8-flash", "google")


@pytest.fixture(scope="module")
def compared():
    models = [GEMINI, "claude-haiku-4-5", "<script>alert(1)</script>|x*y"]
    return estimate(models, at=NOW, prefixes=20, turns=3)


def test_the_answer_comes_first_and_everything_it_rests_on_after(compared):
    later = repriced(compared.models[0], GEMINI, date(2027, 1, 1))
    page = summary_markdown(compared, later=later)
    lines = page.split("\n\n")
    assert lines[0] == "# Prompt caching"
    assert lines[1] == compared.sentence
    for words in (
        "Caching cannot touch",
        "Likely between",
        "## Where the answer flips",
        "## What costs money, and the fix",
        "## The same traffic on 2027-01-01",
        "## Could not be priced",
        "genai-prices 0.2.3, offline",
        "checked on 2026-11-29",
        "Not certain",
    ):
        assert words in page
    for model in compared.models:
        for outcome in model.outcomes:
            assert outcome.name in page


def test_text_from_outside_stays_text(compared):
    html = summary_html(compared)
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    written = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "ul", "li"}
    written |= {"table", "thead", "tbody", "tr", "th", "td"}
    assert set(re.findall(r"</?([a-z0-9]+)", html)) <= written
    markdown = summary_markdown(compared)
    assert "<script" not in markdown.replace("\\<", "")
    assert "x\\*y" in markdown


def test_no_more_digits_than_the_band_can_bear():
    band = Band(Decimal("142.39"), Decimal("-12.345"), Decimal("1234.5"), ())
    assert band_sentence(band).startswith("Likely between $12 lost and $1,200 saved a month.")


def test_later_prices_in_words(compared):
    later = repriced(compared.models[0], GEMINI, date(2027, 1, 1))
    assert re.fullmatch(
        r"Costs \$[\d.,]+ more a month, with caching\. The list price changes on 2027-01-01\.",
        later_sentence(later),
    )


def test_the_traffic_is_told_as_it_was_entered():
    said = " ".join(workload_sentences(Workload(turns=4, prefixes=12, parallel=3)))
    for words in ("6,000 stable tokens", "26,400 a month", "12 different", "4 turns", "3 at once"):
        assert words in said
