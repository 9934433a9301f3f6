"""The worker's own side: it watches the agents and carries out the calls that the server hands on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any

import mcp_types as t
from mcp.shared.exceptions import MCPError

from swarm_core import process
from swarm_core.config import Settings
from swarm_core.models import Principal
from swarm_core.ops.context import Report
from swarm_core.ops.presence import Servers
from swarm_core.swarm import Swarm
from swarm_mcp import contract
from swarm_mcp.dispatch import Dispatcher, Origin
from swarm_mcp.loop import LoopStore
from swarm_mcp.metrics import Metrics
from swarm_mcp.watch import Watch
from swarm_mcp.worker.frames import Frame, Frames

OPEN, END = b"o", b"e"
_TELL_EVERY, _TELL_FIRST = 0.5, 0.02
_BEAT_EVERY = 2.0

log = logging.getLogger(__name__)


def run(
    settings: Settings,
    environ: dict[str, str],
    frames: socket.socket,
    control: socket.socket,
    inherited: Sequence[socket.socket],
    checkpoint: Report,
) -> None:
    """Work until the server says so, and end at once when the server is gone.

    Signals are for the server: one that goes to the whole process group must not end calls under way. They are
    handled and not ignored, because the programs that are started here would inherit that.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_to_the_server)
    for one in inherited:
        one.close()
    sys.exit(process.finished(lambda: _run(settings, environ, frames, _Control(control), checkpoint)))


def _leave_to_the_server(number: int, frame: object) -> None:
    return


def written(origin: Origin) -> Frame:
    """An origin as it travels; progress comes back as frames."""
    who = origin.principal
    return {
        "principal": [who.kind, who.name, sorted(who.scopes)],
        "connection": origin.connection,
        "request_id": origin.request_id,
        "meta": origin.meta,
        "in_session": origin.in_session,
        "progress": origin.progress is not None,
    }


class _Control:
    """What the server says besides frames. A thread listens, so that its end is noticed whatever goes on here."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._opened = threading.Event()
        self._ending = threading.Event()
        threading.Thread(target=self._listen, name="control", daemon=True).start()

    def wait_to_open(self) -> bool:
        """Return when the server has opened the database; False when it ends instead."""
        self._opened.wait()
        return not self._ending.is_set()

    async def over(self) -> None:
        """Return when the worker has to end."""
        self._loop = asyncio.get_running_loop()
        if not self._ending.is_set():
            await self._over.wait()

    def end(self) -> None:
        self._ending.set()
        self._opened.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._over.set)

    def _listen(self) -> None:
        while said := self._control.recv(1):
            if said == OPEN:
                self._opened.set()
            else:
                self.end()
        os._exit(1)  # the server was killed: end as it did, and let the next one take up what was begun


def _run(
    settings: Settings, environ: dict[str, str], frames: socket.socket, control: _Control, checkpoint: Report
) -> None:
    process.log_to_stderr(settings.text("log_level"))
    if not control.wait_to_open():
        return
    with contextlib.ExitStack() as stack:
        swarm = stack.enter_context(Swarm.open(settings, environ, checkpoint=checkpoint))
        store = stack.enter_context(contextlib.closing(LoopStore(settings, swarm.context.db)))
        servers = Servers(settings.server_locks)
        me = stack.enter_context(servers.present())
        dispatcher = Dispatcher(
            swarm, settings, store, server=me, servers=servers, metrics=Metrics(), on_loop=False
        )
        watch = Watch(swarm.context)
        gc.set_threshold(20_000, 20, 20)
        sys.setswitchinterval(0.0005)
        with watch.watching(on_failure=control.end):
            asyncio.run(_serve(frames, control, dispatcher, watch))
        watch.raise_failure()


async def _serve(end: socket.socket, control: _Control, dispatcher: Dispatcher, watch: Watch) -> None:
    """Serve until the server ends it. Raises when a task fails, for without it nobody would be answered."""
    frames = await Frames.over(end)
    desk = _Desk(frames, dispatcher, watch)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in (desk.take_frames(), desk.tell_looks(), desk.beat())]
        await control.over()
        await dispatcher.close(patience=0)
        for task in tasks:
            task.cancel()
    frames.close()


class _Desk:
    """Takes the server's frames and sends the answers."""

    def __init__(self, frames: Frames, dispatcher: Dispatcher, watch: Watch) -> None:
        self._frames = frames
        self._dispatcher = dispatcher
        self._watch = watch
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._closing: asyncio.Task[None] | None = None

    async def take_frames(self) -> None:
        while (frame := await self._frames.receive()) is not None:
            if "call" in frame:
                number = frame["call"]
                self._calls[number] = asyncio.create_task(self._call(number, frame))
                await asyncio.sleep(0)  # a cancel that is read before the call has begun would find nothing
            elif "cancel" in frame:
                if (call := self._calls.get(frame["cancel"])) is not None:
                    call.cancel()
            elif "stop" in frame:
                self._dispatcher.cancel(*frame["stop"])
            elif "wake" in frame:
                self._watch.follower.wake()
            elif "close" in frame:
                self._closing = asyncio.create_task(self._dispatcher.close(patience=frame["close"]))

    async def tell_looks(self) -> None:
        """Tell the server what the last look found."""
        while True:
            state = self._watch.state()
            self._frames.send({"looked": state})
            await asyncio.sleep(_TELL_EVERY if state["age"] is not None else _TELL_FIRST)

    async def beat(self) -> None:
        while True:
            self._dispatcher.beat()
            await asyncio.sleep(_BEAT_EVERY)

    async def _call(self, number: int, frame: Frame) -> None:
        try:
            origin = self._origin(number, frame)
            answer = await self._dispatcher.carry_out(origin, frame["name"], frame["arguments"])
            self._answer(number, payload=answer.payload, is_error=answer.is_error)
        except MCPError as error:
            self._answer(number, error=[error.error.code, error.error.message, error.error.data])
        except asyncio.CancelledError:
            self._answer(number, cancelled=True)
            raise
        except Exception:  # what cannot be sent is an answer all the same, or its caller would wait for ever
            log.exception("the answer of %s cannot be sent", frame["name"])
            bug = contract.protocol_error(t.INTERNAL_ERROR, contract.bug(), tool=frame["name"]).error
            self._answer(number, error=[bug.code, bug.message, bug.data])
        finally:
            del self._calls[number]

    def _answer(self, number: int, **said: Any) -> None:
        self._frames.send({"id": number, **said})

    def _origin(self, number: int, frame: Frame) -> Origin:
        kind, name, scopes = frame["principal"]

        async def progress(count: float, text: str) -> None:
            self._answer(number, progress=[count, text])

        return Origin(
            principal=Principal(kind, name, frozenset(scopes)),
            connection=frame["connection"],
            request_id=frame["request_id"],
            meta=frame["meta"],
            progress=progress if frame["progress"] else None,
            in_session=frame["in_session"],
        )
