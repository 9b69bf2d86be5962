from decimal import Decimal

import pytest

from kvcore import units


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (2**30, "1.00 GiB"),
        (1_048_576_000, "0.98 GiB"),
        (819_200, "800.0 KiB"),
        (36_864, "36.0 KiB"),
        (80 * 2**30, "80.00 GiB"),
        (3 * 2**20, "3.00 MiB"),
        (12, "12 B"),
    ],
)
def test_gib_is_binary(num_bytes, text):
    assert units.gib(num_bytes) == text


def test_gb_is_decimal():
    assert units.gb(1_048_576_000) == "1.05 GB"
    assert units.gb(36_864) == "36.86 kB"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123, "12.3 ms"), (1.5, "1.5 s"), (1886, "31 min"), (7200, "2.0 h")],
)
def test_seconds_choose_their_unit(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Decimal("412"), "$412.00"),
        (Decimal("1234.56"), "$1,235"),
        (Decimal("-3.1"), "−$3.10"),
        (Decimal("0.0055649"), "$0.00556"),
        (Decimal(0), "$0.00"),
    ],
)
def test_dollars(amount, text):
    assert units.dollars(amount) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.0, "1,230"), (0.012345, "0.0123"), (9.999, "10.0"), (0, "0"), (5, "5.00")],
)
def test_three_significant_digits(value, text):
    assert units.sig3(value) == text


def test_times_and_percent_and_count():
    assert units.times(16) == "16.0×"
    assert units.percent(0.963) == "96.3 %"
    assert units.count(128_000) == "128,000"
