"""Usage records of every API into token classes; nothing impossible gets through."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.costs import TokenCounts, UsageError, normalise
from kvcore.costs.usage import circumstances, context_window_tokens

# (format, record, (fresh, read, short, long, output)); all tell of the same 100 + 800 + 60 + 40.
SAME_PROMPT = [
    (
        "Anthropic Messages",
        {
            "input_tokens": 100,
            "cache_read_input_tokens": 800,
            "cache_creation_input_tokens": 100,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 60,
                "ephemeral_1h_input_tokens": 40,
            },
            "output_tokens": 7,
        },
    ),
    (
        "OpenAI Responses",
        {
            "input_tokens": 1000,
            "input_tokens_details": {
                "cached_tokens": 800,
                "cache_write_tokens": 100,
                "cache_write_tokens_details": {"ttl_30m_tokens": 60, "ttl_12h_tokens": 40},
            },
            "output_tokens": 7,
        },
    ),
    (
        "Bedrock Converse",
        {
            "inputTokens": 100,
            "cacheReadInputTokens": 800,
            "cacheWriteInputTokens": 100,
            "cacheDetails": [
                {"ttl": "5m", "inputTokens": 60},
                {"ttl": "1h", "inputTokens": 40},
            ],
            "outputTokens": 7,
        },
    ),
    (
        "LiteLLM",
        {
            "prompt_tokens": 1000,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 800, "cache_creation_tokens": 100},
            "cache_read_input_tokens": 800,
            "cache_creation_input_tokens": 100,
            "cache_creation": {"ephemeral_1h_input_tokens": 40},
        },
    ),
    (
        "Anthropic usage report",
        {
            "uncached_input_tokens": 100,
            "cache_read_input_tokens": 800,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 60,
                "ephemeral_1h_input_tokens": 40,
            },
            "output_tokens": 7,
        },
    ),
    (
        "Claude console",
        {
            "usage_input_tokens_no_cache": "100",
            "usage_input_tokens_cache_write_5m": "60",
            "usage_input_tokens_cache_write_1h": "40",
            "usage_input_tokens_cache_read": "800",
            "usage_output_tokens": "7",
            "context_window": "0-200k",
        },
    ),
    (
        "OpenAI usage",
        {
            "num_model_requests": 4,
            "input_tokens": 1000,
            "input_cached_tokens": 800,
            "input_cache_write_tokens": 100,
            "input_cache_write_30m_tokens": 60,
            "input_cache_write_12h_tokens": 40,
            "output_tokens": 7,
        },
    ),
    (
        "OpenAI usage",
        {
            "num_model_requests": 4,
            "input_tokens": 1000,
            "input_cached_tokens": 800,
            "input_cache_write_tokens": 60,
            "input_cache_write_30m_tokens": 60,
            "input_cache_write_12h_tokens": 40,
            "output_tokens": 7,
        },
    ),
    (
        "genai-prices",
        {
            "input_tokens": 1000,
            "cache_read_tokens": 800,
            "cache_write_tokens": 100,
            "cache_write_1h_tokens": 40,
            "output_tokens": 7,
        },
    ),
    (
        "canonical",
        {"fresh": 100, "read": 800, "write_short": 60, "write_long": 40, "out": 7},
    ),
    (
        "Langfuse",
        {
            "input": 100,
            "cache_read_input_tokens": 800,
            "cache_creation_input_tokens": 100,
            "ephemeral_1h_input_tokens": 40,
            "output": 7,
            "total": 1007,
        },
    ),
]


@pytest.mark.parametrize(("name", "record"), SAME_PROMPT, ids=[f"{n}" for n, _ in SAME_PROMPT])
def test_every_format_tells_the_same_prompt(name, record):
    counts = normalise(record)
    assert counts.format == name
    assert (counts.fresh, counts.cache_read) == (100, 800)
    assert (counts.cache_write_short, counts.cache_write_long) == (60, 40)
    assert (counts.input, counts.output) == (1000, 7)


# Formats that cannot split writes by lifetime, or know none: (record, fresh, read, write, output).
OTHERS = [
    ({"prompt_tokens": 1000, "cached_tokens": 900, "completion_tokens": 1}, 100, 900, 0, 1),
    (
        {
            "prompt_tokens": 1000,
            "prompt_cache_hit_tokens": 900,
            "prompt_cache_miss_tokens": 100,
            "completion_tokens": 1,
        },
        100,
        900,
        0,
        1,
    ),
    (
        {"prompt_tokens": 1000, "prompt_tokens_details": {"cache_creation_input_tokens": 300}},
        700,
        0,
        300,
        0,
    ),
    (
        {
            "promptTokenCount": 900,
            "toolUsePromptTokenCount": 100,
            "cachedContentTokenCount": 800,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 3,
        },
        200,
        800,
        0,
        8,
    ),
    ({"prompt_token_count": 900, "cached_content_token_count": 800}, 100, 800, 0, 0),
    (
        {"tokens_prompt": 1000, "tokens_cached": 600, "tokens_completion": 5, "cost_total": 1},
        400,
        600,
        0,
        5,
    ),
    ({"inputTokens": 1000, "cachedInputTokens": 600, "outputTokens": 5}, 400, 600, 0, 5),
    ({"input_tokens": 20, "output_tokens": 3}, 20, 0, 0, 3),
    # Langfuse rows whose total shows that their input still holds the cached tokens.
    (
        {"input": 1000, "input_cached_tokens": 600, "output": 5, "total": 1005},
        400,
        600,
        0,
        5,
    ),
    (
        {
            "input": 400,
            "cache_read_input_tokens": 600,
            "cache_creation_input_tokens": 300,
            "output": 5,
            "total": 1005,
        },
        100,
        600,
        300,
        5,
    ),
]


@pytest.mark.parametrize(("record", "fresh", "read", "write", "output"), OTHERS)
def test_other_formats(record, fresh, read, write, output):
    counts = normalise(record)
    found = (counts.fresh, counts.cache_read, counts.cache_write, counts.output)
    assert found == (fresh, read, write, output)


def test_exclusive_counts_far_below_the_cached_ones_are_added_not_subtracted():
    """genkit#5412 and langsmith-sdk#1858: seven fresh tokens beside ten thousand cached."""
    anthropic = {"input_tokens": 7, "cache_read_input_tokens": 10_000, "output_tokens": 1}
    bedrock = {"inputTokens": 7, "cacheReadInputTokens": 10_000, "outputTokens": 1}
    assert normalise(anthropic).input == normalise(bedrock).input == 10_007


def test_openai_models_on_bedrock_include_what_claude_leaves_out():
    record = {"inputTokens": 1000, "cacheReadInputTokens": 600, "outputTokens": 5}
    assert normalise(record, model="us.anthropic.claude-opus-5").input == 1600
    assert normalise(record, model="us.openai.gpt-6-sol").input == 1000
    with_total = {**record, "totalTokens": 1605}
    assert normalise(with_total, model="us.openai.gpt-6-sol").input == 1600


def test_reasoning_beside_the_completion_is_added_once():
    record = {
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "completion_tokens_details": {"reasoning_tokens": 50},
    }
    assert normalise(record, provider="x-ai").output == 60
    assert normalise({**record, "total_tokens": 160}).output == 60
    inside = {**record, "completion_tokens": 60, "total_tokens": 160}
    assert normalise(inside, provider="x-ai").output == 60
    assert normalise(inside, provider="openai").output == 60


def test_compaction_steps_stand_outside_the_totals():
    record = {
        "input_tokens": 10,
        "cache_read_input_tokens": 5,
        "output_tokens": 2,
        "iterations": [
            {"type": "compaction", "input_tokens": 1000, "output_tokens": 100},
            {"type": "message", "input_tokens": 10, "output_tokens": 2},
        ],
    }
    counts = normalise(record)
    assert (counts.fresh, counts.output) == (1010, 102)
    assert counts.notes


def test_a_row_that_sums_requests_does_not_choose_its_own_tier():
    console = dict(SAME_PROMPT[5][1], usage_input_tokens_no_cache=5_000_000)
    assert normalise(console).tier_tokens == 200_000
    assert normalise({**console, "context_window": "200k-1M"}).tier_tokens == 200_001
    assert normalise({**console, "context_window": ""}).tier_tokens == 0
    openai = dict(SAME_PROMPT[6][1], input_tokens=4_000_000)
    assert normalise(openai).tier_tokens == 1_000_000


@pytest.mark.parametrize(
    ("column", "tokens"),
    [
        ("0-200k", 200_000),
        ("≤200k", 200_000),
        ("0-200000", 200_000),
        ("200k-1M", 200_001),
        (">200k", 200_001),
        ("200k+", 200_001),
        ("", None),
        ("standard", None),
        (None, None),
    ],
)
def test_context_window_columns(column, tokens):
    assert context_window_tokens(column) == tokens


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "No token counts"),
        ({"model": "gpt-4o"}, "No token counts"),
        ({"input_tokens": -1}, "cannot be negative"),
        ({"input_tokens": 9, "cache_tokens_used": 5, "output_tokens": 1}, "no known API"),
        ({"input_tokens": 1.5}, "whole number"),
        ({"input_tokens": "many"}, "whole number"),
        ({"input_tokens": True}, "whole number"),
        ({"input_tokens": float("nan")}, "whole number"),
        ({"input_tokens": 10**16}, "10\\*\\*15"),
        ({"prompt_tokens": 5, "cached_tokens": 6}, "whole prompt"),
        (
            {
                "input_tokens": 1,
                "cache_creation_input_tokens": 10,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 6,
                    "ephemeral_1h_input_tokens": 6,
                },
            },
            "add up to 12",
        ),
        (
            {"prompt_tokens": 10, "prompt_cache_hit_tokens": 6, "prompt_cache_miss_tokens": 6},
            "add up to 12",
        ),
    ],
)
def test_impossible_records_are_refused_in_one_sentence(record, message):
    with pytest.raises(UsageError, match=message) as caught:
        normalise(record)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_refusal_never_repeats_what_stood_in_the_field():
    with pytest.raises(UsageError) as caught:
        normalise({"input_tokens": "sk-ant-secret"})
    assert "secret" not in str(caught.value)


def test_circumstances_come_from_the_usage_and_from_around_it():
    line = {
        "timestamp": "2026-07-15T10:00:00Z",
        "message": {
            "model": "claude-opus-5",
            "usage": {
                "input_tokens": 1,
                "service_tier": "standard",
                "speed": "fast",
                "inference_geo": "us",
            },
        },
    }
    found = circumstances(line)
    assert found.model == "claude-opus-5"
    assert found.at == datetime(2026, 7, 15, 10, tzinfo=UTC)
    assert (found.speed, found.geo, found.batch) == ("fast", "us", False)
    assert normalise(line).input == 1


counts = st.integers(0, 10**9)


@given(read=counts, short=counts, long=counts, fresh=counts, output=counts)
def test_anthropic_and_openai_agree_for_any_counts(read, short, long, fresh, output):
    anthropic = normalise(
        {
            "input_tokens": fresh,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": short + long,
            "cache_creation": {
                "ephemeral_5m_input_tokens": short,
                "ephemeral_1h_input_tokens": long,
            },
            "output_tokens": output,
        }
    )
    openai = normalise(
        {
            "input_tokens": fresh + read + short + long,
            "input_tokens_details": {
                "cached_tokens": read,
                "cache_write_tokens": short + long,
                "cache_write_tokens_details": {"ttl_30m_tokens": short, "ttl_12h_tokens": long},
            },
            "output_tokens": output,
        }
    )
    for name in ("fresh", "cache_read", "cache_write_short", "cache_write_long", "output"):
        assert getattr(anthropic, name) == getattr(openai, name)


names = st.sampled_from(
    [
        "input_tokens",
        "output_tokens",
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details",
        "input_tokens_details",
        "cached_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "cache_creation",
        "iterations",
        "promptTokenCount",
        "cachedContentTokenCount",
        "promptTokensDetails",
        "inputTokens",
        "cacheDetails",
        "usage",
        "message",
        "input",
        "total",
        "num_model_requests",
        "context_window",
        "service_tier",
        "timestamp",
    ]
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@given(record=st.dictionaries(names, junk, max_size=6))
def test_any_record_is_read_or_refused(record):
    try:
        counts = normalise(record)
    except UsageError as error:
        assert len(str(error)) < 300
        return
    assert isinstance(counts, TokenCounts)
    assert min(counts.fresh, counts.cache_read, counts.cache_write, counts.output) >= 0
    circumstances(record)
