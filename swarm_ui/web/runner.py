"""Carrying out what people ask for at the dashboard: accepted at once, done by a worker, told to all who look.

Every action is a row before it begins, so that the same key does nothing twice, also when the dashboard is killed
in between. What it had begun then is finished by the core, which records its steps itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from swarm_core import cancel
from swarm_core.errors import Cancelled, ExternalFailure, NotFound, SwarmError
from swarm_core.ops.presence import Servers
from swarm_core.store import events, requests
from swarm_core.store.requests import Request
from swarm_core.swarm import Swarm
from swarm_ui.web import endpoint

WORKERS = 8
WAITING = 64
KEPT = 200
_TOOL = "dashboard."
_TEXT = 500
_PATIENCE = 2.5
_ENDS_WITHIN = 5.0

log = logging.getLogger(__name__)

Frame = dict[str, Any]
Work = Callable[[Swarm], Mapping[str, Any]]


def nothing() -> None:
    """For an action that has nothing to be checked before it is accepted."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asks for: `check` raises what is certain to fail, `work` does it and returns its result."""

    name: str
    instance: str | None
    body: Mapping[str, Any]
    by: str
    work: Work
    check: Callable[[], None] = nothing
    key: str | None = None

    @property
    def tool(self) -> str:
        return f"{_TOOL}{self.name}"

    @property
    def digest(self) -> str:
        """The same for the same wish, whatever the order of its fields."""
        told = [self.name, self.instance, dict(self.body)]
        return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(slots=True, eq=False)
class _Running:
    """An action under way; `frame` is what is known of it, replaced as a whole."""

    wish: Wish
    request_id: int
    frame: Frame
    scope: cancel.Scope = field(default_factory=cancel.Scope)
    began: float = field(default_factory=time.monotonic)


class Runner:
    """Any thread may ask. `publish` is called by any thread too."""

    def __init__(
        self, swarm: Swarm, *, publish: Callable[[Frame], None], workers: int = WORKERS, waiting: int = WAITING
    ) -> None:
        self._swarm = swarm
        self._publish = publish
        self._most = workers + waiting
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="action")
        self._servers = Servers(swarm.context.settings.server_locks)
        self._presence = contextlib.ExitStack()
        self._server = ""
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._running: dict[int, _Running] = {}
        self._over: OrderedDict[int, Frame] = OrderedDict()
        self._closing = False

    def accept(self, wish: Wish) -> Frame:
        """The action, accepted, or the one that the same key has asked for before.

        Raises what `check` raises, KEY_REUSED for another wish with the same key, and QUEUE_OVERLOADED.
        """
        if not self.knows(wish):
            wish.check()
        with self._lock:
            claim = self._claim(wish)
            if isinstance(claim, dict):
                return claim
            frame = _frame(claim.id, wish, state="accepted")
            running = self._running[claim.id] = _Running(wish, claim.id, frame)
            self._publish(frame)
            context = contextvars.copy_context()
            future = self._pool.submit(context.run, self._work, running)
        future.add_done_callback(lambda done: self._end(running, done))
        return frame

    def get(self, action_id: str) -> Frame:
        """What is known of an action; also of one that an earlier dashboard was asked for."""
        number = int(action_id[2:]) if action_id.startswith("a_") and action_id[2:].isdecimal() else 0
        with self._lock:
            known = self._running[number].frame if number in self._running else self._over.get(number)
        if known is not None:
            return known
        row = requests.get(self._swarm.context.db, number) if 0 < number < 1 << 62 else None
        if row is None or not row.tool.startswith(_TOOL):
            raise NotFound(f"there is no action {action_id[:40]!r}", hint="actions are kept for a day")
        return self._told(row)

    @property
    def size(self) -> int:
        return len(self._running)

    async def close(self) -> None:
        """Take no more, let what is under way end; what takes long is told to stop and undoes itself."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            self._closing = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        if not self._all_ended(_PATIENCE):
            for running in list(self._running.values()):
                running.scope.cancel()
            self._all_ended(_ENDS_WITHIN)
        self._presence.close()

    def _all_ended(self, seconds: float) -> bool:
        with self._ended:
            return self._ended.wait_for(lambda: not self._running, timeout=seconds)

    def knows(self, wish: Wish) -> bool:
        """Whether the key has been used for this wish: then nothing is checked, its answer is known.

        Raises KEY_REUSED for another wish with the same key.
        """
        if wish.key is None:
            return False
        row = requests.of_key(self._swarm.context.db, wish.by, wish.key)
        if row is None:
            return False
        if (row.tool, row.digest) != (wish.tool, wish.digest):
            raise requests.key_reused()
        return row.state != "failed"

    def _claim(self, wish: Wish) -> requests.Claim | Frame:
        """Record the wish, or find what came of it before."""
        if self._closing:
            raise _shutting_down()
        db = self._swarm.context.db
        for running in self._running.values():
            if wish.key is not None and (running.wish.by, running.wish.key) == (wish.by, wish.key):
                if running.wish.digest != wish.digest:
                    raise requests.key_reused()
                return running.frame
        if len(self._running) >= self._most:
            raise ExternalFailure(
                f"{len(self._running)} actions are under way, {self._most} may be",
                code="QUEUE_OVERLOADED",
                hint="try again in a moment",
            )
        if not self._server:
            self._server = self._presence.enter_context(self._servers.present())
        with db.write():
            claim = requests.claim(
                db,
                principal=wish.by,
                tool=wish.tool,
                digest=wish.digest,
                key=wish.key,
                server=self._server,
                servers=self._servers,
                guess=False,
            )
            if claim.was_cut_off:
                error = self._error(_interrupted(), wish.instance)
                told = _frame(claim.id, wish, state="failed", error=error)
                requests.finish(db, claim.id, told)
                return told
            if wish.instance is not None and claim.result is None:
                requests.link(db, claim.id, wish.instance)
        return claim.result if claim.result is not None else claim

    def _work(self, running: _Running) -> Mapping[str, Any]:
        """In a worker thread."""
        self._tell(running, state="running")

        def report(text: str) -> None:
            self._tell(running, state="running", text=_printable(text))

        with running.scope.active():
            return running.wish.work(self._swarm.reporting(report))

    def _tell(self, running: _Running, **news: Any) -> None:
        running.frame = running.frame | news
        self._publish(running.frame)

    def _end(self, running: _Running, done: Future[Mapping[str, Any]]) -> None:
        """Write down how an action ended, then tell of it. Only what was not begun may be asked for again."""
        error: BaseException | None = None
        result: dict[str, Any] | None = None
        if done.cancelled():
            error = _shutting_down()
        elif (raised := done.exception()) is not None:
            stopped = isinstance(raised, Cancelled) and self._closing
            error = _shutting_down() if stopped else raised
        else:
            result = dict(done.result())
        if error is None:
            frame = _frame(running.request_id, running.wish, state="done", result=result)
        else:
            told = self._error(error, running.wish.instance)
            frame = _frame(running.request_id, running.wish, state="failed", error=told)
        undone = isinstance(error, SwarmError) and error.code == "SHUTTING_DOWN"
        try:
            self._record(running, frame, undone=undone)
        except SwarmError as trouble:
            log.warning("the end of %s is not recorded: %s (%s)", frame["id"], trouble.message, trouble.code)
        with self._lock:
            running.frame = frame
            self._over[running.request_id] = frame
            while len(self._over) > KEPT:
                self._over.popitem(last=False)
            del self._running[running.request_id]
            self._ended.notify_all()
        self._publish(frame)

    def _record(self, running: _Running, frame: Frame, *, undone: bool) -> None:
        db, wish, error = self._swarm.context.db, running.wish, frame.get("error") or {}
        with db.write():
            if undone:
                requests.fail(db, running.request_id)
            else:
                requests.finish(db, running.request_id, frame)
            events.add(
                db,
                "dashboard:acted",
                instance_id=wish.instance,
                actor=wish.by,
                tool_name=wish.name,
                error_code=error.get("code"),
                error_message=error.get("message"),
                duration_ms=round((time.monotonic() - running.began) * 1000, 3),
                metadata={"action": frame["id"]},
            )

    def _told(self, row: Request) -> Frame:
        """An action that this process has forgotten or never had."""
        if row.result is not None:
            return row.result
        name = row.tool.removeprefix(_TOOL)
        told = {"id": f"a_{row.id}", "name": name, "instance": row.instance_id, "by": row.principal}
        if row.state == "open" and self._servers.is_alive(row.server):
            return told | {"state": "running"}
        error = _shutting_down() if row.state == "failed" else _interrupted()
        return told | {"state": "failed", "error": self._error(error, row.instance_id)}

    def _error(self, error: BaseException, instance_id: str | None) -> Mapping[str, Any]:
        raised = error if isinstance(error, Exception) else RuntimeError(repr(error))
        told = endpoint.failure(raised, self._swarm.context.settings.own_folders)[1]
        return told | {"instance_id": instance_id}


def _frame(request_id: int, wish: Wish, **news: Any) -> Frame:
    return {"id": f"a_{request_id}", "name": wish.name, "instance": wish.instance, "by": wish.by, **news}


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:_TEXT])


def _interrupted() -> ExternalFailure:
    return ExternalFailure(
        "the dashboard was ended in the middle of it; what it had begun is carried out or undone",
        code="INTERRUPTED",
        hint="look at the instance before you ask for it again",
    )


def _shutting_down() -> ExternalFailure:
    return ExternalFailure("the dashboard is ending", code="SHUTTING_DOWN", hint="try again in a moment")
