"""What the charts of a bill draw, as Arrow tables: built from plain lists in a tenth of the time
that a data frame with strings takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from kvcore.costs.curves import (
    SavingCurve,
    bill_rows,
    break_even_rows,
    prefix_rows,
    rate_rows,
)
from kvcore.costs.doubts import Band
from kvcore.costs.estimate import ModelEstimate

LINE, BREAK_EVEN, HERE, MINIMUM = "line", "break-even", "you are here", "minimum"
"""What a row of a curve's table is, in its column `kind`."""

DRIVERS_DRAWN = 6

_RATES = pa.schema(
    [
        ("requests_per_hour", pa.float64()),
        ("lifetime", pa.string()),
        ("saving", pa.float64()),
        ("saving_share", pa.float64()),
        ("kind", pa.string()),
    ]
)
_PREFIXES = pa.schema(
    [
        ("prefix_tokens", pa.int64()),
        ("lifetime", pa.string()),
        ("saving", pa.float64()),
        ("kind", pa.string()),
    ]
)
_BILL = pa.schema(
    [
        ("scenario", pa.string()),
        ("token_class", pa.string()),
        ("dollars", pa.float64()),
        ("order", pa.int64()),
    ]
)
_DRIVERS = pa.schema(
    [
        ("driver", pa.string()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("saving", pa.float64()),
        ("order", pa.int64()),
    ]
)


def bill_table(model: ModelEstimate) -> pa.Table:
    """Columns scenario, token_class, dollars, order, as `curves.bill_frame` has them."""
    return _table(_BILL, bill_rows(model))


def rate_table(model: ModelEstimate, curves: Sequence[SavingCurve], points: int = 41) -> pa.Table:
    """Columns requests_per_hour, lifetime, saving, saving_share, kind: a line for each lifetime,
    its break-evens within the picture, and where the workload stands."""
    lines = [(*row, LINE) for row in rate_rows(model, points, curves)]
    rates = [row[0] for row in lines]
    within = (min(rates), max(rates)) if rates else (0.0, 0.0)
    marks = [
        (rate, lifetime, 0.0, 0.0, BREAK_EVEN)
        for lifetime, rate in break_even_rows(curves, *within)
    ]
    here = (model.workload.requests_per_hour, None, None, None, HERE)
    return _table(_RATES, [*lines, *marks, here])


def prefix_table(model: ModelEstimate, points: int = 24) -> pa.Table:
    """Columns prefix_tokens, lifetime, saving, kind: a line for each lifetime, the minimum, and
    where the workload stands."""
    rows = [(*row, LINE) for row in prefix_rows(model, points)]
    rows.append((model.workload.prefix_tokens, None, None, HERE))
    if model.rules.minimum:
        rows.append((model.rules.minimum.tokens, None, None, MINIMUM))
    return _table(_PREFIXES, rows)


def drivers_table(band: Band) -> pa.Table:
    """Columns driver, low, high, saving, order: the doubtful inputs that move the saving most."""
    rows = [
        (
            f"{driver.name} ({driver.varied}){', provider unsure' if driver.is_fact else ''}",
            float(driver.low),
            float(driver.high),
            float(band.saving),
            order,
        )
        for order, driver in enumerate(band.drivers[:DRIVERS_DRAWN])
    ]
    return _table(_DRIVERS, rows)


def _table(columns: pa.Schema, rows: Iterable[tuple]) -> pa.Table:
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    return pa.table(values, schema=columns)
