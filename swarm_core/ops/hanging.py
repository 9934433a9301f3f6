"""Repositories whose git hangs: chores leave them alone for a while, so that the others get their turn."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Hashable, Iterator

from swarm_core import proc
from swarm_core.errors import TimedOut

SECONDS = 30.0
REST = 600.0

log = logging.getLogger(__name__)
_thread = threading.local()


class Hanging:
    """For any thread."""

    def __init__(self, *, seconds: float = SECONDS, rest: float = REST) -> None:
        self._seconds = seconds
        self._rest = rest
        self._until: dict[Hashable, float] = {}

    @contextlib.contextmanager
    def asking(self, repository: Hashable) -> Iterator[None]:
        """Ask git about a repository; its programs have `seconds`. Raises TimedOut at once while it rests."""
        began = time.monotonic()
        if began < self._until.get(repository, 0.0):
            raise TimedOut(f"git took too long in {repository}, which is left alone for now")
        try:
            with proc.within(self._seconds):
                yield
        except TimedOut:
            now = time.monotonic()
            self._until[repository] = now + self._rest
            _thread.lost = lost() + now - began
            log.warning("git hangs in %s; chores leave it alone for %g s", repository, self._rest)
            raise


def lost() -> float:
    """Seconds for which this thread has waited in vain, all together."""
    return float(getattr(_thread, "lost", 0.0))
