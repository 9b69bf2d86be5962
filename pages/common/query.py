"""Links carry settings; a setting a page cannot use is refused with a sentence, not swallowed.

Streamlit itself drops a bad value without a word and uses the default, so the raw parameters are
checked before the widgets that are bound to them run.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import streamlit as st

from pages.common.text import as_text


class Rule(Protocol):
    def problem(self, value: str) -> str | None:
        """What the value should have been, or None when it will do."""


@dataclass(frozen=True)
class Number:
    low: float
    high: float
    whole: bool = True

    def problem(self, value: str) -> str | None:
        kind = "a whole number" if self.whole else "a number"
        should = f"{kind} from {self.low:,g} to {self.high:,g}"
        try:
            number = float(value)
        except ValueError:
            return should
        if not math.isfinite(number) or (self.whole and not number.is_integer()):
            return should
        return None if self.low <= number <= self.high else should


@dataclass(frozen=True)
class Choice:
    options: tuple[str, ...]

    def problem(self, value: str) -> str | None:
        if value in self.options:
            return None
        shown = ", ".join(self.options[:8])
        return f"one of {shown}" if len(self.options) <= 8 else f"one of {shown} and others"


@dataclass(frozen=True)
class Named:
    """A choice shown under other names (`format_func`): option → name.

    Streamlit writes the name into the address and knows nothing else. A link may also carry the
    option itself, which is shorter and outlives a change of words; `check` translates it.
    """

    names: Mapping[Hashable, str]

    def problem(self, value: str) -> str | None:
        return Choice(tuple(self.names.values())).problem(value)

    def name(self, value: str) -> str | None:
        """The name of the option a link carries; None when it carries no option."""
        if value in self.names.values():
            return None
        return next((name for option, name in self.names.items() if str(option) == value), None)


@dataclass(frozen=True)
class Text:
    max_length: int

    def problem(self, value: str) -> str | None:
        return None if len(value) <= self.max_length else f"at most {self.max_length:,} characters"


def check(rules: Mapping[str, Rule]) -> None:
    """Say which parameters of the link are not used and what they should have been."""
    given = st.query_params.to_dict()
    asked = [(key, rule, given[key]) for key, rule in rules.items() if key in given]
    _write_names(asked)
    for key, rule, value in asked:
        problem = rule.problem(value)
        if problem:
            name = key.split("_", 1)[-1].replace("_", " ")
            st.warning(
                f"The link sets {as_text(name)} to “{as_text(value, 60)}”, which is not {problem}. "
                "The default is used instead."
            )


def _write_names(asked: Sequence[tuple[str, Rule, str]]) -> None:
    """Put the names of `Named` options into the address, where widgets look for them."""
    names = {key: rule.name(value) for key, rule, value in asked if isinstance(rule, Named)}
    translated = {key: name for key, name in names.items() if name is not None}
    if translated:
        st.query_params.update(translated)
        st.rerun()
