"""The sharing-heads page."""

from __future__ import annotations

import time

import pytest

from kvcore.attention import Shape, variants
from kvcore.catalog import MODELS
from kvcore.gqa import shape_of, simple_models
from kvcore.jobs import Job, State
from pages.sharing.timing import live_rows, timing_work


def metric(app, label):
    return next(each for each in app.metric if each.label == label)


def test_the_numbers_of_the_first_view(open_page):
    app = open_page("gqa")
    assert metric(app, "Query heads per KV head").value == "4 (GQA-8)"
    assert metric(app, "Cache of one request").value == "1.00 GiB"
    assert "4.00 GiB as MHA: 4.0×" in [caption.value for caption in app.caption]
    assert metric(app, "Attention runs").value.endswith("× as fast")


@pytest.mark.parametrize(
    ("sharing", "size", "readers"),
    [("MHA", "4.00 GiB", "1 (MHA)"), ("MQA", "128.00 MiB", "32 (MQA)")],
)
def test_every_divisor_is_a_stop(open_page, sharing, size, readers):
    app = open_page("gqa", gqa_sharing=sharing)
    assert metric(app, "Query heads per KV head").value == readers
    assert metric(app, "Cache of one request").value.replace("0.12 GiB", "128.00 MiB") == size
    slider = app.select_slider(key="gqa_sharing")
    assert slider.options == ["MHA", "GQA-16", "GQA-8", "GQA-4", "GQA-2", "MQA"]


def test_changing_the_query_heads_moves_to_the_nearest_share(open_page):
    app = open_page("gqa")
    app.slider(key="gqa_query_heads").set_value(12).run()
    assert not app.exception
    assert app.select_slider(key="gqa_sharing").value == "GQA-6"
    assert any("GQA-6 is the nearest" in caption.value for caption in app.caption)
    app.slider(key="gqa_query_heads").set_value(1).run()
    assert not app.exception
    assert any("nothing to share" in caption.value for caption in app.caption)
    app.slider(key="gqa_query_heads").set_value(128).run()
    assert not app.exception


def test_a_link_that_does_not_divide_is_refused_with_a_sentence(open_page):
    app = open_page("gqa", gqa_sharing="GQA-5", gqa_layers="9999")
    words = " ".join(warning.value for warning in app.warning)
    assert "not one of MHA" in words
    assert "a whole number from 1 to 128" in words
    assert metric(app, "Query heads per KV head").value == "4 (GQA-8)"


@pytest.mark.parametrize("name", ["Qwen2.5-7B-Instruct", "Falcon-7B", "Llama-3.1-405B"])
def test_starting_from_a_model(open_page, name):
    app = open_page("gqa")
    app.selectbox(key="gqa_model").set_value(name).run()
    assert not app.exception
    shape = shape_of(MODELS[name])
    assert app.slider(key="gqa_query_heads").value == shape.sharing.num_query_heads
    assert app.select_slider(key="gqa_sharing").value == shape.sharing.name
    assert app.slider(key="gqa_layers").value == shape.num_layers


def test_every_model_to_start_from_has_a_place_on_the_sliders():
    for name in simple_models():
        assert shape_of(MODELS[name]).num_layers <= 128


@pytest.mark.parametrize(
    "tab", ["Real models", "Time, measured", "Quality, measured", "Arithmetic", "Sources"]
)
def test_every_tab_draws(open_page, tab):
    app = open_page("gqa", gqa_tab=tab)
    assert not app.exception
    assert not app.error


def test_real_models_beside_their_twins(open_page):
    app = open_page("gqa", gqa_tab="Real models")
    table = app.dataframe[0].value
    assert table.loc[table["Model"] == "Llama-3.1-8B", "Cache"].item() == "1.00 GiB"
    assert table.loc[table["Model"] == "Llama-3.1-8B", "Had it stayed MHA"].item() == "4.00 GiB"


def test_the_paper_is_quoted_with_its_source(open_page):
    app = open_page("gqa", gqa_tab="Quality, measured")
    table = app.dataframe[-1].value
    assert table["Time per sample"].tolist() == ["1.51 s", "0.28 s", "0.24 s"]
    assert table["Average quality"].tolist() == [47.2, 47.1, 46.6]
    assert any("table 1" in caption.value for caption in app.caption)
    assert any("5 %" in text.value for text in app.markdown)


def test_the_recorded_time_is_labelled(open_page):
    app = open_page("gqa", gqa_tab="Time, measured")
    assert any(caption.value.startswith("Recorded on") for caption in app.caption)
    table = app.dataframe[0].value
    assert set(table["Context"]) == {1024, 2048, 4096, 8192}
    assert {"MHA", "GQA-8", "MQA"} == set(table["Sharing"])


def small_job(rounds):
    shapes = [Shape(1, 8, 32, 256), Shape(1, 8, 32, 512)]
    return Job(timing_work(shapes, variants(8, [2, 1]), rounds, 1))


def test_a_measurement_here_ends_in_rows():
    job = small_job(3).start()
    job.join(60)
    assert job.state is State.DONE
    assert len(job.results) == job.total
    rows = live_rows(job)
    assert [row["context"] for row in rows] == [256] * 9 + [512] * 9
    assert all(row["rounds"] == 3 for row in rows)


def test_a_stopped_measurement_keeps_its_rounds():
    job = small_job(5_000).start()
    deadline = time.monotonic() + 60
    while len(job.results) < 40 and time.monotonic() < deadline:
        time.sleep(0.01)
    job.stop()
    job.join(20)
    assert job.state is State.STOPPED
    rows = live_rows(job)
    assert rows
    assert {row["context"] for row in rows} == {256}


def test_too_large_a_measurement_is_refused(open_page):
    app = open_page(
        "gqa",
        gqa_tab="Time, measured",
        gqa_query_heads="128",
        gqa_batch="8",
        gqa_longest="8192",
        gqa_sharing="GQA-64",
    )
    app.button(key="gqa_measure").click().run()
    assert "Lower the batch" in app.error[0].value
    assert app.selectbox(key="gqa_batch").value == 8


def test_measuring_in_the_page(open_page):
    app = open_page(
        "gqa",
        gqa_tab="Time, measured",
        gqa_query_heads="4",
        gqa_sharing="GQA-2",
        gqa_head_dim="32",
        gqa_batch="1",
    )
    app.selectbox(key="gqa_longest").set_value(1024).run()
    app.button(key="gqa_measure").click().run()
    assert not app.exception
    for _ in range(200):
        if not app.button(key="gqa_measure").disabled:
            break
        time.sleep(0.1)
        app.run()
    assert any(caption.value.startswith("Measured here and now") for caption in app.caption)
    assert set(app.dataframe[0].value["Sharing"]) == {"MHA", "GQA-2", "MQA"}
