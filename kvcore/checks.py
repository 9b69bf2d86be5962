"""Arguments that are not what they should be get one sentence, whatever type they have."""

from __future__ import annotations

import math
from numbers import Integral, Real


def is_whole(value: object) -> bool:
    """A Python or numpy integer; True and False are none."""
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def is_number(value: object) -> bool:
    """A real number of any kind, infinite ones included."""
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)


def is_finite(value: object) -> bool:
    return is_number(value) and not math.isinf(value)


def whole(name: str, value: object, least: int, error: type[Exception] = ValueError) -> None:
    """Raise `error` unless `value` is a whole number of at least `least`."""
    if not is_whole(value) or value < least:
        raise error(f"{name} must be at least {least} and a whole number, not {value!r}.")
