"""Links carry settings; a setting a page cannot use is refused with a sentence, not swallowed.

Streamlit itself drops a bad value without a word and uses the default, or stops the page over it
(an infinite whole number, an empty choice where one is required). So the raw parameters are
checked before the widgets that are bound to them run, and what cannot be used is taken out of the
address.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.common.links import TITLES
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
        should = f"{kind} from {self.low:,.12g} to {self.high:,.12g}"
        try:
            number = float(value)
        except ValueError:
            return should
        if not math.isfinite(number) or (self.whole and not number.is_integer()):
            return should
        return None if self.low <= number <= self.high else should

    @staticmethod
    def is_infinite(value: str) -> bool:
        try:
            return math.isinf(float(value))
        except ValueError:
            return False


@dataclass(frozen=True)
class Choice:
    options: tuple[str, ...]

    def problem(self, value: str) -> str | None:
        if value in self.options:
            return None
        shown = ", ".join(self.options[:8])
        return f"one of {shown}" if len(self.options) <= 8 else f"one of {shown} and others"


@dataclass(frozen=True)
class Several:
    """Any number of choices, each a parameter of its own; an empty one stands for none at all."""

    options: tuple[str, ...]

    def problem(self, value: str) -> str | None:
        return Choice(self.options).problem(value) if value else None


@dataclass(frozen=True)
class Switch:
    def problem(self, value: str) -> str | None:
        return None if value.lower() in ("true", "false") else "true or false"


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
    """Say which parameters of the link are not used and what they should have been.

    The page begins again without those that a widget would stop over, and then says so.
    """
    given = {key: values for key in rules if (values := st.query_params.get_all(key))}
    _write_names(rules, given)
    problems = {key: problem for key in given if (problem := _problem(rules[key], given[key]))}
    sentences = [
        f"The link sets {name_of(key)} to “{as_text(value, 60)}”, which is not {should}. "
        + ("It is left out." if len(given[key]) > 1 and value in given[key] else _DEFAULT)
        for key, (value, should) in problems.items()
    ]
    unfit = [key for key in problems if _stops(rules[key], given[key])]
    if unfit:
        st.session_state[_SAID] = sentences
        _remove(unfit)
        st.rerun()
    for sentence in dict.fromkeys(st.session_state.pop(_SAID, []) + sentences):
        st.warning(sentence)


_SAID = "link_problems"
_DEFAULT = "The default is used instead."


def _problem(rule: Rule, values: Sequence[str]) -> tuple[str, str] | None:
    """What was given and what it should have been."""
    if len(values) > 1 and not isinstance(rule, Several):
        return " and ".join(values), "a single value"
    for value in values:
        problem = rule.problem(value)
        if problem:
            return value, problem
    return None


def _stops(rule: Rule, values: Sequence[str]) -> bool:
    """Whether the widget would stop the page, or use one of several values that it should not."""
    if isinstance(rule, Several):
        return False
    infinite = isinstance(rule, Number) and rule.is_infinite(values[0])
    return infinite or len(values) > 1 or values[0] == ""


def name_of(key: str) -> str:
    """The words of a key behind the name of its page."""
    page = next((page for page in TITLES if key.startswith(f"{page}_")), key.split("_")[0])
    return as_text(key.removeprefix(f"{page}_").replace("_", " "))


def _remove(keys: Sequence[str]) -> None:
    """Take parameters out of the address, those of widgets that have run before included.

    `del st.query_params[key]` refuses the latter.
    """
    with get_script_run_ctx().session_state.query_params() as parameters:
        for key in keys:
            parameters.remove_param(key)


def _write_names(rules: Mapping[str, Rule], given: Mapping[str, Sequence[str]]) -> None:
    """Put the names of `Named` options into the address, where widgets look for them."""
    translated = {
        key: name
        for key, values in given.items()
        if isinstance(rule := rules[key], Named) and len(values) == 1
        if (name := rule.name(values[0])) is not None
    }
    if translated:
        st.query_params.update(translated)
        st.rerun()
