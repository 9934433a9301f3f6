"""The worker as the server sees it: how it is started, how calls get there, and what its last look found."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import multiprocessing
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from multiprocessing.process import BaseProcess
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError

from swarm_core.config import Settings
from swarm_core.errors import ExternalFailure, SwarmError
from swarm_core.ops.context import Report
from swarm_core.store.database import Database
from swarm_mcp.dispatch import Answer, Origin
from swarm_mcp.worker import process
from swarm_mcp.worker.frames import Frame, Frames

STALE_AFTER = 10.0
_ENDS_WITHIN = 12.0
_UNDONE_WITHIN = 10.0

log = logging.getLogger(__name__)


@contextlib.contextmanager
def started(
    settings: Settings, environ: Mapping[str, str], listening: socket.socket, *, checkpoint: Report
) -> Iterator[Worker]:
    """Run a worker for as long as the block lasts. It opens the database when `open` is called.

    Call this before the process has threads or a database open. A forked worker shares the memory of what was
    imported and keeps the coordinator's lock until it ends; on macOS forking is not safe, so it is started afresh.
    """
    forks = sys.platform == "linux"
    kind = multiprocessing.get_context("fork") if forks else multiprocessing.get_context("spawn")
    ours, theirs = socket.socketpair()
    control, controlled = socket.socketpair()
    inherited = [ours, control, listening] if forks else []
    gc.collect()
    gc.freeze()
    child = kind.Process(
        target=process.run,
        args=(settings, dict(environ), theirs, controlled, inherited, checkpoint),
        name="worker",
        daemon=True,
    )
    child.start()
    theirs.close()
    controlled.close()
    worker = Worker(child, ours, control)
    try:
        yield worker
    finally:
        worker.end()


class Worker:
    """Lives on the server's event loop, and as long as the server: when either ends, so does the other."""

    def __init__(self, child: BaseProcess, ours: socket.socket, control: socket.socket) -> None:
        self._child = child
        self._socket = ours
        self._control = control
        self._frames: Frames | None = None
        self._numbers = itertools.count(1)
        self._inboxes: dict[int, asyncio.Queue[Frame]] = {}
        self._looked: Frame = {}
        self._told_at = 0.0
        self._lost = False
        self.on_lost: Callable[[], None] = lambda: None

    def open(self) -> None:
        """Let the worker open the database and begin."""
        self._say(process.OPEN)

    def end(self) -> None:
        """Let the worker end in good order; kill it if that takes too long."""
        self._say(process.END)
        self._child.join(_ENDS_WITHIN)
        if self._child.is_alive():
            self._child.kill()
            self._child.join()
        self._control.close()
        self._socket.close()

    def raise_failure(self) -> None:
        """Raise if the worker ended before the server did."""
        if self._lost:
            self._child.join(_ENDS_WITHIN)
            raise ExternalFailure(f"the worker ended with exit code {self._child.exitcode}")

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Exchange frames with the worker while the block lasts."""
        self._frames = await Frames.over(self._socket)
        listening = asyncio.create_task(self._listen(self._frames))
        try:
            yield
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
            self._frames.close()
            self._frames = None

    # Calls

    async def call(self, origin: Origin, name: str, arguments: dict[str, Any]) -> Answer:
        """Have the worker carry out and record a call. Raises MCPError as the worker did, or INTERRUPTED."""
        number, inbox = next(self._numbers), asyncio.Queue[Frame]()
        self._inboxes[number] = inbox
        try:
            self._send({"call": number, "name": name, "arguments": arguments, **process.written(origin)})
            return _answer(await _last(inbox, origin))
        except asyncio.CancelledError:
            self._send({"cancel": number})
            with anyio.move_on_after(_UNDONE_WITHIN, shield=True):
                await _last(inbox)
            raise
        finally:
            del self._inboxes[number]

    def cancel(self, connection: str, request_id: str) -> None:
        """For `$/cancelRequest`: end a call with a CANCELLED result."""
        self._send({"stop": [connection, request_id]})

    def close(self, patience: float) -> None:
        """Have the worker take no more calls, and end those under way after so many seconds."""
        self._send({"close": patience})

    def wake(self) -> None:
        """Have open pull requests looked at now."""
        self._send({"wake": True})

    def _send(self, frame: Frame) -> None:
        if self._frames is not None and not self._lost:
            self._frames.send(frame)
        elif "call" in frame:
            self._inboxes[frame["call"]].put_nowait({"lost": True})

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # a worker that has ended is noticed by `_listen`
            self._control.sendall(word)

    async def _listen(self, frames: Frames) -> None:
        """Until the worker is gone, or says what nobody understands; without an answer to come the server ends."""
        try:
            while (frame := await frames.receive()) is not None:
                if "looked" in frame:
                    self._looked, self._told_at = frame["looked"], time.monotonic()
                elif (inbox := self._inboxes.get(frame["id"])) is not None:
                    inbox.put_nowait(frame)
        except asyncio.CancelledError:
            raise
        except Exception:  # nobody waits for this task
            log.exception("the worker cannot be heard")
        self._lost = True
        for inbox in self._inboxes.values():
            inbox.put_nowait({"lost": True})
        self.on_lost()

    # What its last look found

    @property
    def instances(self) -> int | None:
        return self._looked.get("instances")

    def age(self) -> float | None:
        """Seconds since the last look ended; None before the first one."""
        age = self._looked.get("age")
        return None if age is None else age + time.monotonic() - self._told_at

    def problem(self, db: Database) -> str | None:
        """Why the watching cannot be relied on now. Asks nothing of the database but which file it is."""
        try:
            db.check_file()
        except SwarmError as error:
            return f"{error.message} [{error.code}]"
        age = self.age()
        if age is None:
            return "the first look is not done yet"
        if age > STALE_AFTER:
            return f"the last look ended {age:.0f} s ago"
        problem: str | None = self._looked["problem"]
        return problem


async def _last(inbox: asyncio.Queue[Frame], origin: Origin | None = None) -> Frame:
    """Return a call's answer; pass its progress on until then."""
    while "progress" in (frame := await inbox.get()):
        if origin is not None and origin.progress is not None:
            await origin.progress(*frame["progress"])
    return frame


def _answer(frame: Frame) -> Answer:
    if "error" in frame:
        raise MCPError(*frame["error"])
    if "payload" not in frame:
        raise ExternalFailure(
            "the coordinator's worker ended in the middle of the call",
            code="INTERRUPTED",
            hint="look at what is there, then send the same call again: it takes effect once",
        )
    return Answer(frame["payload"], frame["is_error"])
