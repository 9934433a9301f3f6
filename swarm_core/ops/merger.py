"""Working off the merge queue in the background: a check may take long, so nothing else waits for it."""

from __future__ import annotations

import logging
import threading

from swarm_core import cancel
from swarm_core.errors import Cancelled, SwarmError
from swarm_core.ops import merging, queue
from swarm_core.ops.context import Context
from swarm_core.store import pulls
from swarm_core.store import queue as store

_TICK = 2.0
_AGAIN_AFTER = 30.0

log = logging.getLogger(__name__)


class Merger:
    """One per database, in the coordinator. `run` returns after `stop`, which also ends a check that runs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stop = threading.Event()
        self._scope = cancel.Scope()
        self._seen: object = None
        self._idle = 0.0

    def stop(self) -> None:
        self._stop.set()
        self._scope.cancel()

    def run(self) -> None:
        with self._scope.active():
            while not self._stop.is_set():
                try:
                    self.look()
                except Cancelled:
                    return
                except SwarmError as error:
                    log.warning("the merge queue waits: %s (%s)", error.message, error.code)
                except Exception:  # the merger must outlive its own bugs; the traceback is kept
                    log.exception("the merger met a bug")
                self._stop.wait(_TICK)

    def look(self) -> None:
        """Work the queue off at once when it has changed, else now and then: what hinders a merge may be over."""
        merging.merge_asked(self._context)
        now = self._state()
        if not now or (now == self._seen and self._idle < _AGAIN_AFTER):
            self._idle += _TICK
            return
        self._seen, self._idle = now, 0.0
        queue.run(self._context)
        self._seen = self._state()

    def _state(self) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for entry in store.waiting(self._context.db):
            pull = pulls.get(self._context.db, entry.pull_id)
            found.append((entry.id, pull.state, pull.head_commit, pull.draft, pull.mergeable))
        return found
