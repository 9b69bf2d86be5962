"""One measured figure and the limit it is held against."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """`value` in `unit`; it must reach `limit` when `at_least`, else stay at or below it."""

    name: str
    value: float
    limit: float
    unit: str = ""
    at_least: bool = True
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def line(self) -> str:
        sign = "≥" if self.at_least else "≤"
        verdict = "ok  " if self.holds else "MISS"
        return (
            f"{verdict} {self.name:<66} {self.value:>12,.3f} {self.unit:<6} {sign} {self.limit:g}"
        )

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "holds": self.holds}
