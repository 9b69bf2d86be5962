import json

import pytest

from kvcore.decoding.run import recorded
from kvcore.jobs import MEASUREMENTS, State
from pages.common.text import as_text
from tests.small_models import small_model

PATIENCE_S = 60


@pytest.fixture(autouse=True)
def _small_model(monkeypatch):
    chosen = small_model("gpt2")
    monkeypatch.setattr("kvcore.decoding.run.SHELF.take", lambda name, **options: chosen)
    monkeypatch.setattr("kvcore.decoding.run.Run._peer", lambda self, model, prompt: None)


def the_job():
    import threading

    workers = [each for each in threading.enumerate() if each.name == "workbench-job"]
    for worker in workers:
        worker.join(PATIENCE_S)


def metric(app, label):
    return next(each.value for each in app.metric if each.label == label)


def test_a_first_visit_shows_the_recorded_run(open_page):
    app = open_page("live_timing")
    assert not app.exception
    assert any("Recorded on" in caption.value for caption in app.caption)
    ratio = recorded().comparison.speed_up()[-1]
    assert metric(app, "Faster with the cache") == f"{ratio:,.1f}×"
    assert metric(app, "Same reply?") == "Yes"
    assert "1,000 tokens compared" in [each.value for each in app.caption]


def test_a_run_from_start_to_totals(open_page):
    app = open_page("live_timing", live_timing_new_tokens="30")
    app.button(key="live_timing_start").click().run()
    the_job()
    app.run()
    assert not app.exception
    assert metric(app, "Same reply?") == "Yes"
    assert "30 tokens compared" in [each.value for each in app.caption]
    assert not any("Recorded on" in caption.value for caption in app.caption)
    assert len(MEASUREMENTS) == 0


@pytest.mark.parametrize("prompt", ["é 漢字 \u202e \U0001f9e0", "[a](http://b)", "\x00", " "])
def test_any_text_is_a_prompt(open_page, prompt):
    app = open_page("live_timing", live_timing_new_tokens="5")
    app.text_area(key="live_timing_prompt").set_value(prompt)
    app.button(key="live_timing_start").click().run()
    the_job()
    app.run()
    assert not app.exception
    assert not app.error
    assert app.text_area(key="live_timing_prompt").value == prompt


def test_an_empty_prompt_gets_its_sentence(open_page):
    app = open_page("live_timing")
    app.text_area(key="live_timing_prompt").set_value("")
    app.button(key="live_timing_start").click().run()
    assert [error.value for error in app.error] == [
        as_text("The prompt is empty: type at least one character to go on from.")
    ]
    assert app.metric, "the recorded run is still there"


def test_a_prompt_that_does_not_fit_gets_its_sentence_and_stays(open_page):
    app = open_page("live_timing")
    app.text_area(key="live_timing_prompt").set_value("x" * 600)
    app.button(key="live_timing_start").click().run()
    the_job()
    app.run()
    assert len(app.error) == 1
    assert "shorten the prompt" in app.error[0].value
    assert app.text_area(key="live_timing_prompt").value == "x" * 600
    assert not app.button(key="live_timing_start").disabled


def test_a_link_brings_the_settings_back_and_bad_ones_are_refused(open_page):
    app = open_page(
        "live_timing",
        live_timing_model="smollm2",
        live_timing_new_tokens="200",
        live_timing_mode="Uncached sampled",
        live_timing_temperature="hot",
        live_timing_seed="-1",
    )
    assert app.selectbox(key="live_timing_model").value == "smollm2"
    assert app.slider(key="live_timing_new_tokens").value == 200
    assert len(app.warning) == 2
    assert app.number_input(key="live_timing_seed").value == 0


def test_presets_set_length_and_mode(open_page):
    app = open_page("live_timing")
    app.pills(key="live_timing_preset").set_value("1,000 tokens, sampled").run()
    assert app.slider(key="live_timing_new_tokens").value == 1_000


def test_a_failing_model_leaves_a_working_page(open_page, monkeypatch):
    def fail(name, **options):
        raise RuntimeError("the disk is gone")

    monkeypatch.setattr("kvcore.decoding.run.SHELF.take", fail)
    app = open_page("live_timing")
    app.button(key="live_timing_start").click().run()
    the_job()
    app.run()
    assert not app.exception
    assert len(app.error) == 1
    assert len(MEASUREMENTS) == 0
    assert State.FAILED


def test_the_charts_say_what_they_show(open_page):
    app = open_page("live_timing")
    alts = [chart.proto.alt for chart in app.get("vega_lite_chart")]
    assert any("With the cache a token takes" in text for text in alts)
    assert all(json.loads(chart.proto.spec) for chart in app.get("vega_lite_chart"))
