"""How often a chore may run: after each turn it pauses so long that it takes at most one percent of a core."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from swarm_core.ops import hanging

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
        """A turn that failed has cost what it has cost; waiting for a git that hung costs the others nothing."""
        began, lost = time.monotonic(), hanging.lost()
        try:
            yield
        finally:
            ended = time.monotonic()
            cost = ended - began - (hanging.lost() - lost)
            self.pause = max(self._least, cost * self._pause_per_cost)
            self._due = ended - cost + self.pause
