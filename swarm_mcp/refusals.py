"""Who was refused and why, written down without letting a flood fill the disk."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swarm_core import ids
from swarm_core.errors import SwarmError
from swarm_core.store import events
from swarm_core.store.database import Database

_WINDOW = 10.0
_MOST_IN_A_WINDOW = 20

log = logging.getLogger(__name__)

_Key = tuple[str, str, str | None, str | None, str]


@dataclass(slots=True)
class _Window:
    began: float
    written: int = 0
    counted: int = 0


class Refusals:
    """Writes down who was refused and why.

    A flood is a few events and a count, so that it cannot fill the disk. Each reason, and each principal, has a
    window of its own: a flood of one hides no other.
    """

    def __init__(self, db: Database, counted: Callable[[str], None]) -> None:
        self._db = db
        self._counted = counted
        self._windows: dict[_Key, _Window] = {}
        self._tasks: set[asyncio.Future[int]] = set()

    def add(
        self,
        reason: str,
        *,
        code: str = "UNAUTHORIZED",
        name: str | None = None,
        principal: str | None = None,
        event: str = "auth:refused",
        **facts: Any,
    ) -> None:
        """`name` is whose token it was, `principal` who it is that tried, where that is known.

        On the event loop the row is written by a thread.
        """
        self._counted(reason)
        self.flush()
        key = (reason, code, name, principal, event)
        window = self._windows.setdefault(key, _Window(time.monotonic()))
        if window.written < _MOST_IN_A_WINDOW:
            window.written += 1
            self._write(key, facts)
        else:
            window.counted += 1

    def flush(self) -> None:
        """Tell of those that were only counted, where their time is over."""
        now = time.monotonic()
        for key in [k for k, w in self._windows.items() if now - w.began > _WINDOW]:
            self._write_count(key)

    async def drain(self) -> None:
        for key in list(self._windows):
            self._write_count(key)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)

    def _write_count(self, key: _Key) -> None:
        window = self._windows.pop(key)
        if window.counted:
            self._write(key, {"count": window.counted})

    def _write(self, key: _Key, facts: dict[str, Any]) -> None:
        log.warning("refused: %s (token of %s, by %s) %s", key[0], key[2], key[3], facts)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._record(key, facts)
            return
        task = loop.run_in_executor(None, self._record, key, facts)
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._done, key))

    def _done(self, key: _Key, task: asyncio.Future[int]) -> None:
        self._tasks.discard(task)
        if task.result():
            self._windows.setdefault(key, _Window(time.monotonic())).counted += task.result()

    def _record(self, key: _Key, facts: dict[str, Any]) -> int:
        """How many refusals could not be written down."""
        reason, code, name, principal, event = key
        about = name or principal
        known = {"belonged_to": name, "principal": principal}
        try:
            with self._db.write():
                events.add(
                    self._db,
                    event,
                    instance_id=about if about and ids.is_id(about) else None,
                    actor=principal or "unknown",
                    error_code=code,
                    error_message=reason,
                    metadata=facts | {k: v for k, v in known.items() if v},
                )
        except SwarmError as error:
            log.warning("no event yet for a refused request (%s): %s", reason, error.code)
            return int(facts.get("count", 1))
        return 0
