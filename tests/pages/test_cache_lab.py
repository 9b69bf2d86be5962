"""The cache lab page: the prepared run, the controls, refusals, a live model."""

from __future__ import annotations

import copy

import pytest

from kvcore.decoding import shelf
from kvcore.lab.player import recorded
from kvcore.prefix.scenarios import SCENARIOS
from tests.small_models import small_model


@pytest.fixture
def small(monkeypatch):
    model = small_model("gpt2")
    monkeypatch.setattr(shelf.SHELF, "take", lambda name: model)
    return model


def metrics(app) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def captions(app) -> str:
    return "\n".join(caption.value for caption in app.caption)


def press(app, name: str):
    app.button(key=f"lab_{name}").click()
    return app.run()


def wait_for(app, text: str):
    for _ in range(100):
        app.run()
        if text in captions(app) and not app.button(key="lab_ask").disabled:
            return app
    raise AssertionError(f"never came to {text!r}: {captions(app)}")


def ask(app, system: str, question: str):
    app.text_area(key="lab_system").set_value(system)
    app.text_area(key="lab_question").set_value(question)
    known = app.session_state["cache_lab_player"]
    number = 1 if known.label else int(known.trace.name.split()[1]) + 1
    press(app, "ask")
    return wait_for(app, f"Request {number}, step 0 of 0")


def test_the_prepared_run_is_there_at_once(open_page):
    app = open_page("cache_lab")
    assert not app.exception
    player = recorded()
    shown = metrics(app)
    assert shown["Cached tokens"] == "192 of 192"
    assert shown["KV memory"] == "8.44 MiB"
    assert shown["Prefill saved"].endswith("176 tokens")
    assert shown["Prefix hit rate"] == "45.8%"
    assert player.label in captions(app)
    assert app.get("bidi_component")


def test_every_chart_states_its_takeaway(open_page):
    app = open_page("cache_lab")
    drawn = app.get("vega_lite_chart")
    assert len(drawn) >= 5
    for chart in drawn:
        assert len(chart.proto.alt) > 20


def test_step_and_back_move_the_numbers_together(open_page):
    app = press(open_page("cache_lab"), "step")
    assert metrics(app)["Cached tokens"] == "180 of 193"
    assert metrics(app)["KV memory"] == "7.91 MiB"
    assert "step 1 of 40" in captions(app)
    app = press(app, "back")
    assert metrics(app)["Cached tokens"] == "192 of 192"
    assert app.button(key="lab_back").disabled


def test_at_the_end_of_the_recording_there_is_nothing_to_step_to(open_page):
    app = open_page("cache_lab")
    app.session_state["cache_lab_player"].cursor = 40
    app.run()
    assert app.button(key="lab_step").disabled
    assert app.button(key="lab_play").disabled


def test_a_live_model_reuses_its_pool(open_page, small):
    app = open_page("cache_lab")
    app = ask(app, "s" * 100, "why?")
    assert metrics(app)["Prefill saved"] == "nothing"
    assert metrics(app)["Prefix hit rate"] == "0.0%"
    app = ask(app, "s" * 100, "why?")
    assert "112 tokens" in metrics(app)["Prefill saved"]
    app = press(app, "step")
    assert metrics(app)["Cached tokens"] == "125 of 125"
    app = ask(app, "z" + "s" * 99, "why?")
    assert metrics(app)["Prefill saved"] == "nothing"


def test_a_window_is_applied_to_the_live_cache(open_page, small):
    app = open_page("cache_lab", lab_policy="Sliding window", lab_window="20")
    app = ask(app, "s" * 60, "why?")
    app = press(app, "step")
    assert metrics(app)["Cached tokens"] == "20 of 85"
    assert "sliding window (20 window)" in captions(app)


@pytest.mark.parametrize(
    ("policy", "extra"),
    [("Sinks + window", {"lab_sinks": "4"}), ("Heavy hitters", {"lab_heavy": "12"})],
)
def test_other_policies_keep_their_budget(open_page, small, policy, extra):
    app = open_page("cache_lab", lab_policy=policy, lab_window="20", **extra)
    app = press(ask(app, "s" * 60, "why?"), "step")
    budget = 20 + int(next(iter(extra.values())))
    assert metrics(app)["Cached tokens"] == f"{budget} of 85"


def test_an_open_request_shares_its_blocks_and_can_be_closed(open_page, small):
    app = ask(open_page("cache_lab"), "s" * 60, "why?")
    app.toggle(key="lab_open").set_value(True)
    app = ask(app, "s" * 60, "why?")
    player = app.session_state["cache_lab_player"]
    assert player.frame.ref_counts[0] == 2
    app = press(app, "close")
    assert player.num_open == 1
    app = press(app, "step")
    assert player.num_open == 0
    assert player.frame.ref_counts[0] == 1


@pytest.mark.parametrize("question", ["", "   \n"])
def test_an_empty_question_is_refused(open_page, question):
    app = open_page("cache_lab")
    app.text_area(key="lab_question").set_value(question)
    app = press(app, "ask")
    assert "The question is empty" in app.error[0].value
    assert "patient assistant" in app.text_area(key="lab_system").value


def test_a_prompt_that_can_never_fit_is_refused_and_kept(open_page, small):
    app = open_page("cache_lab", lab_blocks="5")
    app.text_area(key="lab_system").set_value("s")
    app.text_area(key="lab_question").set_value("why? " * 20)
    press(app, "ask")
    for _ in range(100):
        if app.run().error:
            break
    assert "can never fit in 4 blocks" in app.error[0].value
    assert app.text_area(key="lab_question").value == "why? " * 20


def test_a_model_that_cannot_be_had_is_a_sentence(open_page, monkeypatch):
    from kvcore.decoding import LoadError

    def take(name):
        raise LoadError("There is no room for it.")

    monkeypatch.setattr(shelf.SHELF, "take", take)
    app = press(open_page("cache_lab"), "ask")
    for _ in range(100):
        if app.run().error:
            break
    assert app.error[0].value == "There is no room for it."
    assert metrics(app)["Cached tokens"] == "192 of 192"


def test_text_of_the_model_is_shown_as_text(open_page, small):
    app = open_page("cache_lab")
    player = app.session_state["cache_lab_player"]
    player.trace = copy.deepcopy(player.trace)
    player.trace.texts[player.trace.num_prompt_tokens] = "![x](http://example.org/x.png) $a$"
    app.run()
    assert any(r"\!\[x\]\(http" in block.value for block in app.markdown)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("lab_blocks", "2", "from 3 to 513"),
        ("lab_policy", "lru", "one of Keep everything, Sliding window"),
        ("lab_block", "7", "one of 1, 4"),
        ("lab_window", "x", "a whole number"),
        ("lab_open", "maybe", "not true or false"),
    ],
)
def test_a_bad_link_is_refused_with_a_sentence(open_page, key, value, says):
    app = open_page("cache_lab", **{key: value})
    assert not app.exception
    assert says in app.warning[0].value


def test_scenarios_show_expected_beside_computed(open_page):
    app = open_page("cache_lab", lab_scenario=SCENARIOS[1].title)
    assert app.session_state["lab_scenario"] == SCENARIOS[1].key
    for scenario in SCENARIOS:
        app.session_state["lab_scenario"] = scenario.key
        app.run()
        assert not app.exception
        table = app.dataframe[0].value
        assert (table["agrees"] == "yes").all()
        assert list(table["what"]) == [check.what for check in scenario.run().checks]


@pytest.mark.parametrize("tab", ["Arithmetic", "Table", "Export and link"])
def test_tabs(open_page, tab):
    app = open_page("cache_lab")
    app.session_state["lab_tab"] = tab
    app.run()
    assert not app.exception
    if tab == "Arithmetic":
        assert "192 tokens × 46,080 B = 8,847,360 B" in app.code[0].value
    if tab == "Table":
        assert len(app.dataframe[0].value) == 12
        assert len(app.dataframe[1].value) == 192


TRACE = "\n".join(
    f'{{"timestamp": {place}, "input_length": 1024, "output_length": 1, "hash_ids": [{ids}]}}'
    for place, ids in enumerate(["1, 2", "1, 2", "1, 3"])
)


def upload_trace(app, data: str):
    app.session_state["lab_tab"] = "Recorded traffic"
    app.run()
    app.file_uploader(key="lab_traffic").set_value(("my_trace.jsonl", data.encode(), "text/plain"))
    app.run()
    assert not app.exception
    return app


def test_a_trace_with_block_names_is_replayed_and_kept_when_its_tab_closes(open_page):
    app = upload_trace(open_page("cache_lab"), TRACE)
    assert metrics(app)["Blocks found, no limit"] == "50.0%"
    assert metrics(app)["Different blocks"] == "3"
    assert "3 requests, 6 blocks" in captions(app)
    app.session_state["lab_tab"] = "Sources"
    app.run()
    assert "Blocks found, no limit" not in metrics(app)
    app.session_state["lab_tab"] = "Recorded traffic"
    app.run()
    assert metrics(app)["Blocks found, no limit"] == "50.0%"


def test_a_file_that_is_no_trace_is_refused_in_one_sentence(open_page):
    app = upload_trace(open_page("cache_lab"), "hello **world**")
    assert len(app.error) == 1
    assert "This is not a trace" in app.error[0].value
    assert app.metric, "the run on show is still there"
