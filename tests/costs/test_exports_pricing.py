"""The vectorised price of a frame is the price engine's own, to the last digit."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from genai_prices import calc_price
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.costs import Contract, price
from kvcore.costs.frames import price_frame, price_windows
from kvcore.costs.usage import TokenCounts

# Flat, tiered, dated, by time of day, free writes, and another vendor's model at a cloud.
MODELS = [
    ("anthropic", "claude-sonnet-4-5"),
    ("anthropic", "claude-opus-4-8"),
    ("anthropic", "claude-haiku-5-5"),
    ("anthropic", "claude-sonnet-4-6"),
    ("openai", "gpt-5.6-sol"),
    ("openai", "gpt-5.6-luna"),
    ("openai", "gpt-4o"),
    ("openai", "gpt-6.1-terra"),
    ("google", "gemini-2.5-pro"),
    ("google", "gemini-3.8-flash"),
    ("google", "gemini-4-argon"),
    ("deepseek", "deepseek-v4-pro"),
    ("x-ai", "grok-4.3"),
    ("moonshotai", "kimi-k3"),
    ("aws", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ("openrouter", "anthropic/claude-sonnet-4.5"),
]

requests = st.lists(
    st.tuples(
        st.sampled_from(MODELS),
        st.datetimes(datetime(2025, 10, 1), datetime(2027, 3, 1)),
        st.integers(0, 300_000),
        st.integers(0, 300_000),
        st.integers(0, 50_000),
        st.integers(0, 20_000),
    ),
    min_size=1,
    max_size=20,
)


def frame_of(rows) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "provider": provider,
                "model": model,
                "at": pd.Timestamp(at, tz="UTC"),
                "fresh": fresh,
                "cache_read": read,
                "write_short": written,
                "write_long": 0,
                "output": output,
            }
            for (provider, model), at, fresh, read, written, output in rows
        ]
    ).assign(at=lambda f: f["at"].astype("datetime64[us, UTC]"))


@settings(max_examples=40)
@given(requests)
def test_equals_calc_price_for_any_mixture(rows):
    expected = Decimal(0)
    for (provider, model), at, fresh, read, written, output in rows:
        usage = TokenCounts(fresh, read, written, 0, output).usage()
        expected += calc_price(
            usage, model, provider_id=provider, genai_request_timestamp=at.replace(tzinfo=UTC)
        ).total_price
    priced = price_frame(frame_of(rows))
    assert priced.unpriced == ()
    assert priced.totals.paid == expected
    assert priced.frame["paid"].sum() == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("provider", "model"), MODELS)
def test_both_sides_of_every_boundary(provider, model):
    """A tier, a date and a time of day each change the price at exactly the right row."""
    days, seconds = price_windows(model, provider)
    moments = [pd.Timestamp("2026-11-03", tz="UTC")]
    moments += [
        pd.Timestamp(day, tz="UTC") + pd.Timedelta(d) for day in days for d in ("0s", "-1us")
    ]
    moments += [
        pd.Timestamp("2026-11-03", tz="UTC") + pd.Timedelta(seconds=s) + pd.Timedelta(d)
        for s in seconds
        for d in ("0s", "-1us")
    ]
    sizes = [1_000, 99_999, 100_000, 100_001, 200_000, 200_001, 272_000, 272_001]
    for at in moments:
        for size in sizes:
            rows = [((provider, model), at.to_pydatetime().replace(tzinfo=None), size, 0, 0, 10)]
            expected = calc_price(
                TokenCounts(size, output=10).usage(),
                model,
                provider_id=provider,
                genai_request_timestamp=at.to_pydatetime(),
            )
            assert price_frame(frame_of(rows)).totals.paid == expected.total_price, (at, size)


def test_a_row_of_a_frame_is_the_price_of_its_record():
    """Long writes, batch, speed and region, which the engine alone does not know."""
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 20_000,
        "cache_creation": {"ephemeral_5m_input_tokens": 5_000, "ephemeral_1h_input_tokens": 15_000},
        "cache_read_input_tokens": 1_000,
        "output_tokens": 100,
    }
    at = datetime(2026, 11, 2, tzinfo=UTC)
    for processing, speed, geo in (("", "", ""), ("batch", "", "us"), ("", "fast", "us")):
        record = price(
            usage,
            "claude-opus-4-8",
            "anthropic",
            at,
            batch=processing == "batch",
            speed=speed or None,
            geo=geo or None,
        )
        frame = frame_of(
            [(("anthropic", "claude-opus-4-8"), datetime(2026, 11, 2), 10, 1_000, 5_000, 100)]
        )
        frame = frame.assign(write_long=15_000, processing=processing, speed=speed, geo=geo)
        totals = price_frame(frame).totals
        assert (totals.paid, totals.saved) == (record.total, record.saved)


def test_twelve_hour_writes_have_their_price():
    """B6: 2,000 fresh and 8,000 written for 12 hours on GPT-6.1 Terra: $0.022."""
    rows = [(("openai", "gpt-6.1-terra"), datetime(2026, 11, 2), 2_000, 0, 0, 0)]
    assert price_frame(frame_of(rows).assign(write_long=8_000)).totals.paid == Decimal("0.022")
    assert price_frame(frame_of(rows).assign(write_short=8_000)).totals.paid == Decimal("0.012")


def test_a_contract_replaces_every_price():
    contract = Contract.parse(fresh="1", output="2", cache_read="0.1")
    rows = [
        (("anthropic", "claude-sonnet-4-5"), datetime(2026, 11, 2), 10**6, 10**6, 10**6, 10**6),
        (("nobody", "in-house-model"), datetime(2026, 11, 2), 10**6, 0, 0, 0),
    ]
    priced = price_frame(frame_of(rows), contract=contract)
    assert priced.unpriced == ()
    assert priced.totals.paid == Decimal("1.1") + 1 + 2 + 1


def test_unpriced_rows_are_listed_and_in_no_sum():
    rows = [
        (("anthropic", "claude-imaginary-9"), datetime(2026, 11, 2), 100, 0, 0, 5),
        (("unheard-of", "gpt-4o"), datetime(2026, 11, 2), 100, 0, 0, 5),
        (("openai", "gpt-4o"), datetime(2026, 11, 2), 10**6, 0, 0, 0),
    ]
    priced = price_frame(frame_of(rows))
    assert priced.totals.paid == Decimal("2.5")
    assert sorted(entry.model for entry in priced.unpriced) == ["claude-imaginary-9", "gpt-4o"]
    assert np.isnan(priced.frame["paid"].to_numpy()).tolist() == [True, True, False]
    assert all(entry.reason for entry in priced.unpriced)


@pytest.mark.parametrize(
    ("name", "provider"), [("bedrock", "aws"), ("vertex_ai", "google"), ("xai", "x-ai")]
)
def test_gateways_names_of_providers(name, provider):
    model = {"aws": "anthropic.claude-sonnet-4-5-20250929-v1:0", "google": "gemini-2.5-pro"}.get(
        provider, "grok-4.3"
    )
    rows = [((name, model), datetime(2026, 11, 2), 1_000, 0, 0, 0)]
    same = [((provider, model), datetime(2026, 11, 2), 1_000, 0, 0, 0)]
    assert price_frame(frame_of(rows)).totals == price_frame(frame_of(same)).totals
