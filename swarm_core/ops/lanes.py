"""Chores that may hang: each runs in a thread of its own, and the next one begins whether or not it has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

PATIENCE = 2.0


class Lanes:
    """Called by one thread. A chore is waited for, but no longer than `patience`."""

    def __init__(self, *, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._threads: dict[Hashable, threading.Thread] = {}

    def do(self, key: Hashable, work: Callable[[], object]) -> None:
        """Do the work, unless the last one with this key is still under way."""
        if self.is_busy(key):
            return
        thread = self._threads[key] = threading.Thread(target=work, name=f"chore {key}", daemon=True)
        thread.start()
        thread.join(self._patience)

    def is_busy(self, key: Hashable) -> bool:
        self._threads = {k: thread for k, thread in self._threads.items() if thread.is_alive()}
        return key in self._threads

    def join(self, seconds: float) -> None:
        """Wait until all is done, for so long together."""
        deadline = time.monotonic() + seconds
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
