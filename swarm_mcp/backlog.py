"""Events whose call was answered before they could be written: kept in order, written by a thread of their own.

A kill loses what is here, so only events that record no effect may wait: reads, refusals and failures.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from swarm_core.contract import category
from swarm_core.errors import SwarmError
from swarm_core.store import events
from swarm_core.store.database import Database

MOST = 10_000
_AT_ONCE = 500
_PAUSE = 0.25

Telling = Callable[[Database], None]

log = logging.getLogger(__name__)


class Backlog:
    """Any thread may add. An event that finds the backlog full is counted, and an event tells of the count."""

    def __init__(self, db: Database, *, most: int = MOST) -> None:
        self._db = db
        self._most = most
        self._changed = threading.Condition()
        self._waiting: deque[Telling] = deque()
        self._dropped = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, tell: Telling) -> None:
        with self._changed:
            if len(self._waiting) >= self._most:
                self._dropped += 1
                return
            self._waiting.append(tell)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="backlog", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until everything is written; False when it is not after so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, seconds)

    def close(self, seconds: float) -> None:
        """Write what can be written in so many seconds, and say how much could not be."""
        if not self.flush(seconds):
            log.error("%d events of answered calls are lost: the database cannot be written", len(self._waiting))
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if self._closing:
                    return
                batch = [self._waiting[n] for n in range(min(len(self._waiting), _AT_ONCE))]
            written = self._write(batch)
            with self._changed:
                for _ in range(written):
                    self._waiting.popleft()
                self._changed.notify_all()
                if not written:
                    self._changed.wait_for(lambda: self._closing, _PAUSE)

    def _write(self, batch: list[Telling]) -> int:
        """Write the batch, or its first event when something is wrong with one; how many are done with."""
        try:
            self._commit(batch)
        except SwarmError as error:
            if category(error) == "database":  # locked, or no space is left: it will be written when it can be
                return 0
            if len(batch) > 1:
                return self._write(batch[:1])
            log.error("an event is lost: %s (%s)", error.message, error.code)
        except Exception:  # one event's bug must not keep those behind it
            if len(batch) > 1:
                return self._write(batch[:1])
            log.exception("an event is lost")
        return len(batch)

    def _commit(self, batch: list[Telling]) -> None:
        with self._db.write():
            for tell in batch:
                tell(self._db)
            dropped = self._dropped
            if dropped:
                events.add(self._db, "events:dropped", actor="coordinator", metadata={"count": dropped})
        with self._changed:
            self._dropped -= dropped
