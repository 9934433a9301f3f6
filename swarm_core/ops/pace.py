"""How often a chore may run: after each turn it pauses so long that it takes at most one percent of a core."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

PAUSE_PER_COST = 100.0


class Pace:
    """`least` is the shortest time from one turn to the next, `pause` what it was after the last turn."""

    def __init__(self, least: float, *, pause_per_cost: float = PAUSE_PER_COST) -> None:
        self._least = least
        self._pause_per_cost = pause_per_cost
        self._due = 0.0
        self.pause = least

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """A turn that failed has cost what it has cost."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.pause = max(self._least, (time.monotonic() - began) * self._pause_per_cost)
            self._due = began + self.pause
