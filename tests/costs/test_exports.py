"""One sample of every export, each with the dollars worked out by hand from the list prices.

Prices in dollars per million tokens (genai-prices 0.2.3, November 2026): Sonnet 4.5 3 / 3.75 / 6 /
0.30 / 15 (fresh, 5-minute write, 1-hour write, read, output), double input and 1.5× output above
200,000; Opus 4.7 and 4.8 5 / 6.25 / 10 / 0.50 / 25; GPT-4o 2.50, read 1.25, output 10; GPT-5.6 Sol
4, write 5, 12-hour write 10, read 0.40, output 20.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from genai_prices import Usage, calc_price

from kvcore.costs import read_usage
from kvcore.costs.exports import Format

SAMPLES = Path(__file__).parents[1] / "data" / "usage"

# file, format, good rows, repeats, dollars paid, dollars saved
CASES = [
    (
        "claude_api_tokens_2026_11.csv",
        Format.CLAUDE_CONSOLE_USAGE,
        5,
        0,
        # 12.21 + 2.0775 (above 200k) + 0.555 (batch) + 1.1 × 11.775 (us) + 12.0075
        "39.8025",
        # per row: reads × (in − read) − writes × (write − in)
        "40.7525",
    ),
    ("anthropic_usage_report.json", Format.ANTHROPIC_USAGE_REPORT, 3, 0, "14.8425", "17.925"),
    # 14.98 (as T5, ×10, with 1h… 20k short and 10k long writes) and T2 × 1000, batch 2.5 / 15
    ("openai_usage.csv", Format.OPENAI_USAGE, 3, 0, "12.27", "7.90"),
    ("openai_usage.json", Format.OPENAI_USAGE, 2, 0, "9.345", "7.95"),
    # 2 × (12000×3 + 200×15) + 2 × (250×3 + 11900×0.3 + 150×15) + (300×3 + 11900×0.3 + 120×15)
    ("openrouter_activity_2026-11-02.csv", Format.OPENROUTER, 5, 1, "0.09741", "0.09639"),
    ("litellm_spend_logs.json", Format.LITELLM_SPEND_LOGS, 3, 0, "0.06303", "0.1158"),
    ("litellm_daily_user_spend.csv", Format.LITELLM_DAILY, 2, 0, "8.168", "7.50"),
    ("langfuse_observations.jsonl", Format.LANGFUSE, 3, 0, "0.054963", "0.042147"),
    ("langfuse_observations.csv", Format.LANGFUSE, 2, 0, "0.00924", "0.0048"),
    # T2 and T7
    ("helicone_requests.jsonl", Format.HELICONE, 2, 0, "0.082445", "-0.0099"),
    ("helicone_requests.csv", Format.HELICONE, 1, 0, "0.005615", "0.0024"),
    # T9 once, and 3×5 + 1000×10 + 115917×0.5 + 400×25
    ("claude_code_session.jsonl", Format.TRANSCRIPT, 2, 2, "0.21119775", "1.02536725"),
    # (2000×4 + 18000×5 + 500×20) + (1000×4 + 18000×0.4 + 3000×5 + 300×20)
    ("codex_rollout.jsonl", Format.TRANSCRIPT, 2, 1, "0.1402", "0.0438"),
    # T2 + T7 + T5 + T3 + B5
    ("api_responses.jsonl", Format.API_RESPONSES, 5, 1, None, None),
    ("own_log.csv", Format.USAGE_TABLE, 2, 0, "0.01123", "0.0048"),
]


def read(name: str):
    return read_usage((SAMPLES / name).read_bytes(), name)


@pytest.mark.parametrize(("name", "form", "rows", "repeats", "paid", "saved"), CASES)
def test_a_sample_of_every_export(name, form, rows, repeats, paid, saved):
    usage = read(name)
    assert usage.format == form
    assert usage.rejected == []
    assert (len(usage.frame), usage.duplicates) == (rows, repeats)
    assert usage.unpriced == ()
    if paid is not None:
        assert usage.total.paid == Decimal(paid)
        assert usage.total.saved == Decimal(saved)
    assert usage.frame["paid"].sum() == pytest.approx(float(usage.total.paid), abs=1e-9)


def test_raw_responses_give_the_known_dollars_of_each_api():
    usage = read("api_responses.jsonl")
    t2, t7, t5, t3, b5 = (
        Decimal(text) for text in ("0.005615", "0.07683", "0.133", "0.10316125", "0.003765")
    )
    assert usage.total.paid == t2 + t7 + t5 + t3 + b5
    assert list(usage.frame["provider"]) == ["", "anthropic", "", "google", "anthropic"]


def test_the_console_sample_agrees_with_its_cost_export():
    cost = read("claude_api_cost_2026_11.csv")
    assert cost.format == Format.CLAUDE_CONSOLE_COST
    assert cost.is_cost
    assert cost.reported == Decimal("12.21")
    assert cost.total.paid == Decimal("12.21")
    assert cost.total.saved is None
    first = read("claude_api_tokens_2026_11.csv").frame.iloc[0]
    assert first["paid"] == pytest.approx(12.21)


def test_openai_costs_in_all_shapes():
    assert read("openai_costs.csv").reported == Decimal("1.38")
    page = {
        "object": "page",
        "data": [
            {
                "object": "bucket",
                "start_time": 1793577600,
                "results": [
                    {
                        "object": "organization.costs.result",
                        "amount": {"value": 0.06, "currency": "usd"},
                        "line_item": "gpt-4o, cached input",
                    },
                ],
            }
        ],
    }
    usage = read_usage(json.dumps(page).encode(), "costs.json")
    assert (usage.format, usage.reported) == (Format.OPENAI_COST, Decimal("0.06"))


def test_anthropic_cost_report_amounts_are_cents():
    page = {
        "data": [
            {
                "starting_at": "2026-11-02T00:00:00Z",
                "results": [{"amount": "1221.5", "currency": "USD", "model": "claude-sonnet-4-5"}],
            }
        ]
    }
    usage = read_usage(json.dumps(page).encode(), "cost.json")
    assert (usage.format, usage.reported) == (Format.ANTHROPIC_COST_REPORT, Decimal("12.215"))


CONSOLE = (
    "usage_date_utc,model_version,usage_type,context_window,usage_input_tokens_no_cache,"
    "usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,"
    "usage_input_tokens_cache_read,usage_output_tokens\n"
)


def console(*rows: str):
    return read_usage((CONSOLE + "\n".join(rows) + "\n").encode(), "claude_api_tokens.csv")


def test_the_total_of_a_day_does_not_choose_the_long_context_price():
    short = console("2026-11-02,claude-sonnet-4-5,standard,≤ 200k,5000000,0,0,9000000,100000")
    assert short.total.paid == Decimal(5 * 3) + Decimal("0.3") * 9 + Decimal("1.5")
    long = console("2026-11-02,claude-sonnet-4-5,standard,> 200k,50000,0,0,60000,10000")
    assert long.total.paid == Decimal("0.05") * 6 + Decimal("0.06") * Decimal("0.6") + Decimal(
        "0.225"
    )


def test_a_bucket_wider_than_the_threshold_is_charged_short_and_says_so():
    usage = console("2026-11-02,claude-haiku-5-5,standard,≤ 200k,5000000,0,0,0,0")
    assert usage.total.paid == Decimal("0.1") * 5
    assert any("without saying how long each was" in note for note in usage.notes)
    known = console("2026-11-02,claude-haiku-5-5,standard,≤ 100k,5000000,0,0,0,0")
    assert known.total.paid == Decimal("0.5")
    assert not any("without saying" in note for note in known.notes)


OPENAI = (
    "start_time_iso,model,num_model_requests,input_tokens,input_cached_tokens,"
    "input_cache_write_tokens,input_cache_write_30m_tokens,input_cache_write_12h_tokens,"
    "output_tokens\n"
)


def openai(*rows: str):
    return read_usage((OPENAI + "\n".join(rows) + "\n").encode(), "usage.csv")


@pytest.mark.parametrize(("requests", "price"), [(1000, 4), (2, 8), ("", 4)])
def test_the_average_request_chooses_the_price_of_a_sum(requests, price):
    """A million tokens: 1,000 requests of 1,000, or two of 500,000 (above 272,000)."""
    usage = openai(f"2026-11-02T00:00:00Z,gpt-5.6-sol,{requests},1000000,0,0,0,0,0")
    assert usage.total.paid == price
    warned = any("without saying how long" in note for note in usage.notes)
    assert warned == (requests == "")


@pytest.mark.parametrize(
    ("total", "short", "long", "dollars"),
    [
        # the total beside its two parts, never added to them
        (30_000, 20_000, 10_000, "0.2"),
        # an older file: the short writes alone, under the name of the total
        (20_000, "", "", "0.1"),
        # only the long part is stated beside the total
        (30_000, "", 10_000, "0.2"),
    ],
)
def test_openai_write_columns(total, short, long, dollars):
    usage = openai(f"2026-11-02T00:00:00Z,gpt-5.6-sol,1,30000,0,{total},{short},{long},0")
    fresh = 30_000 - int(usage.total.cache_write_tokens)
    assert usage.total.paid == Decimal(dollars) + Decimal(4) * fresh / 1_000_000


def test_kinds_of_tokens_with_their_own_price():
    """GPT-4o audio: cached text is not charged at the price of audio, nor audio at that of text."""
    text = (
        "start_time_iso,model,num_model_requests,input_tokens,output_tokens,input_cached_tokens,"
        "input_audio_tokens,input_cached_audio_tokens,output_audio_tokens\n"
        "2026-11-02T00:00:00Z,gpt-realtime,1,1000000,0,500000,400000,200000,0\n"
    )
    usage = read_usage(text.encode(), "usage.csv")
    expected = calc_price(
        Usage(
            input_tokens=1_000_000,
            cache_read_tokens=500_000,
            input_audio_tokens=400_000,
            cache_audio_read_tokens=200_000,
        ),
        "gpt-realtime",
        provider_id="openai",
    )
    assert usage.total.paid == expected.total_price


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # additive, as Langfuse's own integrations write it
        (
            {"input": 86, "input_cached_tokens": 1920, "output": 300, "total": 2306},
            (86, 1920, 0, 0, 300),
        ),
        # inclusive: input and output alone make the total
        (
            {"input": 2006, "input_cached_tokens": 1920, "output": 300, "total": 2306},
            (86, 1920, 0, 0, 300),
        ),
        # BerriAI/litellm#26919: the input still holds the writes
        (
            {
                "input": 500,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 400,
                "output": 50,
                "total": 1450,
            },
            (100, 900, 400, 0, 50),
        ),
        # langfuse/langfuse#16188: writes under a key Langfuse has no price for
        (
            {"input": 100, "input_cache_creation": 4000, "output": 10},
            (100, 0, 4000, 0, 10),
        ),
        (
            {"input": 1, "input_cache_creation_5m": 20, "input_cache_creation_1h": 30, "output": 1},
            (1, 0, 20, 30, 1),
        ),
        (
            {"prompt_tokens": 2006, "cached_tokens": 1920, "completion_tokens": 300},
            (86, 1920, 0, 0, 300),
        ),
        # reasoning beside the output, and inside it by the total
        ({"input": 10, "output": 5, "output_reasoning_tokens": 7}, (10, 0, 0, 0, 12)),
        ({"input": 10, "output": 12, "output_reasoning_tokens": 7, "total": 22}, (10, 0, 0, 0, 12)),
    ],
)
def test_langfuse_free_keys(usage, expected):
    row = {"id": "1", "type": "GENERATION", "startTime": "2026-11-02T00:00:00Z",
           "model": "gpt-5.6-sol", "usageDetails": usage}  # fmt: skip
    frame = read_usage(json.dumps([row]).encode(), "langfuse.json").frame
    columns = ["fresh", "cache_read", "write_short", "write_long", "output"]
    assert tuple(frame.iloc[0][columns]) == expected


def test_a_growing_message_counts_once_and_at_its_largest():
    """ccusage/ccusage#389 and #938: repeats counted many times, or only the first of them."""
    usage = read("claude_code_session.jsonl")
    assert list(usage.frame["output"]) == [2495, 400]
    assert usage.duplicates == 2


def test_keys_and_messages_are_neither_kept_nor_shown():
    for path in SAMPLES.iterdir():
        usage = read(path.name)
        kept = usage.frame.astype(str).to_csv() + repr(usage.rejected) + repr(usage.notes)
        for secret in ("sample-hash", "support-bot", "question", "sample answer", "helpdesk"):
            assert secret not in kept, path.name


def test_a_key_in_the_wrong_column_is_not_repeated():
    usage = console(
        "2026-11-02,sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789,standard,≤ 200k,1,0,0,0,1",
        "2026-11-02,claude-sonnet-4-5,standard,≤ 200k,sk-ant-api03-secretsecretsecret,0,0,0,1",
    )
    shown = usage.frame.astype(str).to_csv() + repr(usage.rejected) + repr(usage.unpriced)
    assert "sk-ant" not in shown
    assert usage.rejected == [(3, "The input tokens are not a number.")]


def test_a_model_without_a_price_is_listed_and_never_free():
    usage = console(
        "2026-11-02,claude-sonnet-4-5,standard,≤ 200k,1000000,0,0,0,0",
        "2026-11-02,claude-imaginary-9,standard,≤ 200k,1000000,0,0,0,0",
    )
    assert usage.total.paid == 3
    (unpriced,) = usage.unpriced
    assert (unpriced.model, unpriced.rows, unpriced.tokens) == ("claude-imaginary-9", 1, 1_000_000)
    assert usage.frame["paid"].isna().tolist() == [False, True]
    assert usage.total.input_tokens == 2_000_000


def test_times_in_every_notation():
    header = "created,model,prompt_tokens,completion_tokens\n"
    stamps = ["2026-11-02T00:00:00Z", "2026-11-02 00:00:00", "2026-11-02", "1793577600",
              "1793577600000", "2026-11-02T01:00:00+01:00"]  # fmt: skip
    text = header + "".join(f"{stamp},gpt-4o,10,1\n" for stamp in stamps)
    usage = read_usage(text.encode(), "log.csv")
    assert set(usage.frame["at"].astype(str)) == {"2026-11-02 00:00:00+00:00"}
