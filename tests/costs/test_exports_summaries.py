"""Hit rates by model and hour, other lifetimes, and the gap to the invoice."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from kvcore.costs import read_usage
from kvcore.costs.frames import price_frame
from kvcore.costs.summaries import (
    InvoiceGap,
    has_hours,
    other_lifetimes,
    recorded_arrivals,
    sold_lifetimes,
    summarise,
)

SONNET = ("anthropic", "claude-sonnet-4-5")


def requests(*rows, model=SONNET) -> pd.DataFrame:
    """Rows of (time, session, fresh, read, short write, output)."""
    frame = pd.DataFrame(
        rows, columns=["at", "session", "fresh", "cache_read", "write_short", "output"]
    )
    frame["at"] = pd.to_datetime(frame["at"], utc=True).astype("datetime64[us, UTC]")
    return frame.assign(provider=model[0], model=model[1], write_long=0, requests=1.0)


def test_hit_rate_by_model_and_hour():
    frame = requests(
        ("2026-11-02 09:00", 1, 100, 0, 900, 10),
        ("2026-11-02 09:02", 1, 100, 900, 0, 10),
        ("2026-11-02 14:00", 1, 100, 300, 600, 10),
        ("2026-11-03 14:30", 1, 400, 600, 0, 10),
    )
    tables = summarise(price_frame(frame).frame)
    hours = tables.by_hour.set_index("hour")["hit_rate"]
    assert hours[9] == pytest.approx(900 / 2000)
    assert hours[14] == pytest.approx(900 / 2000)
    assert list(tables.by_day["day"].dt.strftime("%Y-%m-%d")) == ["2026-11-02", "2026-11-03"]
    (row,) = tables.by_model.to_dict("records")
    assert row["hit_rate"] == pytest.approx(1800 / 4000)
    assert row["requests"] == 4
    assert row["uncached"] == pytest.approx((4000 * 3 + 40 * 15) / 1e6)


def test_tables_add_up_to_the_totals():
    draw = np.random.default_rng(0)
    rows = 5_000
    frame = pd.DataFrame(
        {
            "at": pd.Timestamp("2026-03-01", tz="UTC")
            + pd.to_timedelta(draw.integers(0, 10**7, rows), unit="s"),
            "provider": "anthropic",
            "model": draw.choice(["claude-sonnet-4-5", "claude-opus-4-8", "no-such-model"], rows),
            "fresh": draw.integers(0, 1000, rows),
            "cache_read": draw.integers(0, 1000, rows),
            "write_short": draw.integers(0, 1000, rows),
            "write_long": draw.integers(0, 1000, rows),
            "output": draw.integers(0, 1000, rows),
        }
    )
    priced = price_frame(frame)
    tables = summarise(priced.frame)
    for table in (tables.by_model, tables.by_hour, tables.by_day):
        assert table["input_tokens"].sum() == priced.totals.input_tokens
        assert table["paid"].sum() == pytest.approx(float(priced.totals.paid))
        assert table["saved"].sum() == pytest.approx(float(priced.totals.saved))
        assert table["rows"].sum() == rows
    unpriced = tables.by_model.set_index("model").loc["no-such-model"]
    assert unpriced["priced_rows"] == 0
    assert unpriced["rows"] == sum(entry.rows for entry in priced.unpriced)


def test_days_alone_make_no_hours():
    frame = requests(("2026-11-02", 1, 100, 0, 900, 10), ("2026-11-03", 1, 100, 900, 0, 10))
    assert not has_hours(frame)
    tables = summarise(price_frame(frame).frame)
    assert tables.by_hour.empty
    assert len(tables.by_day) == 2


def test_rows_without_a_time_count_in_the_models_only():
    frame = requests((None, 1, 100, 0, 900, 10), ("2026-11-03 10:00", 1, 100, 900, 0, 10))
    tables = summarise(price_frame(frame).frame)
    assert tables.by_model["rows"].sum() == 2
    assert tables.by_hour["rows"].sum() == 1


def test_an_empty_frame_has_empty_tables():
    tables = summarise(read_usage(b"").frame)
    assert tables.by_model.empty
    assert tables.by_hour.empty


def test_what_another_lifetime_would_have_cost():
    """One prefix of 10,000 tokens asked for at 0, 4, 30 and 100 minutes.

    Five minutes: writes at 0, 30, 100. An hour: writes at 0 and 100 (70 minutes after). Sonnet
    4.5 in dollars a million: 3 fresh, 3.75 and 6 to write, 0.30 to read.
    """
    frame = requests(
        ("2026-11-02 09:00", 1, 0, 0, 10_000, 0),
        ("2026-11-02 09:04", 1, 0, 10_000, 0, 0),
        ("2026-11-02 09:30", 1, 0, 0, 10_000, 0),
        ("2026-11-02 10:40", 1, 0, 0, 10_000, 0),
    )
    recorded, without, short, long = other_lifetimes(frame)
    assert recorded.paid == (Decimal("3.75") * 3 + Decimal("0.3")) / 100
    assert without.paid == Decimal(12) / 100
    assert short.paid == recorded.paid
    assert short.hit_rate == pytest.approx(0.25)
    assert long.paid == (Decimal(6) * 2 + Decimal("0.3") * 2) / 100
    assert long.hit_rate == pytest.approx(0.5)


def test_sessions_do_not_read_each_other():
    frame = requests(
        ("2026-11-02 09:00", 1, 0, 0, 10_000, 0),
        ("2026-11-02 09:01", 2, 0, 0, 10_000, 0),
    )
    short = other_lifetimes(frame)[2]
    assert short.hit_rate == 0
    together = other_lifetimes(frame.assign(session=0))[2]
    assert together.hit_rate == pytest.approx(0.5)


def test_the_first_request_of_a_file_keeps_what_it_read():
    """Who wrote what it read is not in the file; it did not read its own write."""
    frame = requests(
        ("2026-11-02 09:00", 1, 0, 10_000, 500, 0),
        ("2026-11-02 09:01", 1, 0, 10_500, 500, 0),
    )
    recorded, _, short, _ = other_lifetimes(frame)
    assert short.paid == recorded.paid


def test_sums_keep_their_reads_and_change_the_price_of_writes():
    frame = requests(("2026-11-02", 0, 0, 10**6, 10**6, 0)).assign(requests=np.nan, tier_tokens=0)
    *_, long = other_lifetimes(frame)
    assert long.paid == Decimal("6.3")
    assert long.hit_rate is None


def test_models_without_a_choice_stay_as_recorded():
    frame = requests(("2026-11-02 09:00", 0, 100, 900, 0, 1), model=("google", "gemini-2.5-pro"))
    assert [lifetime.name for lifetime in other_lifetimes(frame)] == [
        "As recorded",
        "Without caching",
    ]
    assert sold_lifetimes("google", "gemini-2.5-pro") == (None, None)
    assert sold_lifetimes(*SONNET) == (300, 3600)
    assert sold_lifetimes("openai", "gpt-5.6-sol") == (1800, 43_200)
    assert sold_lifetimes("nobody", "nothing") == (None, None)


def test_reads_without_any_write_say_nothing_of_lifetimes():
    """OpenRouter's file has no count of writes: a comparison would be made up."""
    frame = requests(("2026-11-02 09:00", 0, 100, 900, 0, 1))
    assert len(other_lifetimes(frame)) == 2


def test_arrivals_for_a_replay():
    frame = requests(
        ("2026-11-02 09:05", 2, 1, 0, 0, 1),
        ("2026-11-02 09:00", 1, 1, 0, 0, 1),
        (None, 1, 1, 0, 0, 1),
    )
    seconds, sessions = recorded_arrivals(frame)
    assert seconds == (0.0, 300.0)
    assert len(set(sessions)) == 2
    assert recorded_arrivals(frame.assign(requests=np.nan)) == ((), ())


def test_gap_to_the_invoice():
    gap = InvoiceGap(Decimal("95"), Decimal("100"))
    assert gap.dollars == 5
    assert gap.share == pytest.approx(0.05)
    assert InvoiceGap(Decimal("110"), Decimal("100")).dollars == -10
