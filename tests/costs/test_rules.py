"""Minimums, lifetimes and the well-known facts, model by model."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.costs.prices import listed, rates
from kvcore.costs.rules import cacheable, minimum_for, rules_for, well_known_facts

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("model", "provider", "tokens", "certain"),
    [
        ("claude-opus-5", "anthropic", 512, True),
        ("claude-fable-5-1", "anthropic", 512, True),
        ("claude-opus-5-5", "anthropic", 512, False),
        ("claude-haiku-5-5", "anthropic", 512, False),
        ("claude-opus-4-8", "anthropic", 1024, True),
        ("claude-sonnet-5", "anthropic", 1024, True),
        ("claude-sonnet-4-6", "anthropic", 1024, False),
        ("claude-sonnet-4-5-20250929", "anthropic", 1024, True),
        ("claude-opus-4-1", "anthropic", 1024, True),
        ("claude-opus-4-7", "anthropic", 2048, True),
        ("claude-3-5-haiku-latest", "anthropic", 2048, True),
        ("claude-opus-4-6", "anthropic", 4096, True),
        ("claude-opus-4-5", "anthropic", 4096, True),
        ("claude-haiku-4-5", "anthropic", 4096, True),
        ("global.anthropic.claude-haiku-4-5-20251001-v1:0", "aws", 4096, True),
        ("anthropic/claude-opus-4.5", "openrouter", 4096, True),
        ("gpt-5.6-sol", "openai", 1024, True),
        ("gpt-4o", "openai", 1024, False),
        ("gemini-2.5-flash", "google", 1024, True),
        ("gemini-2.5-pro", "google", 2048, False),
        ("gemini-4-argon", "google", 6144, False),
    ],
)
def test_minimum_prefixes(model, provider, tokens, certain):
    minimum = minimum_for(provider, model)
    assert (minimum.tokens, minimum.certain) == (tokens, certain)


def test_no_minimum_is_made_up():
    assert minimum_for("deepseek", "deepseek-v4-pro") is None


@pytest.mark.parametrize(
    ("tokens", "minimum", "increment", "cached"),
    [
        (1023, 1024, 128, 0),
        (1024, 1024, 128, 1024),
        (1151, 1024, 128, 1024),
        (1152, 1024, 128, 1152),
        (1892, 1024, 128, 1792),
        (1889, 1024, 1, 1889),
        (4095, 4096, 1, 0),
    ],
)
def test_what_is_cacheable_of_a_prefix(tokens, minimum, increment, cached):
    assert cacheable(tokens, minimum, increment) == cached


@given(st.integers(0, 10**6), st.integers(0, 10**4), st.integers(1, 512))
def test_never_more_is_cached_than_was_sent(tokens, minimum, increment):
    kept = cacheable(tokens, minimum, increment)
    assert 0 <= kept <= tokens
    assert kept == 0 or (kept >= minimum and tokens - kept < increment)


@pytest.mark.parametrize(
    ("model", "provider", "options"),
    [
        ("claude-opus-5", "anthropic", ["5m", "1h"]),
        ("gpt-4o", "openai", ["in_memory", "24h"]),
        ("gpt-5.5", "openai", ["24h"]),
        ("gpt-6.1-sol", "openai", ["30m", "12h"]),
        ("gemini-3.8-flash", "google", ["implicit", "explicit", "explicit-day"]),
        ("gemini-4-argon", "google", ["implicit"]),
        ("kimi-k3", "moonshotai", ["5m", "1h"]),
        ("global.openai.gpt-6-sol", "aws", ["30m"]),
        ("openai/gpt-oss-120b", "groq", ["2h"]),
    ],
)
def test_lifetimes_on_sale(model, provider, options):
    assert [o.id for o in rules_for(rates(model, provider, NOW)).options] == options


def test_an_option_that_cannot_be_priced_is_listed_with_its_reason():
    rules = rules_for(rates("gemini-4-argon", "google", NOW))
    assert [option.id for option, _ in rules.unpriced] == ["explicit", "explicit-day"]
    assert all("not known" in reason for _, reason in rules.unpriced)


def test_every_listed_model_has_rules():
    for model in listed()[::25]:
        rules = rules_for(rates(model.model, model.provider, NOW))
        assert rules.options
        assert rules.starts


def facts(model, provider):
    found = well_known_facts(rates(model, provider, NOW))
    return [fact.holds for fact in found], [fact.sentence for fact in found]


def test_the_four_facts_hold_where_they_hold():
    holds, _ = facts("claude-haiku-4-5", "anthropic")
    assert holds[:3] == [True, True, True]
    for model in ("gpt-5.5", "gpt-5.6-sol"):
        assert facts(model, "openai")[0][3] is True


def test_models_for_which_a_fact_no_longer_holds_show_their_own():
    holds, sentences = facts("claude-opus-5-5", "anthropic")
    assert holds == [True, True, False, False]
    assert sentences[2] == "A cache read costs 0.05× the input price."
    assert facts("claude-fable-5-1", "anthropic")[1][2].startswith("A cache read costs 0.025×")
    holds, sentences = facts("gpt-4o", "openai")
    assert holds == [False, False, False, False]
    assert sentences[3] == "Cached input is 50 % off."
    holds, sentences = facts("gpt-6.1-terra", "openai")
    assert (holds[1], sentences[1]) == (False, "A twelve-hour write costs 2.5× the input price.")
    assert facts("kimi-k3", "moonshotai")[1][0] == "A cache write costs no more than fresh input."
