"""A million usage rows of several exports and models, against a loop over the price engine."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from statistics import median

import numpy as np
import pandas as pd
from genai_prices import Usage, calc_price

from kvcore.costs.frames import price_frame
from kvcore.costs.summaries import summarise
from tests.benchmarks.figure import Figure

ROWS = 1_000_000
LOOP_ROWS = 5_000
ROUNDS = 3

# The engine has prices for batch work from 14 October 2026 on, this long after the first row.
BATCH_PRICES_FROM = 255 * 86_400

MODELS = (
    ("anthropic", "claude-sonnet-4-5"),
    ("anthropic", "claude-opus-4-8"),
    ("anthropic", "claude-haiku-5-5"),
    ("openai", "gpt-5.6-sol"),
    ("openai", "gpt-4o"),
    ("openai", "gpt-5.5"),
    ("google", "gemini-2.5-pro"),
    ("google", "gemini-3.5-flash"),
    ("deepseek", "deepseek-v4-pro"),
    ("x-ai", "grok-4.3"),
    ("openrouter", "anthropic/claude-sonnet-4.5"),
    ("aws", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
)


def usage_rows(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Requests as five exports would give them: mixed providers, tiers, months and batch jobs."""
    draw = np.random.default_rng(seed)
    which = draw.integers(len(MODELS), size=rows)
    providers, models = (np.array(names, dtype=object) for names in zip(*MODELS, strict=True))
    total = draw.integers(10, 260_000, size=rows)
    read = (total * draw.random(rows) * 0.8).astype(np.int64)
    writes = (total * draw.random(rows) * 0.2).astype(np.int64)
    short = np.where(np.isin(providers[which], ["anthropic", "openai", "aws"]), writes, 0)
    long = np.where((providers[which] == "anthropic") & (draw.random(rows) < 0.2), short // 2, 0)
    seconds = draw.integers(0, 300 * 86_400, size=rows)
    is_batch_model = np.isin(models[which], ["claude-opus-4-8", "gpt-5.5"])
    batch = is_batch_model & (seconds >= BATCH_PRICES_FROM) & (draw.random(rows) < 0.5)
    return pd.DataFrame(
        {
            "at": pd.Timestamp("2026-02-01", tz="UTC") + pd.to_timedelta(seconds, unit="s"),
            "provider": pd.Categorical(providers[which]),
            "model": pd.Categorical(models[which]),
            "processing": pd.Categorical(np.where(batch, "batch", "")),
            "fresh": total - read - short,
            "cache_read": read,
            "write_short": short - long,
            "write_long": long,
            "output": draw.integers(1, 4_000, size=rows),
            "tier_tokens": total,
        }
    )


def loop(frame: pd.DataFrame) -> Decimal:
    """The same rows through `calc_price`, one at a time."""
    paid = Decimal(0)
    for row in frame.itertuples(index=False):
        usage = Usage(
            input_tokens=row.fresh + row.cache_read + row.write_short + row.write_long,
            cache_read_tokens=row.cache_read,
            cache_write_tokens=row.write_short + row.write_long,
            cache_write_1h_tokens=row.write_long,
            output_tokens=row.output,
        )
        paid += calc_price(
            usage,
            row.model,
            provider_id=row.provider,
            genai_request_timestamp=row.at.to_pydatetime(),
            price_context={"processing": "batch"} if row.processing == "batch" else None,
        ).total_price
    return paid


def figures() -> Iterator[Figure]:
    frame = usage_rows()
    part = frame.iloc[:LOOP_ROWS].reset_index(drop=True)
    at = datetime(2026, 11, 29, tzinfo=UTC)
    loop(part.iloc[:500])
    price_frame(part)
    ratios, seconds, looped = [], [], Decimal(0)
    for _ in range(ROUNDS):
        gc.collect()
        start = time.perf_counter()
        looped = loop(part)
        per_row = (time.perf_counter() - start) / LOOP_ROWS
        start = time.perf_counter()
        priced = price_frame(frame, at=at)
        summarise(priced.frame)
        seconds.append(time.perf_counter() - start)
        ratios.append(per_row * ROWS / seconds[-1])
    note = f"{median(seconds):.2f} s for {ROWS:,} rows"
    yield Figure(
        "usage rows priced and summarised, against calc_price", median(ratios), 200, "×", True, note
    )
    apart = abs(price_frame(part).totals.paid - looped)
    yield Figure("difference of the totals over 5,000 rows", float(apart), 0.005, "$", False)
