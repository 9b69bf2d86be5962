"""The cache quality page."""

from __future__ import annotations

import time

import pytest

from kvcore.decoding.shelf import SHELF
from kvcore.quality import FULL, Plan, python_text, standard_treatments
from kvcore.quality.texts import MAX_CHARACTERS
from pages.quality import controls
from pages.quality.results import Outcome, example
from tests.small_models import small_model

TABS = ("Recall by place", "It is gone", "Arithmetic", "How it is measured", "Export and link")


def metric(app, label):
    return next(each for each in app.metric if each.label.startswith(label))


@pytest.fixture
def small(monkeypatch):
    """A small seeded network in place of SmolLM2, said to come from the wheel."""
    model = small_model("llama")
    monkeypatch.setattr(model, "source", "wheel")
    monkeypatch.setattr(SHELF, "take", lambda name, **options: model)
    return model


def test_the_recorded_run_is_there_at_first_sight(open_page):
    app = open_page("cache_quality")
    assert any(caption.value.startswith("Recorded on") for caption in app.caption)
    assert metric(app, "Forget all but a window").value.endswith("perplexity")
    assert metric(app, "Early facts recalled by the window").value.startswith("0 of")
    table = app.dataframe[0].value
    assert table["Cache"].tolist() == [each.name for each in standard_treatments()]


def test_the_recorded_run_shows_what_the_papers_say(open_page):
    table = open_page("cache_quality").dataframe[0].value.set_index("Cache")
    perplexity = table["Perplexity"].astype(float)
    full = perplexity[FULL.name]
    assert perplexity["Window of 256"] > 1.5 * full
    assert perplexity["4 sinks + window of 252"] < 1.2 * full
    assert perplexity["8 bits (q8_0)"] == pytest.approx(full, rel=0.01)
    assert perplexity["4 bits, one scale per head"] > 1.2 * full


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_draws(open_page, tab):
    app = open_page("cache_quality", cache_quality_tab=tab)
    assert not app.exception
    assert not app.error


def test_an_answer_that_is_gone_stands_beside_the_right_one(open_page):
    app = open_page("cache_quality", cache_quality_tab="It is gone")
    verdicts = [caption.value for caption in app.caption if caption.value in ("right", "wrong")]
    assert {"right", "wrong"} == set(verdicts)
    assert any("not compressed" in text.value for text in app.markdown)


@pytest.mark.parametrize("measure", ["perplexity", "divergence", "unchanged"])
def test_each_measure_of_quality_draws(open_page, measure):
    app = open_page("cache_quality", cache_quality_measure=measure)
    assert not app.exception
    assert "full cache" in app.get("vega_lite_chart")[0].proto.alt


def paste(open_page, text, **query):
    app = open_page("cache_quality", cache_quality_text=controls.PASTED, **query)
    app.text_area(key="cache_quality_pasted").set_value(text).run()
    return app


def test_an_empty_text_gets_its_sentence(open_page):
    app = paste(open_page, "")
    assert not app.error
    app.button(key="cache_quality_start").click().run()
    assert app.error[0].value == "The pasted text is empty; paste a few pages of English."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Only a line.", "has 12 characters; at least 321 tokens are needed"),
        ("word " * (MAX_CHARACTERS // 5 + 1), "at most 100,000 are read"),
    ],
)
def test_a_text_too_short_or_too_long_gets_its_sentence_and_stays(open_page, text, sentence):
    app = paste(open_page, text)
    assert sentence in app.error[0].value
    assert app.button(key="cache_quality_start").disabled
    assert app.text_area(key="cache_quality_pasted").value == text
    assert not app.exception


def test_a_text_too_short_in_tokens_gets_its_sentence_after_the_start(open_page, small):
    """Long enough in characters, but too little of it to hide facts in."""
    app = paste(open_page, "A few words. " * 30)
    app.button(key="cache_quality_start").click().run()
    wait(app)
    assert any("too few words to hide facts in" in text.value for text in app.text)
    assert app.text_area(key="cache_quality_pasted").value.startswith("A few words.")


def test_settings_that_leave_nothing_to_score_are_refused(open_page):
    app = open_page("cache_quality", cache_quality_budget="512", cache_quality_tokens="512")
    assert "at least 577 are needed" in app.error[0].value
    assert app.button(key="cache_quality_start").disabled


def test_random_weights_are_refused(open_page, monkeypatch):
    monkeypatch.setattr(SHELF, "take", lambda name, **options: small_model("gpt2"))
    app = open_page("cache_quality", cache_quality_model="gpt2")
    app.button(key="cache_quality_start").click().run()
    wait(app)
    assert any("no quality to lose" in text.value for text in app.text)


def wait(app):
    for _ in range(600):
        if app.button(key="cache_quality_stop").disabled:
            return
        time.sleep(0.1)
        app.run()
    raise AssertionError("the run did not end")


def test_a_run_in_the_page(open_page, small):
    text = python_text("Python reference: execution model")
    app = open_page(
        "cache_quality",
        cache_quality_text=controls.PASTED,
        cache_quality_budget="64",
        cache_quality_recall="400",
        cache_quality_tab="Export and link",
    )
    app.selectbox(key="cache_quality_tokens").set_value(512).run()
    app.multiselect(key="cache_quality_kinds").set_value(["Window", "8 bits"]).run()
    app.text_area(key="cache_quality_pasted").set_value(text).run()
    app.button(key="cache_quality_start").click().run()
    wait(app)
    assert not app.exception
    assert any("Measured here and now" in caption.value for caption in app.caption)
    assert app.dataframe[0].value["Cache"].tolist() == [
        FULL.name,
        "Window of 64",
        "8 bits (q8_0)",
    ]
    app.button(key="cache_quality_recorded").click().run()
    assert any(caption.value.startswith("Recorded on") for caption in app.caption)


def test_a_stopped_run_keeps_what_it_measured(open_page, small, monkeypatch):
    from kvcore.quality import reader

    read = reader.Reader.read

    def slowly(self, token_ids):
        time.sleep(0.3)
        return read(self, token_ids)

    monkeypatch.setattr(reader.Reader, "read", slowly)
    app = paste(
        open_page,
        python_text("Python reference: execution model"),
        cache_quality_budget="64",
        cache_quality_recall="400",
    )
    app.selectbox(key="cache_quality_tokens").set_value(512).run()
    app.button(key="cache_quality_start").click().run()
    for _ in range(200):
        if app.get("vega_lite_chart"):
            break
        time.sleep(0.05)
        app.run()
    app.button(key="cache_quality_stop").click().run()
    assert not app.exception
    assert any(caption.value.startswith("Stopped: ") for caption in app.caption)
    assert FULL.name in app.dataframe[0].value["Cache"].tolist()


def test_chosen_kinds_keep_their_names_under_any_budget():
    assert controls.names_of(["Sinks + window", "4 bits, one scale per head"], 128, 2) == (
        FULL.name,
        "2 sinks + window of 126",
        "4 bits, one scale per head",
    )
    plan = Plan(controls.names_of(list(controls.KINDS), 64, 4), budget=64)
    assert [each.name for each in plan.treatments] == [
        each.name for each in standard_treatments(64)
    ]
    assert plan.steps == 1 + 10 + 30


def test_the_example_prefers_a_fact_that_was_lost():
    def row(seed, treatment, kind, hit):
        return {"seed": seed, "treatment": treatment, "kind": kind, "hit": hit, "place": "early"}

    rows = [
        row(0, FULL.name, "keeps all", True),
        row(0, "Window of 64", "forgets", True),
        row(1, FULL.name, "keeps all", True),
        row(1, "Window of 64", "forgets", False),
    ]
    assert {found["seed"] for found in example(rows)} == {1}
    assert {found["seed"] for found in example(rows[:2])} == {0}
    assert example([]) == []
    assert Outcome(rows, [], "").score("Window")["seed"] == 0
