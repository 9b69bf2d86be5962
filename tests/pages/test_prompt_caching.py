"""The prompt-caching page: one sentence from defaults, and every tab without a fault."""

from __future__ import annotations

import gc
import io
import json
import re
import time
import weakref
from datetime import date
from pathlib import Path
from threading import Event

import pytest

from kvcore import units
from kvcore.costs.estimate import estimate
from kvcore.costs.workload import Workload
from kvcore.jobs import State
from pages.caching import usage
from pages.caching.questions import PRESETS
from pages.common.jobs import Slot

SAMPLES = Path(__file__).parents[1] / "data" / "usage"
TABS = (
    "How the saving moves",
    "A conversation",
    "Models and prices",
    "Losses and fixes",
    "Your own usage",
    "What breaks my cache?",
    "Arithmetic",
    "Sources and export",
)


def plain(text: str) -> str:
    """Markdown as read: escapes taken away."""
    return text.replace("\\", "")


def answer(app) -> str:
    return plain(app.subheader[0].value)


def words(app) -> str:
    parts = [*app.markdown, *app.caption, *app.warning, *app.error, *app.text, *app.code]
    return plain("\n".join(element.value for element in [*app.subheader, *parts]))


def open_tab(app, name: str):
    app.session_state["prompt_caching_tab"] = name
    return app.run()


def test_the_defaults_answer_in_one_sentence(open_page):
    app = open_page("prompt_caching")
    assert not app.exception
    model = estimate([("claude-sonnet-5", "anthropic")], Workload()).models[0]
    assert answer(app).startswith(f"You would save {units.dollars(model.saving)} a month, ")
    assert "of the whole bill" in answer(app)
    assert app.metric[0].value == units.dollars(model.without.total)
    assert app.metric[1].value == units.dollars(model.best.bill.total)


def lines_of(app):
    return [line for element in app.markdown for line in plain(element.value).splitlines()]


def test_the_four_facts_stand_where_they_are_true(open_page):
    app = open_page("prompt_caching")
    lines = lines_of(app)
    (claude,) = [line for line in lines if line.startswith("- **claude-sonnet-5**")]
    assert "A cache write costs 1.25× the input price." in claude
    assert "A one-hour write costs 2× the input price." in claude
    assert "A cache read costs 0.1× the input price." in claude
    (sol,) = [line for line in lines if line.startswith("- **gpt-5.6-sol**")]
    assert "Cached input is up to 90 % off." in sol
    assert "one-hour" not in sol
    assert "A twelve-hour write costs 2.5× the input price." in sol


def test_models_for_which_the_facts_are_gone_show_their_own(open_page):
    app = open_page("prompt_caching", prompt_caching_model="anthropic/claude-opus-5-5")
    lines = lines_of(app)
    (opus,) = [line for line in lines if line.startswith("- **claude-opus-5-5**")]
    assert "A cache read costs 0.05× the input price." in opus
    assert "Cached input is 95 % off." in opus
    assert "0.1×" not in opus


def test_a_loss_has_the_other_sign(open_page):
    app = open_page("prompt_caching")
    app.checkbox(key="prompt_caching_unstable_top").check().run()
    assert "Caching would cost you $" in answer(app)
    assert " more a month" in answer(app)
    assert app.metric[1].label == "With the least bad lifetime"


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_opens(open_page, tab):
    app = open_tab(open_page("prompt_caching"), tab)
    assert not app.exception
    assert not app.error


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_fill_in_the_questions(open_page, preset):
    app = open_page("prompt_caching")
    app.pills(key="prompt_caching_preset").set_value(preset).run()
    assert not app.exception
    for name, value in PRESETS[preset].items():
        assert app.session_state[f"prompt_caching_{name}"] == value
    assert answer(app).startswith(("You would save", "Caching would"))


def test_a_link_brings_the_scenario_back(open_page):
    app = open_page(
        "prompt_caching",
        prompt_caching_prefix_tokens="20000",
        prompt_caching_requests_per_hour="2",
        prompt_caching_model="openai/gpt-5.6-sol",
        prompt_caching_day="2026-07-15",
    )
    model = estimate(
        [("gpt-5.6-sol", "openai")],
        Workload(prefix_tokens=20_000, requests_per_hour=2.0),
        at=date(2026, 7, 15),
    ).models[0]
    assert app.metric[0].value == units.dollars(model.without.total)


def test_bad_settings_of_a_link_are_named(open_page):
    app = open_page(
        "prompt_caching",
        prompt_caching_prefix_tokens="-5",
        prompt_caching_arrivals="never",
        prompt_caching_turns="<b>ten</b>",
    )
    assert not app.exception
    assert len(app.warning) == 3
    assert answer(app).startswith("You would save")


def test_both_ends_of_every_number(open_page):
    app = open_page("prompt_caching")
    for widget in list(app.number_input):
        default = widget.value
        for end in (widget.min, widget.max):
            app.number_input(key=widget.key).set_value(end).run()
            assert not app.exception, (widget.key, end)
        app.number_input(key=widget.key).set_value(default)


def test_an_unknown_model_is_refused_and_stays_text(open_page):
    name = "<img src=x onerror=alert(1)>"
    app = open_page("prompt_caching", prompt_caching_model=name)
    assert not app.exception
    assert "left out of every sum" in words(app)
    for element in [*app.markdown, *app.warning, *app.caption, *app.subheader]:
        assert not re.search(r"(?<!\\)<img", element.value)


def test_a_contract_price_replaces_the_list(open_page):
    app = open_page("prompt_caching")
    app.text_input(key="prompt_caching_contract_fresh").set_value("1").run()
    assert "A contract needs at least" in words(app)
    app.text_input(key="prompt_caching_contract_output").set_value("2").run()
    assert not app.exception
    # 26,400 requests of 6,400 tokens at $1 and 500 at $2 a million
    assert app.metric[0].value == "$195.36"
    app.text_input(key="prompt_caching_contract_output").set_value("two").run()
    assert "could not be read" in words(app)


def test_an_event_outside_the_conversation_is_refused(open_page):
    app = open_page("prompt_caching")
    app.number_input(key="prompt_caching_compaction_at").set_value(5).run()
    assert not app.exception
    assert any("call" in element.value for element in app.error)


def upload(app, name: str, data: bytes):
    app = open_tab(app, "Your own usage")
    app.file_uploader(key="prompt_caching_upload").set_value((name, data, "text/plain"))
    return app.run()


@pytest.mark.parametrize(
    "name", ["openai_costs.csv", "litellm_daily_user_spend.csv", "claude_code_session.jsonl"]
)
def test_an_upload_is_shown(open_page, name):
    """Money alone, sums of requests, single requests; the journeys upload every format."""
    app = upload(open_page("prompt_caching"), name, (SAMPLES / name).read_bytes())
    assert not app.exception
    assert not app.error
    labels = [metric.label for metric in app.metric]
    assert "Paid, by the list" in labels or "In this export" in labels


def test_an_upload_with_bad_lines_says_which(open_page):
    name = "claude_api_tokens_2026_11.csv"
    data = (SAMPLES / name).read_bytes().replace(b",310000,", b",-310000,")
    app = upload(open_page("prompt_caching"), name, data)
    assert "could not be counted and are in no sum: 1." in words(app)
    (table,) = [
        frame.value for frame in app.dataframe if list(frame.value.columns) == ["line", "reason"]
    ]
    assert list(table["line"]) == [2]
    assert "negative" in table["reason"][0]


def test_what_is_no_export_gets_a_sentence(open_page):
    app = upload(open_page("prompt_caching"), "x.txt", b"hello **world**")
    assert not app.exception
    assert any("no header" in element.value.lower() for element in app.error)


@pytest.fixture
def gate(monkeypatch):
    """Every upload is read as a job whose second step waits for this to be opened."""
    opened = Event()
    steps = usage.usage_steps

    def slow_steps(*args, **kwargs):
        yield 1
        opened.wait(20)
        yield from steps(*args, **kwargs)

    monkeypatch.setattr(usage, "AT_ONCE_BYTES", -1)
    monkeypatch.setattr(usage, "usage_steps", slow_steps)
    yield opened
    opened.set()


def until(app, condition):
    for _ in range(200):
        if condition(app):
            return app
        time.sleep(0.02)
        app.run()
    raise AssertionError("it never came")


NAME = "own_log.csv"


def paid(app) -> bool:
    return "Paid, by the list" in [metric.label for metric in app.metric]


def test_a_large_upload_is_read_as_a_job_with_progress(open_page, gate):
    app = upload(open_page("prompt_caching"), NAME, (SAMPLES / NAME).read_bytes())
    assert "Stop reading" in [button.label for button in app.button]
    assert not paid(app)
    until(app, lambda app: "1 rows read" in words(app))
    gate.set()
    until(app, paid)
    assert not app.exception
    assert "Stop reading" not in [button.label for button in app.button]


def test_reading_can_be_stopped_and_begun_again(open_page, gate):
    app = upload(open_page("prompt_caching"), NAME, (SAMPLES / NAME).read_bytes())
    app.button(key="prompt_caching_stop").click().run()
    gate.set()
    until(app, lambda app: "Stopped: nothing of this file is counted" in words(app))
    assert "prompt_caching_kept" not in app.session_state
    assert answer(app).startswith("You would save")
    app.button(key="prompt_caching_again").click().run()
    assert paid(until(app, paid))


def test_a_file_that_cannot_be_read_to_its_end_says_so(open_page, gate, monkeypatch):
    def broken(*args, **kwargs):
        yield 1
        raise MemoryError("no room for **more** rows")

    monkeypatch.setattr(usage, "usage_steps", broken)
    app = upload(open_page("prompt_caching"), NAME, (SAMPLES / NAME).read_bytes())
    until(app, lambda app: "could not be read to its end" in words(app))
    assert "no room for **more** rows" in [text.value for text in app.text]
    assert not paid(app)


def test_a_closed_tab_ends_the_reading_and_lets_go_of_the_file(gate):
    """`Slot.stop` is what Streamlit calls when the session ends."""

    class File(io.BytesIO):
        file_id, name = "1", NAME

    file = File((SAMPLES / NAME).read_bytes())
    gone = weakref.ref(file)
    slot = Slot()
    job = slot.start(usage.reading(file, None), queue=None)
    del file
    while not job.results:
        time.sleep(0.01)
    slot.stop()
    gate.set()
    job.join(20)
    assert job.state is State.STOPPED
    assert all(isinstance(step, int) for step in job.results)
    gc.collect()
    assert gone() is None


def test_the_invoice_shows_its_gap(open_page):
    name = "claude_api_tokens_2026_11.csv"
    app = upload(open_page("prompt_caching"), name, (SAMPLES / name).read_bytes())
    app.text_input(key="prompt_caching_invoice").set_value("$50").run()
    assert "$10.20 more than these tokens cost by the list, 20.4 % of it" in words(app)
    app.text_input(key="prompt_caching_invoice").set_value("=1+1").run()
    assert any("invoice total must be" in element.value for element in app.error)


def test_a_kept_upload_can_be_forgotten(open_page):
    name = "own_log.csv"
    app = upload(open_page("prompt_caching"), name, (SAMPLES / name).read_bytes())
    open_tab(app, "Arithmetic")
    app = open_tab(app, "Your own usage")
    assert "Paid, by the list" in [metric.label for metric in app.metric]
    assert not any(
        isinstance(value, bytes)
        for value in vars(app.session_state["prompt_caching_kept"]).values()
    )
    app.button(key="prompt_caching_forget").click().run()
    assert "Paid, by the list" not in [metric.label for metric in app.metric]
    assert "prompt_caching_kept" not in app.session_state


def test_recorded_arrivals_are_replayed_or_asked_for(open_page):
    app = open_page("prompt_caching", prompt_caching_arrivals="As in the uploaded export")
    assert any("no recorded arrivals" in element.value for element in app.error)
    name = "openrouter_activity_2026-11-02.csv"
    app = upload(app, name, (SAMPLES / name).read_bytes()).run()
    assert not app.exception
    assert not app.error
    at_random = answer(open_page("prompt_caching"))
    assert answer(app) != at_random
    assert answer(app).startswith("You would save")


def test_region_and_speed_change_the_price(open_page):
    app = open_page("prompt_caching", prompt_caching_geo="us")
    # 1.1 times on every class of tokens
    assert app.metric[0].value == "$516.91"


def compare(open_page, first: str, second: str):
    app = open_tab(open_page("prompt_caching"), "What breaks my cache?")
    app.text_area(key="prompt_caching_text_first").set_value(first)
    app.text_area(key="prompt_caching_text_second").set_value(second)
    return app.run()


def test_two_prompts_are_compared(open_page):
    text = "It is 2026-11-29 10:0{}:00.\n" + "Follow the rules of the house with care. " * 300
    app = compare(open_page, text.format(1), text.format(2))
    assert not app.exception
    said = words(app)
    assert "are shared; then" in said
    assert "date or time" in said
    assert "would be shared" in said
    assert "worth $" in said
    assert "estimate" in said.lower()


def test_request_bodies_are_compared(open_page):
    def body(*tools: str) -> str:
        return json.dumps(
            {
                "model": "claude-sonnet-5",
                "tools": [{"name": name, "description": "does it " * 200} for name in tools],
                "messages": [{"role": "user", "content": "hello"}],
            }
        )

    app = compare(open_page, body("read", "write"), body("write", "read"))
    assert not app.exception
    assert "tools" in words(app).lower()


def test_pasted_text_is_shown_as_text(open_page):
    app = compare(open_page, "# <script>alert(1)</script> a", "# <script>alert(1)</script> b")
    assert not app.exception
    for element in [*app.markdown, *app.caption, *app.subheader]:
        assert not re.search(r"(?<!\\)<script", element.value)
