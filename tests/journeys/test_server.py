"""`transformers serve` with SmolLM2 on 127.0.0.1: every experiment, and one of them in Chromium."""

import re
from importlib.util import find_spec

import pytest
from playwright.sync_api import Page, expect

from kvcore.decoding import LoadError
from kvcore.serving import (
    Budget,
    Client,
    EarlyChange,
    FirstToken,
    Runner,
    TokenTime,
    ask_reserved,
    plan,
    policy,
)
from kvcore.serving.errors import NoSuchModel
from kvcore.serving.findings import (
    early_change_findings,
    first_token_findings,
    token_time_findings,
)
from scripts.engine_server import smollm2_folder, transformers_serve
from tests.journeys.app import assert_no_sideways_scroll, settled, visit

LONG = 120_000


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    missing = [name for name in ("fastapi", "openai", "accelerate") if find_spec(name) is None]
    if missing:
        pytest.skip(f"transformers serve needs {', '.join(missing)}: see requirements-dev.txt")
    try:
        smollm2_folder()
    except LoadError as problem:
        pytest.skip(f"no SmolLM2 to serve: {problem}")
    with transformers_serve(tmp_path_factory.mktemp("serve")) as running:
        yield running


@pytest.fixture(scope="module")
def client(engine):
    target = policy(None, app_is_local=True).target(engine.url)
    with Client(target) as client:
        yield client


def run(client, engine, experiment):
    budget = Budget(plan(experiment))
    samples = list(Runner(client, engine.model, budget).samples(experiment))
    assert budget.requests == budget.agreed.requests == len(samples)
    assert [s.problem for s in samples if s.problem] == []
    return samples


def test_it_lists_its_model(client, engine):
    assert engine.model in [model.name for model in client.models()]


def test_first_token_cold_and_warm(client, engine):
    samples = run(client, engine, FirstToken(lengths=(80, 240), repeats=1))
    found = first_token_findings(samples)
    assert found.pairs == 2
    assert found.told == 0, "it does not say what it reuses"
    assert all(abs(s.prompt_tokens - s.target_tokens) < 25 for s in samples)
    assert found.cold_line is not None


def test_one_early_character(client, engine):
    found = early_change_findings(run(client, engine, EarlyChange(length=80, repeats=1)))
    assert len(found.seconds) == 4
    assert found.lost_tokens is None


def test_time_per_token(client, engine):
    experiment = TokenTime(contexts=(80,), levels=(1, 2), output_tokens=5, repeats=1)
    found = token_time_findings(run(client, engine, experiment))
    assert [load.concurrent for load in found.loads] == [1, 2]
    assert all(load.seconds_per_token.middle > 0 for load in found.loads)
    assert all(load.kv_usage is None for load in found.loads)


def test_it_says_nothing_about_what_it_reserved(client, engine):
    told = ask_reserved(client, client.models()[0])
    assert told.log is None


def test_a_wrong_model(client):
    with pytest.raises(NoSuchModel):
        client.ask("gpt-9", "Hello.", 2)


def test_an_experiment_in_chromium(engine, app_url, page: Page):
    query = "server_lengths=100&server_repeats=1"
    visit(page, f"{app_url}/server?server_address={engine.url}/v1&{query}")
    expect(page.get_by_text(re.compile("Recorded on"))).to_be_visible(timeout=LONG)
    expect(page.get_by_role("button", name="Start")).to_be_disabled(timeout=LONG)
    page.get_by_role("button", name="Connect").click()
    expect(page.get_by_text(re.compile("3 requests, about 300 tokens in"))).to_be_visible(
        timeout=LONG
    )
    expect(page.get_by_role("button", name="Start")).to_be_enabled(timeout=LONG)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text(re.compile("the server does not say how much"))).to_be_visible(
        timeout=LONG
    )
    expect(page.get_by_role("tab", name="Every request")).to_be_visible(timeout=LONG)
    expect(page.get_by_text(re.compile("Recorded on"))).to_have_count(0)
    settled(page)
    assert "key" not in page.url
    metric = page.get_by_test_id("stMetric").filter(has_text="Cold, longest")
    expect(metric).to_contain_text(re.compile(r"\d"))


def test_a_metadata_address_is_refused_in_chromium(app_url, page: Page):
    visit(page, f"{app_url}/server?server_address=http://169.254.169.254/latest")
    page.get_by_role("button", name="Connect").click()
    expect(page.get_by_test_id("stAlert").filter(has_text="never called")).to_be_visible(
        timeout=LONG
    )


def test_it_fits_a_phone(app_url, phone: Page):
    visit(phone, f"{app_url}/server")
    expect(phone.get_by_text(re.compile("Recorded on"))).to_be_visible(timeout=LONG)
    assert_no_sideways_scroll(phone)


def test_the_link_in_the_open_tab_follows_settings_that_rerun_alone(app_url, page: Page):
    visit(page, f"{app_url}/server")
    page.get_by_role("tab", name="Export").click()
    repeats = page.get_by_role("spinbutton", name="Repeats")
    repeats.fill("5")
    repeats.press("Enter")
    expect(page.get_by_test_id("stCode").get_by_text("server_repeats=5")).to_be_visible()
