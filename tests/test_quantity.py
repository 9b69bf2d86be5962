import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvcore.quantity import Answer, Kind, QuantityError, parse


@pytest.mark.parametrize(
    ("typed", "kind", "value"),
    [
        ("1 GB", Kind.BYTES, 10**9),
        ("0.98 GiB", Kind.BYTES, 0.98 * 2**30),
        ("1,048,576,000 bytes", Kind.BYTES, 1_048_576_000),
        ("1 048 576 000 b", Kind.BYTES, 1_048_576_000),
        ("800KiB", Kind.BYTES, 819_200),
        ("1,05 GB", Kind.BYTES, 1.05e9),
        ("1e9 B", Kind.BYTES, 1e9),
        ("61", Kind.COUNT, 61),
        ("128k", Kind.COUNT, 128_000),
        ("61 users", Kind.COUNT, 61),
        ("16×", Kind.TIMES, 16),
        ("16 x", Kind.TIMES, 16),
        ("200 ms", Kind.SECONDS, 0.2),
        ("40 %", Kind.PERCENT, 40),
    ],
)
def test_what_people_type(typed, kind, value):
    assert parse(typed, kind) == pytest.approx(value)


@pytest.mark.parametrize(
    ("typed", "kind", "says"),
    [
        ("", Kind.BYTES, "not a number"),
        ("a lot", Kind.BYTES, "not a number"),
        ("1.05", Kind.BYTES, "unit is missing"),
        ("1 s", Kind.BYTES, "does not fit"),
        ("1.000,5 GB", Kind.BYTES, "more than one way"),
        ("1.2.3", Kind.COUNT, "more than one way"),
        ("9e999", Kind.COUNT, "too large"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(typed, kind, says):
    with pytest.raises(QuantityError, match=says):
        parse(typed, kind)


@given(st.text(max_size=30), st.sampled_from(Kind))
@example("1_000_0", Kind.COUNT)
def test_any_text_is_a_finite_number_or_a_sentence(typed, kind):
    try:
        assert math.isfinite(parse(typed, kind))
    except QuantityError as error:
        assert str(error).endswith(".")


@given(st.integers(0, 10**12))
def test_grouped_and_plain_numbers_are_the_same(number):
    assert parse(f"{number:,} bytes", Kind.BYTES) == parse(f"{number} B", Kind.BYTES) == number


def test_answers_have_a_tolerance():
    answer = Answer(Kind.BYTES, (1_048_576_000,))
    assert answer.accepts("1 GB")
    assert answer.accepts("1 GiB")
    assert not answer.accepts("2 GB")
    assert not answer.accepts("0.5 GiB")
