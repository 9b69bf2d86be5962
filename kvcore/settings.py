"""What whoever runs the app may set: a few environment variables, read once, checked at start.

    python -m kvcore.settings      prints what holds here, or says in a sentence what is wrong

Everything has a default that suits one person at a laptop; docs/hosting.md says what to set where
others come. Variables of the libraries below keep their meaning: HF_ENDPOINT, HF_HOME,
HF_HUB_CACHE, HF_HUB_OFFLINE, and Streamlit's own STREAMLIT_….
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

MODELS = ("gpt2", "distilgpt2", "gpt2-medium", "smollm2")
"""The short names of `kvcore.decoding.known`; a test keeps the two alike."""

ON, OFF = ("on", "1", "true", "yes"), ("off", "0", "false", "no")


class SettingsError(ValueError):
    """A setting that cannot be used; `str(error)` names it and says what it should be."""


@dataclass(frozen=True)
class Settings:
    """What holds on this server.

    models: offered for live runs. hub: whether anything is fetched from the Hugging
    Face hub. max_waiting: measurements that may stand in the queue, the running one included.
    max_minutes: what one measurement may take. servers: `kvcore.serving.addresses`, unparsed.
    """

    models: tuple[str, ...] = MODELS
    hub: bool = True
    max_waiting: int = 20
    max_minutes: int = 120
    servers: str | None = None


@dataclass(frozen=True)
class Variable:
    """An environment variable, as it is documented."""

    name: str
    field: str
    should: str


VARIABLES = (
    Variable("WORKBENCH_MODELS", "models", f"names from {', '.join(MODELS)}, separated by commas"),
    Variable("WORKBENCH_HUB", "hub", "on or off"),
    Variable("WORKBENCH_MAX_WAITING", "max_waiting", "a whole number from 1 to 1000"),
    Variable("WORKBENCH_MAX_MINUTES", "max_minutes", "a whole number of minutes from 1 to 1440"),
    Variable("WORKBENCH_SERVERS", "servers", "off, or servers separated by commas"),
)
PREFIX = "WORKBENCH_"


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings of this process. Raises SettingsError; read once, so a restart changes them."""
    return read(os.environ)


def read(environment: Mapping[str, str]) -> Settings:
    """Settings from variables. Raises SettingsError for a bad value or an unknown name."""
    known = {variable.name: variable for variable in VARIABLES}
    found: dict[str, object] = {}
    for name, text in environment.items():
        if not name.startswith(PREFIX):
            continue
        if name not in known:
            raise SettingsError(f"There is no setting {name}; there are {', '.join(known)}.")
        variable = known[name]
        if text.strip():
            found[variable.field] = _value(variable, text.strip())
    return Settings(**found)


def _value(variable: Variable, text: str) -> object:
    readers = {
        "models": _models,
        "hub": _switch,
        "max_waiting": lambda text: _whole(text, 1_000),
        "max_minutes": lambda text: _whole(text, 1_440),
        "servers": _servers,
    }
    value = readers[variable.field](text)
    if value is None:
        raise SettingsError(f"{variable.name} should be {variable.should}, not {text[:80]!r}.")
    return value


def _models(text: str) -> tuple[str, ...] | None:
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    return names if names and set(names) <= set(MODELS) else None


def _switch(text: str) -> bool | None:
    if text.lower() in ON:
        return True
    return False if text.lower() in OFF else None


def _whole(text: str, most: int) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        return None
    return int(text) if 1 <= int(text) <= most else None


def _servers(text: str) -> str:
    """Checked by those who know the rules; an entry they cannot read is named by them."""
    from kvcore.serving.addresses import policy
    from kvcore.serving.errors import AddressError

    try:
        policy(text, app_is_local=False)
    except AddressError as error:
        raise SettingsError(str(error)) from None
    return text


def main() -> int:
    try:
        current = settings()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    for variable in VARIABLES:
        print(f"{variable.name:<24}{getattr(current, variable.field)}")
    return 0


assert {variable.field for variable in VARIABLES} == {field.name for field in fields(Settings)}

if __name__ == "__main__":
    sys.exit(main())
