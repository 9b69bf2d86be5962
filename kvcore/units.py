"""Numbers as people read them: one format for each unit, the same on every page."""

from __future__ import annotations

import math
from decimal import Decimal

GIB = 2**30
MIB = 2**20
KIB = 2**10
GB = 10**9


def gib(num_bytes: float) -> str:
    """Bytes as GiB (2**30) with two decimals, or MiB or KiB where that would read 0.00."""
    if abs(num_bytes) >= GIB / 100:
        return f"{num_bytes / GIB:,.2f} GiB"
    if abs(num_bytes) >= MIB:
        return f"{num_bytes / MIB:,.2f} MiB"
    if abs(num_bytes) >= KIB:
        return f"{num_bytes / KIB:,.1f} KiB"
    return f"{num_bytes:,.0f} B"


def mib(num_bytes: float) -> str:
    """Bytes as MiB (2**20) with two decimals, for sizes that are to be compared down a column."""
    return f"{num_bytes / MIB:,.2f} MiB"


def gb(num_bytes: float) -> str:
    """Bytes as decimal gigabytes, the unit on the box a GPU is sold in."""
    if abs(num_bytes) >= GB / 100:
        return f"{num_bytes / GB:,.2f} GB"
    if abs(num_bytes) >= 10**6:
        return f"{num_bytes / 10**6:,.2f} MB"
    return f"{num_bytes / 1000:,.2f} kB"


def ms(seconds: float) -> str:
    """Seconds as milliseconds with one decimal."""
    return f"{seconds * 1000:,.1f} ms"


def seconds(value: float) -> str:
    """A duration in the unit that needs no zeros: ms, s, min or h."""
    if value < 1:
        return ms(value)
    if value < 120:
        return f"{value:.1f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"


def times(ratio: float) -> str:
    """A ratio with one decimal, as in 3.4×."""
    return f"{ratio:,.1f}×"


def dollars(amount: Decimal | float) -> str:
    """Dollars, with cents below 1,000 and more digits below a cent; the sign stands first."""
    value = Decimal(amount)
    sign = "−" if value < 0 else ""
    size = abs(value)
    if size >= 1000:
        return f"{sign}${size:,.0f}"
    if size == 0 or size >= Decimal("0.01"):
        return f"{sign}${size:,.2f}"
    return f"{sign}${sig3(float(size))}"


def sig3(value: float) -> str:
    """Three significant digits, without an exponent, thousands separated."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.2e}")
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def count(value: float) -> str:
    """A whole number with thousands separated."""
    return f"{value:,.0f}"


def percent(share: float) -> str:
    """A share of one as a percentage with one decimal."""
    return f"{share * 100:.1f} %"
