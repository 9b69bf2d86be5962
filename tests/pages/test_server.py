"""The page about one's own server, against a fake one on 127.0.0.1."""

import json
import threading

import pytest

from kvcore.jobs import MEASUREMENTS
from kvcore.serving import SETTING
from kvcore.serving.recorded import RESERVED, TIMED, recorded
from tests.serving.fake_server import MODEL, fake_server

SECRET = "sk-page-1f8e77aa"
SMALL = {"server_lengths": ["100", "250"], "server_repeats": "1"}
PATIENCE_S = 60


@pytest.fixture
def allowed(monkeypatch):
    monkeypatch.setenv(SETTING, "loopback")


@pytest.fixture
def server():
    with fake_server() as running:
        yield running


def the_job():
    for worker in threading.enumerate():
        if worker.name == "workbench-job":
            worker.join(PATIENCE_S)


def metric(app, label):
    return next(each.value for each in app.metric if each.label == label)


def connected(open_page, server, key="", **query):
    app = open_page("server", server_address=f"{server.url}/v1", **query)
    app.text_input(key="server_key").set_value(key)
    app.button(key="server_connect").click().run()
    assert not app.exception
    return app


def everything(app):
    """All that the page sends to the browser, but what was typed into the key's own field."""
    texts = [str(e.proto) for e in app.main if getattr(e, "key", None) != "server_key"]
    return "\n".join(texts)


# First sight, and off


@pytest.mark.parametrize("kind", [*TIMED, RESERVED])
def test_a_first_visit_shows_the_recorded_example(open_page, kind):
    app = open_page("server", server_experiment=kind)
    assert not app.exception
    assert not app.error
    assert any("Recorded on" in caption.value for caption in app.caption)
    assert app.metric


def test_every_recorded_run_can_be_chosen(open_page):
    _, runs = recorded()
    for run in runs:
        app = open_page("server", server_example=run.title)
        assert not app.exception
        assert any(run.engine in caption.value for caption in app.caption)


def test_it_is_off_for_an_app_that_others_can_reach(open_page):
    app = open_page("server")
    assert app.text_input(key="server_address").disabled
    assert app.button(key="server_connect").disabled
    assert app.button(key="server_start").disabled
    assert any(SETTING in info.value.replace("\\", "") for info in app.info)


def test_it_is_off_where_the_operator_says_so(open_page, monkeypatch):
    monkeypatch.setenv(SETTING, "off")
    app = open_page("server")
    assert app.button(key="server_connect").disabled


def test_a_setting_that_cannot_be_read_switches_it_off(open_page, monkeypatch):
    monkeypatch.setenv(SETTING, "10.0.0.0/99")
    app = open_page("server")
    assert not app.exception
    assert app.button(key="server_connect").disabled
    assert any("cannot be read" in info.value for info in app.info)


@pytest.mark.parametrize(
    "typed",
    ["http://169.254.169.254/v1", "http://10.0.0.1:8000", "http://2130706433", "ftp://x", ""],
)
def test_other_addresses_are_refused_and_stay_in_the_field(open_page, allowed, typed):
    app = open_page("server")
    app.text_input(key="server_address").set_value(typed)
    app.button(key="server_connect").click().run()
    assert not app.exception
    assert len(app.error) == 1
    assert app.text_input(key="server_address").value == typed
    assert app.button(key="server_start").disabled
    assert app.metric, "the example is still there"


# Connected


def test_an_experiment_from_address_to_figures(open_page, allowed, server):
    server.behaviour.seconds_per_word = 0.002
    app = connected(open_page, server, **SMALL)
    assert app.selectbox(key="server_model").options == [MODEL]
    assert any("**5 requests, about 800 tokens in" in m.value for m in app.markdown)
    app.button(key="server_start").click().run()
    the_job()
    app.run()
    assert not app.exception
    assert not app.error
    assert len(server.behaviour.requests) == 5
    assert any("word and time agree" in m.value for m in app.markdown)
    assert not any("Recorded on" in caption.value for caption in app.caption)
    assert len(MEASUREMENTS) == 0
    chart = app.get("vega_lite_chart")[0].proto
    assert "sooner with a warm prefix" in chart.alt
    assert json.loads(chart.spec)


@pytest.mark.parametrize("kind", TIMED[1:])
def test_the_other_timed_experiments(open_page, allowed, server, kind):
    query = {"server_length": "250", "server_contexts": ["100"], "server_levels": ["1", "2"]}
    app = connected(
        open_page, server, server_experiment=kind, server_repeats="1", server_output="4", **query
    )
    app.button(key="server_start").click().run()
    the_job()
    app.run()
    assert not app.exception
    assert not app.error
    assert not any("Recorded on" in caption.value for caption in app.caption)


def test_what_the_server_reserved(open_page, allowed, server):
    server.documents["/version"] = {"version": "0.32.0"}
    app = connected(open_page, server, server_experiment=RESERVED)
    app.button(key="server_start").click().run()
    the_job()
    app.run()
    assert not app.exception
    table = app.dataframe[0].value.set_index("figure")
    # 2 GiB in blocks of 128 tokens × 23,040 B: 728, as vLLM's CPU build printed.
    assert table.loc["Blocks", "predicted"] == 728
    assert (table.result == "agrees").all()
    assert metric(app, "KV cache") == "93,184 tokens"
    assert server.behaviour.requests == [], "it spends no tokens"


def test_a_pasted_log_is_reconciled_without_a_server(open_page):
    app = open_page("server", server_experiment=RESERVED)
    log = (
        "Explicitly set (2.0/18.84) GiB for KV cache\n"
        "CPU KV cache size: 93,184 tokens, Maximum concurrency for 4,096 tokens per request: 22.75x"
    )
    app.text_area(key="server_log").set_value(log).run()
    assert metric(app, "Figures that agree") == "2 of 2"
    app.text_area(key="server_log").set_value("nothing of the kind").run()
    assert len(app.error) == 1
    assert app.text_area(key="server_log").value == "nothing of the kind"


def test_presets_change_the_plan(open_page):
    app = open_page("server")
    app.pills(key="server_preset").set_value("Long").run()
    # One to warm up, and three repeats of 1,000, 4,000 and 16,000 tokens, cold and warm.
    assert any("**19 requests, about 126,100 tokens" in m.value for m in app.markdown)


def test_bad_links_are_refused(open_page):
    app = open_page(
        "server",
        server_experiment="Everything",
        server_repeats="1000",
        server_lengths=["250", "31"],
        server_length="7",
    )
    assert len(app.warning) == 4
    assert not app.exception


def test_a_plan_out_of_range_gets_its_sentence(open_page):
    app = open_page("server", server_lengths=["128,000"], server_repeats="20")
    assert len(app.error) == 1
    assert "Take fewer lengths or repeats" in app.error[0].value
    assert app.button(key="server_start").disabled


# Faults and the key


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [("html", "web page"), ("redirect", "redirects are not followed"), ("drop", "")],
)
def test_faults_while_connecting(open_page, allowed, server, fault, sentence):
    server.behaviour.fault = fault
    server.behaviour.redirect_to = "http://10.0.0.1/"
    app = connected(open_page, server)
    errors = [error.value for error in app.error]
    assert len(errors) == (1 if sentence else 0)
    assert sentence in "".join(errors)


def test_a_fault_in_a_run_keeps_what_came(open_page, allowed, server):
    app = connected(open_page, server, server_lengths=["100"], server_repeats="4")
    original = server.behaviour.reuse

    def breaks_later(words):
        if len(server.behaviour.requests) == 5:
            server.behaviour.fault = "error-event"
        return original(words)

    server.behaviour.reuse = breaks_later
    app.button(key="server_start").click().run()
    the_job()
    app.run()
    assert not app.exception
    assert len(app.error) == 1
    assert "CUDA out of memory" in app.error[0].value
    assert app.metric
    assert any("measured before that" in caption.value for caption in app.caption)
    assert not app.button(key="server_start").disabled


def test_the_key_is_nowhere_but_in_its_field(open_page, allowed):
    with fake_server(key=SECRET) as server:
        app = connected(open_page, server, key=SECRET, **SMALL)
        assert app.text_input(key="server_key").proto.type == 1, "a password field"
        app.button(key="server_start").click().run()
        the_job()
        app.run()
        assert not app.error
        assert set(server.behaviour.keys_seen) == {f"Bearer {SECRET}"}
        assert "Faster when warm" in everything(app)
        assert SECRET not in everything(app)
        assert SECRET not in str(dict(app.query_params))
        server.behaviour.key = "another"
        app.button(key="server_connect").click().run()
        assert len(app.error) == 1
        assert "refused the key" in app.error[0].value
        assert SECRET not in everything(app)


def test_a_key_with_a_line_break_is_refused_unseen(open_page, allowed, server):
    app = connected(open_page, server, key="sk-a b c")
    assert len(app.error) == 1
    assert "sk-a" not in app.error[0].value
    assert server.behaviour.keys_seen == []


def test_a_changed_address_asks_to_connect_again(open_page, allowed, server):
    app = connected(open_page, server)
    assert not app.button(key="server_start").disabled
    app.text_input(key="server_address").set_value("http://127.0.0.1:1/v1").run()
    assert app.button(key="server_start").disabled
    assert any("connect again" in caption.value for caption in app.caption)


def test_text_of_a_server_is_shown_as_text(open_page, allowed, server):
    body = '{"error": {"message": "[click](http://x) <b>bold</b> ![i](http://y)"}}'
    server.behaviour.fault, server.behaviour.body = "refuse-with", body
    app = connected(open_page, server)
    assert "\\[click\\]" in app.error[0].value
