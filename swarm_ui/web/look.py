"""Reading the database for the hub: what is new since the last look, as changes to tell."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from swarm_core.config import Settings
from swarm_core.errors import Conflict, ExternalFailure, SwarmError
from swarm_core.models import Event, parse_iso
from swarm_core.process import Card
from swarm_core.store import events
from swarm_core.store.database import Database
from swarm_core.store.schema import VERSION
from swarm_core.swarm import Swarm
from swarm_ui.web.frames import Change
from swarm_ui.web.state import PARTS, RECENT, News, State

BATCH = 500
EVERY = 0.08
ROWS_EVERY = 0.25
ROWS_SHARE = 3  # rows are read at most a third of the time
ROWS_AT_LEAST = 10.0
HEALTH_EVERY = 4.0
HEALTH_WAIT = 0.25  # seconds that a first page waits for it
FILE_EVERY = 0.5
AGAIN_AFTER = 0.5

log = logging.getLogger(__name__)


class Reads(Protocol):
    """Where rows come from; see rows.py."""

    def snapshot(self, swarm: Swarm, now: datetime) -> dict[str, Any]: ...
    def event(self, event: Event) -> dict[str, Any]: ...
    def health(self, swarm: Swarm, card: Card, *, viewers: int) -> dict[str, Any]: ...


class Look:
    """Any thread may look, one at a time; `tell` hears of changes in their order.

    Rows are read only while `rows_wanted`, or when somebody asks for `now`.
    """

    def __init__(
        self, swarm: Swarm, settings: Settings, card: Card, reads: Reads, tell: Callable[[Change], None]
    ) -> None:
        self.viewers = 0
        self.rows_wanted = False
        self._swarm = swarm
        self._path = settings.database_path
        self._card = card
        self._reads = reads
        self._tell = tell
        self._lock = threading.Lock()
        self._state = self._told = State()
        self._began = False
        self._connection = contextlib.ExitStack()
        self._db: Database | None = None
        self._version = -1
        self._rows_version = -2
        self._rows_due = self._rows_late = 0.0
        self._file_due = 0.0
        self._trouble: SwarmError | None = None
        self._health: Future[dict[str, Any] | None] | None = None
        self._health_due = 0.0
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="health")

    def now(self) -> State:
        """What is known, all of it as it is now. Raises what keeps it from being read."""
        with self._lock:
            if not self._attempt(asked=True):
                assert self._trouble is not None
                raise self._trouble
            return self._state

    def step(self) -> float:
        """Tell what is new; returns after how many seconds to look again."""
        with self._lock:
            return EVERY if self._attempt(asked=False) else AGAIN_AFTER

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._connection.close()

    def _attempt(self, *, asked: bool) -> bool:
        try:
            self._look(asked=asked)
        except SwarmError as error:
            self._fail(error)
            return False
        except Exception:  # whatever it is, the viewers must hear that they see old things
            log.exception("the dashboard could not read the database")
            self._fail(ExternalFailure("a bug in swarm keeps this page from being read; see the log"))
            return False
        return True

    def _look(self, *, asked: bool) -> None:
        now = time.monotonic()
        if asked or now >= self._file_due:
            self._swarm.context.db.check_file()
            self._file_due = now + FILE_EVERY
        if self._db is None:
            self._db = self._connection.enter_context(self._swarm.context.db.reader())
            self._version = -1
        if (version := self._db.data_version()) != self._version:
            self._check_schema(self._db)
            self._recover()
            self._events(self._db)
            self._version = version
        if asked or self.rows_wanted:
            late = self._rows_version != version
            if (late and (asked or now >= self._rows_due)) or now >= self._rows_late:
                self._rows(version)
            self._look_at_health(now, at_once=asked)
        if self._state is not self._told:
            self._post(Change("", None, self._state))

    def _check_schema(self, db: Database) -> None:
        row = db.row("PRAGMA user_version")
        if row is not None and int(row[0]) > VERSION:
            raise Conflict(
                f"{self._path} was written by a newer swarm (schema {row[0]}, this one knows {VERSION})",
                code="DATABASE_TOO_NEW",
                hint="`swarm down` and `swarm up` start the newer dashboard",
            )

    def _events(self, db: Database) -> None:
        if not self._began:
            recent = [self._reads.event(e) for e in events.newest(db, limit=RECENT)]
            self._state = self._state.after(recent)
            self._began = True
            return
        while found := events.after(db, self._state.last, limit=BATCH):
            told = [self._reads.event(e) for e in found]
            self._state = self._state.after(told)
            self._post(Change("events", told, self._state, found))
            if len(found) < BATCH:
                return

    def _rows(self, version: int) -> None:
        """The rows as they are at `version` or later; a change meanwhile has them read again."""
        begun = time.monotonic()
        assert self._db is not None
        swarm = self._swarm.on(self._db)
        found = self._reads.snapshot(swarm, parse_iso(self._db.now()))
        self._rows_version = version
        fixed: dict[str, Any] = {key: found[key] for key in ("repos", "version") if key in found}
        self._state = replace(self._state, fixed=fixed)
        self._apply(lambda state: state.with_rows(found["instances"]))
        for part in PARTS:
            if part in found and part != "health":
                self._apply(lambda state, part=part: state.with_part(part, found[part]))  # type: ignore[misc]
        took = time.monotonic() - begun
        self._rows_due = begun + max(ROWS_EVERY, took * ROWS_SHARE)
        self._rows_late = begun + max(ROWS_AT_LEAST, took * 100)

    def _look_at_health(self, now: float, *, at_once: bool) -> None:
        """It asks other processes, which may take their time: never in the way of events."""
        if self._health is None and now >= self._health_due:
            self._health_due = now + HEALTH_EVERY
            self._health = self._pool.submit(self._ask_health)
        if self._health is None:
            return
        if at_once and "health" not in self._state.parts:
            futures.wait([self._health], timeout=HEALTH_WAIT)
        if self._health.done():
            found, self._health = self._health.result(), None
            if found is not None:
                self._apply(lambda state: state.with_part("health", found))

    def _ask_health(self) -> dict[str, Any] | None:
        try:
            return self._reads.health(self._swarm, self._card, viewers=self.viewers)
        except Exception:  # a page without news of health is better than none
            log.exception("the dashboard could not tell how swarm is")
            return None

    def _fail(self, error: SwarmError) -> None:
        """Say so once; the connection is made anew, because it may be the trouble."""
        if self._trouble is None or self._trouble.message != error.message:
            log.warning("the dashboard cannot read the database: %s", error.message)
        self._trouble = error
        self._connection.close()
        self._db, self._version, self._rows_version = None, -1, -2
        health = dict(self._state.parts.get("health") or {})
        problem = {"problem": error.message, "code": error.code, "hint": error.hint}
        health["database"] = {"path": str(self._path), **(health.get("database") or {}), **problem}
        self._apply(lambda state: state.with_part("health", health))

    def _recover(self) -> None:
        if self._trouble is None:
            return
        log.warning("the dashboard reads the database again")
        self._trouble, self._health_due = None, 0.0
        health = dict(self._state.parts["health"])
        health["database"] = {**health["database"], "problem": None, "code": None, "hint": None}
        self._apply(lambda state: state.with_part("health", health))

    def _apply(self, step: Callable[[State], tuple[State, list[News]]]) -> None:
        self._state, news = step(self._state)
        for name, data in news:
            self._post(Change(name, data, self._state, trouble=self._trouble is not None))

    def _post(self, change: Change) -> None:
        assert change.state is not None
        self._told = change.state
        self._tell(change)
