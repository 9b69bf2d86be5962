"""Dollars of one record: the invoices people disputed, and equality with the price engine."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from genai_prices import Usage, extract_usage
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.costs import PriceError, UsageError, price
from kvcore.costs.prices import Contract, find, snapshot

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)

# (id, source, provider, model, record, day, dollars), as the disputes were settled.
CASES = [
    (
        "T1 litellm#9812",
        "anthropic",
        "claude-3-7-sonnet",
        {
            "input_tokens": 3,
            "cache_creation_input_tokens": 12304,
            "cache_read_input_tokens": 0,
            "output_tokens": 550,
        },
        NOW,
        "0.054399",
    ),
    (
        "T2 litellm#6215",
        "openai",
        "gpt-4o",
        {
            "prompt_tokens": 2006,
            "completion_tokens": 300,
            "prompt_tokens_details": {"cached_tokens": 1920},
        },
        NOW,
        "0.005615",
    ),
    (
        "T3 litellm#14849",
        "google",
        "gemini-2.5-pro",
        {
            "promptTokenCount": 262960,
            "cachedContentTokenCount": 257955,
            "candidatesTokenCount": 1744,
        },
        NOW,
        "0.10316125",
    ),
    (
        "T5 litellm#35127, July",
        "openai",
        "gpt-5.6-sol",
        {
            "input_tokens": 172000,
            "input_tokens_details": {"cached_tokens": 155000, "cache_write_tokens": 3000},
            "output_tokens": 0,
        },
        datetime(2026, 7, 15, tzinfo=UTC),
        "0.16625",
    ),
    (
        "T5 litellm#35127, today",
        "openai",
        "gpt-5.6-sol",
        {
            "input_tokens": 172000,
            "input_tokens_details": {"cached_tokens": 155000, "cache_write_tokens": 3000},
            "output_tokens": 0,
        },
        NOW,
        "0.133",
    ),
    (
        "T7 litellm#36452",
        "anthropic",
        "claude-sonnet-4-5",
        {
            "input_tokens": 10,
            "cache_creation_input_tokens": 20000,
            "cache_read_input_tokens": 1000,
            "output_tokens": 100,
        },
        NOW,
        "0.07683",
    ),
    (
        "T9 claude-code-history-viewer#283",
        "anthropic",
        "claude-opus-4-7",
        {
            "input_tokens": 1,
            "cache_creation_input_tokens": 2241,
            "cache_read_input_tokens": 113676,
            "output_tokens": 2495,
        },
        NOW,
        "0.13322425",
    ),
    (
        "B2 litellm#26016",
        "fireworks",
        "glm-5p1",
        {
            "prompt_tokens": 44341,
            "prompt_tokens_details": {"cached_tokens": 41518},
            "completion_tokens": 0,
        },
        NOW,
        "0.01474688",
    ),
    (
        "B5 batch halves every class",
        "anthropic",
        "claude-sonnet-4-5",
        {
            "input_tokens": 10,
            "cache_read_input_tokens": 20000,
            "output_tokens": 100,
            "service_tier": "batch",
        },
        NOW,
        "0.003765",
    ),
    (
        "B6 twelve-hour writes",
        "openai",
        "gpt-6.1-terra",
        {
            "input_tokens": 10000,
            "input_tokens_details": {
                "cache_write_tokens": 8000,
                "cache_write_tokens_details": {"ttl_12h_tokens": 8000},
            },
        },
        NOW,
        "0.022",
    ),
    (
        "B6 thirty-minute writes",
        "openai",
        "gpt-6.1-terra",
        {
            "input_tokens": 10000,
            "input_tokens_details": {
                "cache_write_tokens": 8000,
                "cache_write_tokens_details": {"ttl_30m_tokens": 8000},
            },
        },
        NOW,
        "0.012",
    ),
    (
        "B8 cached_tokens at the top level",
        "moonshotai",
        "kimi-k3",
        {"prompt_tokens": 10000, "cached_tokens": 9000},
        NOW,
        "0.0057",
    ),
    (
        "B9 new-api#7229, cached images",
        "google",
        "gemini-3.5-flash",
        {
            "promptTokenCount": 24643,
            "cachedContentTokenCount": 24503,
            "candidatesTokenCount": 3110,
            "promptTokensDetails": [
                {"modality": "IMAGE", "tokenCount": 22000},
                {"modality": "TEXT", "tokenCount": 2643},
            ],
        },
        NOW,
        "0.03187545",
    ),
    (
        "pi#5737: long writes at their own price",
        "anthropic",
        "claude-opus-4-8",
        {
            "input_tokens": 0,
            "cache_creation_input_tokens": 1_000_000,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 600_000,
                "ephemeral_1h_input_tokens": 400_000,
            },
            "output_tokens": 0,
        },
        NOW,
        "7.75",
    ),
    (
        "oh-my-pi#6876: one-hour tokens",
        "anthropic",
        "claude-opus-4-8",
        {
            "input_tokens": 0,
            "cache_creation": {"ephemeral_1h_input_tokens": 344_139},
            "output_tokens": 0,
        },
        NOW,
        "3.44139",
    ),
    (
        "pxpipe#118: Fable 5",
        "anthropic",
        "claude-fable-5",
        {"input_tokens": 0, "cache_creation": {"ephemeral_1h_input_tokens": 100_000}},
        NOW,
        "2.00",
    ),
    (
        "pi#2148: Gemini counts hits inside",
        "google",
        "gemini-2.0-flash",
        {"promptTokenCount": 10, "cachedContentTokenCount": 8, "candidatesTokenCount": 0},
        NOW,
        "0.0000004",
    ),
]


@pytest.mark.parametrize(
    ("provider", "model", "record", "at", "dollars"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_disputed_records_cost_what_was_settled(provider, model, record, at, dollars):
    assert price(record, model=model, provider=provider, at=at).total == Decimal(dollars)


def test_a_write_never_read_again_is_a_loss():
    record = next(case[3] for case in CASES if case[0].startswith("T7"))
    cost = price(record, model="claude-sonnet-4-5", provider="anthropic", at=NOW)
    assert cost.saved == Decimal("-0.0123")
    assert cost.uncached == Decimal("0.06453")


def test_classes_add_up_to_the_total():
    record = next(case[3] for case in CASES if case[0].startswith("T7"))
    cost = price(record, model="claude-sonnet-4-5", provider="anthropic", at=NOW)
    assert cost.fresh == Decimal("0.00003")
    assert cost.cache_read == Decimal("0.0003")
    assert cost.cache_write == Decimal("0.075")
    assert cost.output == Decimal("0.0015")
    assert cost.fresh + cost.cache_read + cost.cache_write + cost.output == cost.total


def test_a_whole_response_brings_its_own_model_and_tier():
    response = {
        "model": "claude-sonnet-4-5-20250929",
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 20000,
            "output_tokens": 100,
            "service_tier": "batch",
        },
    }
    assert price(response, at=NOW).total == Decimal("0.003765")


def test_the_tier_goes_by_the_whole_prompt():
    record = {"input_tokens": 2000, "cache_read_input_tokens": 118_000, "output_tokens": 0}
    cost = price(record, model="claude-haiku-5-5", provider="anthropic", at=NOW)
    assert cost.total == (2000 * Decimal("0.5") + 118_000 * Decimal("0.05")) / 1_000_000


@pytest.mark.parametrize(("tokens", "input_price"), [(199_999, "2"), (200_000, "4")])
def test_xai_steps_at_its_threshold_and_not_above_it(tokens, input_price):
    cost = price({"prompt_tokens": tokens}, model="grok-4.6", provider="x-ai", at=NOW)
    assert cost.total == tokens * Decimal(input_price) / 1_000_000


def test_processing_in_the_us_lifts_every_class():
    record = {
        "input_tokens": 100,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 1000,
        "output_tokens": 100,
    }
    plain = price(record, model="claude-opus-5", provider="anthropic", at=NOW)
    lifted = price(
        {**record, "inference_geo": "us"}, model="claude-opus-5", provider="anthropic", at=NOW
    )
    for name in ("fresh", "cache_read", "cache_write", "output"):
        assert getattr(lifted, name) == getattr(plain, name) * Decimal("1.1")


def test_fast_mode_doubles_the_cache_classes_too():
    record = {"input_tokens": 0, "cache_read_input_tokens": 1_000_000, "output_tokens": 0}
    fast = price({**record, "speed": "fast"}, model="claude-opus-5-5", provider="anthropic", at=NOW)
    assert fast.total == Decimal("0.4")


def test_batch_before_the_list_had_batch_rates_is_half_all_the_same():
    record = {"input_tokens": 1_000_000, "output_tokens": 0, "service_tier": "batch"}
    cost = price(
        record, model="claude-sonnet-4-5", provider="anthropic", at=datetime(2026, 3, 1, tzinfo=UTC)
    )
    standard = price(
        {**record, "service_tier": "standard"},
        model="claude-sonnet-4-5",
        provider="anthropic",
        at=datetime(2026, 3, 1, tzinfo=UTC),
    )
    assert cost.total == standard.total / 2
    assert any("batch" in note for note in cost.notes)


def test_an_announced_price_counts_from_its_day():
    record = {"promptTokenCount": 1_000_000, "candidatesTokenCount": 0}
    before = price(record, model="gemini-3.8-flash", provider="google", at=datetime(2026, 12, 31))
    after = price(record, model="gemini-3.8-flash", provider="google", at=datetime(2027, 1, 1))
    assert (before.total, after.total) == (Decimal("0.75"), Decimal("1.5"))


def test_a_model_that_cannot_be_priced_is_never_free():
    with pytest.raises(PriceError, match="not in the price list"):
        price({"input_tokens": 5}, model="no-such-model", provider="openai", at=NOW)
    with pytest.raises(PriceError, match="no published token price"):
        price({"input_tokens": 5}, model="mai-ds-r1:free", provider="azure", at=NOW)
    with pytest.raises(PriceError, match="No model"):
        price({"input_tokens": 5}, at=NOW)


def test_long_writes_without_a_known_price_are_not_charged_as_short_ones():
    record = {"input_tokens": 10, "cache_creation": {"ephemeral_1h_input_tokens": 1000}}
    with pytest.raises(PriceError, match="long cache writes"):
        price(record, model="MiniMax-M2", provider="minimax", at=NOW)


def test_a_contract_replaces_the_list():
    contract = Contract.parse(fresh="$2", output="8", cache_read="0.1", cache_write_short="2.5")
    record = {"input_tokens": 1000, "cache_read_input_tokens": 9000, "output_tokens": 10}
    cost = price(record, model="in-house", contract=contract, at=NOW)
    assert cost.total == Decimal("0.00298")


@pytest.mark.parametrize(
    "typed", ["abc", "-1", "1,5", "nan", "inf", "1 2", "1e30", "1e-30", "9" * 20]
)
def test_a_contract_price_that_is_no_price_is_refused(typed):
    with pytest.raises(PriceError, match="dollars per million"):
        Contract.parse(fresh=typed, output="1")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 20000}}, "whole prompt"),
        ({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 20000}}, "exclusive"),
        ({"promptTokenCount": 10, "cachedContentTokenCount": 11}, "whole prompt"),
        (
            {
                "prompt_tokens": 1000,
                "cache_read_input_tokens": 600,
                "cache_creation_input_tokens": 700,
            },
            "exclusive",
        ),
    ],
)
def test_counts_that_cannot_be_are_refused_in_a_sentence(record, message):
    with pytest.raises(UsageError, match=message) as caught:
        price(record, model="gpt-4o", provider="openai", at=NOW)
    assert str(caught.value).endswith(".")


def engine_total(model, provider, usage, at):
    return model.calc_price(Usage(**usage), provider, genai_request_timestamp=at).total_price


def random_usage(rng):
    total = rng.choice([500, 5_000, 150_000, 250_000, 300_000, 1_000_000])
    read = rng.randint(0, total)
    write = rng.randint(0, total - read)
    return {
        "input_tokens": total,
        "cache_read_tokens": read,
        "cache_write_tokens": write,
        "output_tokens": rng.randint(0, 5000),
    }


def test_every_model_of_the_engine_costs_what_the_engine_says():
    """All 2,330 entries, at random moments of 2026, through the public entry point."""
    rng = random.Random(4)
    compared = 0
    for provider in snapshot().providers:
        for model in provider.models:
            usage = random_usage(rng)
            at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=rng.randint(0, 9500))
            try:
                cost = price(usage, model=model.id, provider=provider.id, at=at)
            except PriceError:
                continue
            if find(model.id, provider.id)[1] is model:
                compared += 1
                assert cost.total == engine_total(model, provider, usage, at), model.id
    assert compared > 1900


@given(
    fresh=st.integers(0, 10**6),
    read=st.integers(0, 10**6),
    short=st.integers(0, 10**6),
    long=st.integers(0, 10**6),
    output=st.integers(0, 10**5),
    name=st.sampled_from(["claude-opus-5", "claude-haiku-5-5", "claude-sonnet-4-5"]),
)
@settings(max_examples=60, deadline=None)
def test_anthropic_records_equal_the_engine_for_any_counts(fresh, read, short, long, output, name):
    record = {
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": short + long,
        "cache_creation": {
            "ephemeral_5m_input_tokens": short,
            "ephemeral_1h_input_tokens": long,
        },
        "output_tokens": output,
    }
    provider, model = find(name, "anthropic")
    usage = {
        "input_tokens": fresh + read + short + long,
        "cache_read_tokens": read,
        "cache_write_tokens": short + long,
        "cache_write_1h_tokens": long,
        "output_tokens": output,
    }
    cost = price(record, model=name, provider="anthropic", at=NOW)
    assert cost.total == engine_total(model, provider, usage, NOW)
    uncached = {"input_tokens": usage["input_tokens"], "output_tokens": output}
    assert cost.uncached == engine_total(model, provider, uncached, NOW)


def test_kinds_of_input_whose_caching_is_not_said_are_taken_text_first_and_say_so():
    record = {
        "promptTokenCount": 1000,
        "cachedContentTokenCount": 900,
        "candidatesTokenCount": 0,
        "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 500}],
    }
    cost = price(record, model="gemini-2.5-flash", provider="google", at=NOW)
    expected = 500 * Decimal("0.03") + 400 * Decimal("0.1") + 100 * Decimal(1)
    assert cost.total == expected / 1_000_000
    assert any("text was taken" in note for note in cost.notes)


def test_cached_text_is_not_charged_as_cached_images():
    """langfuse#14123: $1.25 and $2.00 a million on an image model."""
    record = {
        "input_tokens": 3_000_000,
        "output_tokens": 0,
        "input_tokens_details": {
            "text_tokens": 1_000_000,
            "image_tokens": 2_000_000,
            "cached_tokens": 1_500_000,
            "cached_tokens_details": {"text_tokens": 1_000_000, "image_tokens": 500_000},
        },
    }
    cost = price(record, model="gpt-image-2", provider="openai", at=NOW)
    assert cost.cache_read == Decimal("1.25") + Decimal("2") / 2
    assert cost.fresh == Decimal("1.5") * 8
    text_only = {"text_tokens": 1_000_000, "image_tokens": 0}
    record["input_tokens_details"]["cached_tokens_details"] = text_only
    record["input_tokens_details"]["cached_tokens"] = 1_000_000
    cost = price(record, model="gpt-image-2", provider="openai", at=NOW)
    assert (cost.cache_read, cost.fresh) == (Decimal("1.25"), Decimal(16))
    assert cost.notes == ()


def test_kinds_that_are_more_than_the_input_are_refused():
    record = {
        "promptTokenCount": 10,
        "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 11}],
    }
    with pytest.raises(UsageError, match="more than the 10 input tokens"):
        price(record, model="gemini-2.5-flash", provider="google", at=NOW)
    record = {"prompt_tokens": 1, "completion_tokens_details": {"audio_tokens": 5}}
    with pytest.raises(UsageError, match="whole answer"):
        price(record, model="gpt-realtime", provider="openai", at=NOW)


@given(
    total=st.integers(0, 10**5),
    cached=st.integers(0, 10**5),
    audio=st.integers(0, 10**5),
    cached_audio=st.integers(0, 10**5),
    name=st.sampled_from(["gemini-2.5-flash", "gemini-3.8-flash", "gemini-2.5-pro"]),
)
@settings(max_examples=80, deadline=None)
def test_gemini_audio_equals_the_engine_or_is_refused_by_both(
    total, cached, audio, cached_audio, name
):
    record = {
        "promptTokenCount": total,
        "cachedContentTokenCount": cached,
        "candidatesTokenCount": 3,
        "promptTokensDetails": [
            {"modality": "AUDIO", "tokenCount": audio},
            {"modality": "TEXT", "tokenCount": max(0, total - audio)},
        ],
        "cacheTokensDetails": [
            {"modality": "AUDIO", "tokenCount": cached_audio},
            {"modality": "TEXT", "tokenCount": max(0, cached - cached_audio)},
        ],
    }
    provider, model = find(name, "google")
    usage = {
        "input_tokens": total,
        "cache_read_tokens": cached,
        "input_audio_tokens": audio,
        "cache_audio_read_tokens": cached_audio,
        "output_tokens": 3,
    }
    try:
        expected = engine_total(model, provider, usage, NOW)
    except ValueError:
        expected = None
    try:
        cost = price(record, model=name, provider="google", at=NOW)
    except UsageError:
        assert expected is None or cached > total
        return
    assert cost.total == expected


def chat_usage(prompt, read, completion, reasoning=0):
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": read},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


RESPONSES = [
    (
        "anthropic",
        "default",
        {
            "model": "claude-opus-5",
            "usage": {
                "input_tokens": 12,
                "cache_creation_input_tokens": 900,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 500,
                    "ephemeral_1h_input_tokens": 400,
                },
                "cache_read_input_tokens": 7000,
                "output_tokens": 321,
                "server_tool_use": {"web_search_requests": 3},
            },
        },
    ),
    ("openai", "chat", {"model": "gpt-5.5", "usage": chat_usage(300_000, 250_000, 900, 300)}),
    (
        "openai",
        "responses",
        {
            "model": "gpt-6.1-sol",
            "usage": {
                "input_tokens": 9000,
                "input_tokens_details": {"cached_tokens": 5000, "cache_write_tokens": 3000},
                "output_tokens": 70,
                "output_tokens_details": {"reasoning_tokens": 50},
            },
        },
    ),
    (
        "openai",
        "realtime",
        {
            "model": "gpt-realtime",
            "response": {
                "usage": {
                    "input_tokens": 1000,
                    "input_token_details": {
                        "text_tokens": 400,
                        "audio_tokens": 600,
                        "image_tokens": 0,
                        "cached_tokens": 500,
                        "cached_tokens_details": {
                            "text_tokens": 200,
                            "audio_tokens": 300,
                            "image_tokens": 0,
                        },
                    },
                    "output_tokens": 200,
                    "output_token_details": {"text_tokens": 50, "audio_tokens": 150},
                }
            },
        },
    ),
    (
        "google",
        "default",
        {
            "modelVersion": "gemini-2.5-flash",
            "usageMetadata": {
                "promptTokenCount": 5000,
                "cachedContentTokenCount": 3000,
                "cacheTokensDetails": [
                    {"modality": "TEXT", "tokenCount": 2000},
                    {"modality": "AUDIO", "tokenCount": 1000},
                ],
                "promptTokensDetails": [
                    {"modality": "TEXT", "tokenCount": 3500},
                    {"modality": "AUDIO", "tokenCount": 1500},
                ],
                "candidatesTokenCount": 400,
                "thoughtsTokenCount": 600,
                "toolUsePromptTokenCount": 50,
            },
        },
    ),
    ("x-ai", "chat", {"model": "grok-4.6", "usage": chat_usage(5000, 4000, 100, 700)}),
    ("deepseek", "chat", {"model": "deepseek-v4-pro", "usage": chat_usage(5000, 4000, 100)}),
    ("groq", "default", {"model": "openai/gpt-oss-120b", "usage": chat_usage(5000, 4000, 100)}),
    ("moonshotai", "chat", {"model": "kimi-k3", "usage": chat_usage(5000, 4000, 100)}),
    (
        "openrouter",
        "chat",
        {
            "model": "anthropic/claude-opus-5",
            "usage": {
                **chat_usage(5000, 3000, 100),
                "prompt_tokens_details": {"cached_tokens": 3000, "cache_write_tokens": 1500},
            },
        },
    ),
]


@pytest.mark.parametrize(
    ("provider", "flavour", "response"), RESPONSES, ids=[f"{r[0]}-{r[1]}" for r in RESPONSES]
)
def test_whole_responses_cost_what_the_engine_extracts_from_them(provider, flavour, response):
    extracted = extract_usage(response, provider_id=provider, api_flavor=flavour)
    expected = extracted.calc_price(genai_request_timestamp=NOW).total_price
    cost = price(response, provider=provider, at=NOW)
    assert cost.total == expected
    assert expected > 0


def test_bedrock_responses_cost_what_the_engine_extracts_from_them():
    response = {
        "usage": {
            "inputTokens": 19,
            "cacheReadInputTokens": 9000,
            "cacheWriteInputTokens": 500,
            "cacheDetails": [
                {"ttl": "1h", "inputTokens": 300},
                {"ttl": "5m", "inputTokens": 200},
            ],
            "outputTokens": 40,
        }
    }
    model = "global.anthropic.claude-opus-5"
    extracted = extract_usage(response, provider_id="aws")
    provider, info = find(model, "aws")
    expected = info.calc_price(extracted.usage, provider, genai_request_timestamp=NOW)
    assert price(response, model=model, provider="aws", at=NOW).total == expected.total_price
