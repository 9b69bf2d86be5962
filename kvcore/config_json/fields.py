"""Reading a config key by key, remembering where every value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvcore.architecture import FieldSource, Source
from kvcore.config_json.classes import ModelClass
from kvcore.config_json.errors import ConfigError

LARGEST = 10**9
"""No dimension, window or count in a real config is larger; one that is has been mistyped."""


class Fields:
    """One section of a config: typed reads, class defaults, and the sources of both."""

    def __init__(
        self, values: Mapping[str, object], model_class: ModelClass, path: str = ""
    ) -> None:
        self.values = values
        self.model_class = model_class
        self.path = path
        self.used: set[str] = set()
        self.sources: dict[str, FieldSource] = {}

    def name(self, key: str) -> str:
        """The key with its section, as the user sees it in the file."""
        return f"{self.path}.{key}" if self.path else key

    def error(self, key: str, sentence: str) -> ConfigError:
        return ConfigError(sentence.replace("{key}", f"“{self.name(key)}”"), self.name(key))

    def get(self, key: str) -> object:
        """The raw value, None when absent."""
        self.used.add(key)
        return self.values.get(key)

    def says(self, key: str) -> bool:
        """Whether the config itself gives the key a value other than null."""
        return self.values.get(key) is not None

    def whole(
        self,
        field: str,
        *keys: str,
        minimum: int = 1,
        assume: int | None = None,
        because: str = "",
        zero_is_absent: bool = False,
    ) -> int:
        """The first of `keys` that the config gives, else a class default, else `assume`.

        Raises ConfigError, naming the key, when the value is no whole number in range or when there
        is none.
        """
        found = self.maybe_whole(field, *keys, minimum=minimum, zero_is_absent=zero_is_absent)
        if found is not None:
            return found
        if assume is None:
            raise self.error(
                keys[0],
                f"The config has no {{key}}, and {field.replace('_', ' ')} cannot be guessed.",
            )
        self.record(field, assume, Source.ASSUMPTION, because)
        return assume

    def maybe_whole(
        self, field: str, *keys: str, minimum: int = 1, zero_is_absent: bool = False
    ) -> int | None:
        """As `whole`, but None when neither the config nor the class gives a value."""
        for key in keys:
            value = self.get(key)
            if value is None or (zero_is_absent and value == 0):
                continue
            number = self._checked(key, value, minimum)
            self.record(field, number, Source.CONFIG, self.name(key))
            return number
        for key in keys:
            value = None if key in self.values else self.model_class.default(key)
            if isinstance(value, int) and not isinstance(value, bool) and value >= minimum:
                self.record(
                    field, value, Source.CLASS_DEFAULT, f"{key} of {self.model_class.source}"
                )
                return value
        return None

    def _checked(self, key: str, value: object, minimum: int) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"{{key}} should be a whole number, but it is {shown(value)}.")
        if not minimum <= value <= LARGEST:
            raise self.error(
                key, f"{{key}} is {value}, but it should lie between {minimum} and {LARGEST:,}."
            )
        return value

    def truth(self, key: str, default: bool = False) -> bool:
        """A true/false key. Raises ConfigError when it is neither."""
        value = self.get(key)
        if value is None:
            value = self.model_class.default(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, f"{{key}} should be true or false, but it is {shown(value)}.")
        return value

    def words(self, key: str) -> list[str] | None:
        """A list of names, one a layer, or None when absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
            raise self.error(key, f"{{key}} should be a list of names, but it is {shown(value)}.")
        return list(value)

    def numbers(self, key: str, minimum: int = 0) -> list[int] | None:
        """A list of whole numbers, or None when absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise self.error(key, f"{{key}} should be a list of numbers, but it is {shown(value)}.")
        return [self._checked(key, each, minimum) for each in value]

    def section(self, key: str) -> Mapping[str, object] | None:
        """A nested object, or None when absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(key, f"{{key}} should be an object, but it is {shown(value)}.")
        return value

    def inside(self, key: str) -> Fields | None:
        """The fields of a nested object, without class defaults."""
        values = self.section(key)
        if values is None:
            return None
        return Fields(values, ModelClass(self.model_class.model_type), self.name(key))

    def record(self, field: str, value: object, source: Source, detail: str) -> None:
        self.sources[field] = FieldSource(field, value, source, detail)

    def unused(self) -> Iterator[str]:
        """Keys with a value that nothing has read."""
        return (key for key, value in self.values.items() if key not in self.used and value)


def shown(value: object) -> str:
    """A value as it may stand in a message: short, and on one line."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
