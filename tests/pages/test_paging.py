"""The paging page: what it says first, that switches move what they should, and that links work."""

import json

import pyarrow as pa
import pytest

from kvcore.paging import POLICIES, paper_requests
from pages.paging_parts import player


def metrics(app):
    return {metric.label: metric.value for metric in app.metric}


def charts(app):
    return app.get("vega_lite_chart")


def rows(chart):
    return pa.ipc.open_stream(chart.proto.data.data).read_pandas()


def assert_fine(app):
    assert not app.exception
    assert not app.error


@pytest.fixture
def small(open_page):
    """The page with few requests, and other settings if asked for."""

    def run(**query):
        return open_page("paging", **{"paging_count": "500", **query})

    return run


def test_the_answer_stands_first(open_page):
    app = open_page("paging")
    assert_fine(app)
    shown = metrics(app)
    assert shown["Memory that holds tokens, paged"] == "96.3 %"
    assert shown["The same, reserving the longest"] == "19.7 %"
    assert shown["Requests at once"] == "34.2"
    assert shown["Price of preemption"] == "0.55 tokens"
    assert any("does not agree with itself" in caption.value for caption in app.caption)


def test_every_policy_has_its_bars_and_the_paper_its_own(small):
    app = small()
    assert_fine(app)
    figure = rows(charts(app)[0])
    assert len(figure) == 4 * (len(POLICIES) + 4)
    ends = figure.groupby("bar")["end"].max()
    assert ends.between(99.8, 100.1).all()
    assert (figure["source"] == "paper").sum() == 16
    assert json.loads(charts(app)[0].proto.spec)["layer"]


def test_a_definition_moves_the_bars_and_no_token(small):
    before, after = (rows(charts(small(**query))[0]) for query in ({}, SWITCHED))
    here = before["source"] == "here"
    tokens = before["segment"] == "Tokens"
    assert (before["percent"] == after["percent"])[tokens].all()
    assert (before["percent"] != after["percent"])[here & ~tokens].any()
    paper = before["source"] == "paper"
    assert (before["percent"] == after["percent"])[paper].all()


SWITCHED = {"paging_buddy_slack": "internal", "paging_block_slack": "internal"}


def test_two_maps_show_the_same_step(small):
    app = small(paging_step="300", paging_follow="5")
    assert_fine(app)
    maps = [rows(chart) for chart in charts(app)[1::2][:2]]
    for frame in maps:
        assert set(frame["what"]) & {"holds a token"}
        assert (frame["x2"] > frame["x"]).all()
    assert any("First in line is request" in text.value for text in app.markdown)
    assert sum(text.value.startswith("Request 5 (") for text in app.markdown) == 2


def test_the_largest_free_chunk_stands_against_all_that_is_free(open_page):
    app = open_page("paging", paging_step="500")
    sentences = [text.value for text in app.markdown if text.value.startswith("Free: ")]
    assert "Largest chunk" in sentences[0]
    assert "any free block will do" in sentences[1]


def test_play_moves_the_step_and_pause_keeps_it(small):
    app = small(paging_step="100")
    app.button(key="paging_play").click().run()
    assert app.session_state["paging_playing"]
    app.run()
    app.button(key="paging_play").click().run()
    assert not app.session_state["paging_playing"]
    assert app.session_state["paging_step"] > 100
    assert_fine(app)


class State(dict):
    """A session's state, by key and by attribute."""

    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__


def test_a_press_that_arrives_twice_counts_once(monkeypatch):
    """With a timed redraw and by itself, as browsers send it when both come together."""
    state = State(paging_step=100, paging_pace_map=5)
    monkeypatch.setattr(player.st, "session_state", state)
    for _ in range(2):
        player.play()
    assert player.is_playing()
    assert player.step_to_show(last=4_000) == 100
    state.paging_frame = 140
    for _ in range(2):
        player.pause()
    assert not player.is_playing()
    assert state.paging_resume == 140


@pytest.mark.parametrize(
    "tab", ["Curves", "Preemption", "Sharing", "Arithmetic", "Sources", "Export"]
)
def test_every_tab_opens(small, tab):
    app = small(paging_tab=tab)
    assert_fine(app)
    assert app.tabs


def test_the_curve_is_drawn_point_by_point(small):
    app = small(paging_curve="watermark")
    app.session_state["paging_tab"] = "Curves"
    app.run()
    for _ in range(100):
        drawn = charts(app)[1:]
        if drawn and len(rows(drawn[0])) == 5:
            break
        app.run()
    frame = rows(charts(app)[1])
    assert list(frame["value"]) == [0, 0.01, 0.02, 0.05, 0.10]
    assert frame["preemptions"].is_monotonic_decreasing


def test_sharing_shows_what_it_saves(small):
    app = small(paging_samples="2", paging_prefix="80")
    app.session_state["paging_tab"] = "Sharing"
    app.run()
    assert_fine(app)
    saved = metrics(app)
    assert 10 < float(saved["Blocks saved by samples"].removesuffix(" %")) < 20
    assert 10 < float(saved["Blocks saved by the prefix"].removesuffix(" %")) < 30
    assert int(saved["Blocks copied on write"]) > 0


def test_a_prefix_too_long_for_the_model_is_said(small):
    app = small(paging_prefix="2048")
    app.session_state["paging_tab"] = "Sharing"
    app.run()
    assert not app.exception
    assert "shorten the prefix" in app.error[0].value


def test_a_model_on_a_gpu_sets_the_pool(small):
    app = small(paging_pool="model", paging_model="Llama-3.1-8B", paging_gpu="A10 24 GB")
    assert_fine(app)
    assert any("slots." in caption.value and "GiB" in caption.value for caption in app.caption)


def test_a_model_too_large_for_its_gpu_gets_a_sentence(small):
    app = small(paging_pool="model", paging_model="Llama-3.1-70B", paging_gpu="A10 24 GB")
    assert not app.exception
    assert "leave no room" in app.error[0].value


def test_who_can_never_fit_is_said_at_once(small):
    app = small(paging_pool="slots", paging_slots="800")
    assert not app.exception
    refused = [caption.value for caption in app.caption if "can never be served" in caption.value]
    assert len(refused) == len(POLICIES)
    assert "2,048 slots" in refused[0]
    assert metrics(app)["The same, reserving the longest"] == "nothing fits"


def test_a_pool_in_which_nothing_fits_is_no_crash(small):
    app = small(paging_pool="slots", paging_slots="64", paging_source="lognormal")
    assert not app.exception


@pytest.mark.parametrize("source", ["alpaca", "lognormal"])
@pytest.mark.parametrize("arrivals", ["queue", "poisson", "recorded"])
def test_every_source_and_arrival_runs(small, source, arrivals):
    app = small(paging_source=source, paging_arrivals=arrivals)
    assert_fine(app)
    assert (rows(charts(app)[0])["source"] == "here").all()


def test_without_a_trace_the_page_asks_for_one(small):
    app = small(paging_source="trace")
    assert_fine(app)
    assert any("Upload a trace" in text.value for text in app.markdown)


def test_bad_links_are_refused_with_a_sentence_each(small):
    bad = {
        "paging_count": "12",
        "paging_block_size": "17",
        "paging_watermark": "2",
        "paging_left": "best",
        "paging_slots": "-5",
        "paging_seed": "abc",
        "paging_step": "99999",
        "paging_follow": "x",
        "paging_mean_prompt": "0",
        "paging_pace": "nan",
        "paging_fit_prompt": "-1",
        "paging_curve_policy": "none",
        "paging_tab": "Nowhere",
    }
    app = small(**bad)
    assert not app.exception
    said = [warning.value for warning in app.warning]
    assert len(said) == len(bad)
    assert all("default is used instead" in sentence for sentence in said)


@pytest.mark.parametrize("left", ["contiguous-max", "Reserve the longest (Orca Max)"])
def test_a_link_brings_the_page_back(small, left):
    query = {"paging_block_size": "64", "paging_left": left, "paging_step": "77"}
    app = small(**query)
    assert_fine(app)
    assert not app.warning
    assert app.selectbox(key="paging_left").value == "contiguous-max"
    assert app.select_slider(key="paging_block_size").value == 64
    assert app.slider(key="paging_step").value == 77


def test_many_requests_run_as_a_job_and_end_in_the_answer(open_page, monkeypatch):
    monkeypatch.setattr("kvcore.paging.scenario.paper_requests", few_requests)
    app = open_page("paging", paging_count="20000", paging_tab="Arithmetic")
    for _ in range(200):
        if app.metric:
            break
        app.run()
    assert_fine(app)
    assert "Price of preemption" in metrics(app)
    assert any("12,884,901,888" in code.value for code in app.code)


def few_requests(count, seed):
    return paper_requests(300, seed)
