"""A measured number, the limit it has to keep, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """How thorough a run is; `rounds` overrides a subject's own number of repetitions."""

    quick: bool = False
    rounds: int | None = None

    def times(self, full: int, quick: int) -> int:
        return self.rounds or (quick if self.quick else full)


@dataclass(frozen=True, slots=True)
class Figure:
    """`limit` is the highest value that keeps the promise; None for a number that only explains another."""

    name: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def passed(self) -> bool:
        return self.limit is None or self.value <= self.limit

    @property
    def state(self) -> str:
        if self.limit is None:
            return "info"
        return "PASS" if self.passed else "FAIL"

    def cells(self) -> tuple[str, str, str, str, str]:
        """Name, value, limit, value as a part of the limit, state."""
        limit = "" if self.limit is None else f"{number(self.limit)} {self.unit}".strip()
        share = f"{self.value / self.limit:.2f}" if self.limit else ""
        return (self.name, f"{number(self.value)} {self.unit}".strip(), limit, share, self.state)


def number(value: float) -> str:
    if value == int(value):
        return str(int(value))
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}"
