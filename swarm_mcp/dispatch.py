"""The one way a tool is called: validation, limits, permission, the thread it runs in, and what is recorded."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import anyio
import mcp_types as t
from mcp.shared.exceptions import MCPError

from swarm_core.config import SETTINGS, Settings
from swarm_core.errors import Cancelled, Denied, ExternalFailure, NotFound, SwarmError
from swarm_core.models import Instance, Principal, PrincipalKind
from swarm_core.ops.presence import Servers
from swarm_core.store import relationships, requests
from swarm_core.swarm import Swarm
from swarm_mcp import contract, permissions, registry
from swarm_mcp.call import Call, digest
from swarm_mcp.loop import LoopStore, Telling
from swarm_mcp.metrics import Metrics
from swarm_mcp.progress import Progress, Throttle
from swarm_mcp.registry import Tool

LONG_TIMEOUT = 600.0
_ENDS_WITHIN = 10.0
_TELL_AGAIN = 0.25
_MOST_UNTOLD = 10_000
_KEYS = ("swarm/idempotencyKey", "claudecode/toolUseId")

log = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a call comes from. `connection` tells two clients' equal request ids apart.

    Without a session nothing can: there, one principal's clients may use the same id at once.
    """

    principal: Principal
    connection: str
    request_id: str
    meta: dict[str, Any]
    progress: Progress | None = None
    in_session: bool = True


@dataclass(slots=True, eq=False)
class _Running:
    call: Call
    task: asyncio.Future[Any]
    throttle: Throttle | None
    origin: Origin

    def stop(self) -> None:
        """End the work and its programs; what is undone from now on is nobody's progress."""
        if self.throttle is not None:
            self.throttle.stop()
        self.call.scope.cancel()


class Dispatcher:
    """One per server process; lives on its event loop. Tools run in threads, so that one waiting stalls nobody."""

    def __init__(
        self,
        swarm: Swarm,
        settings: Settings,
        store: LoopStore,
        *,
        server: str,
        servers: Servers,
        metrics: Metrics,
    ) -> None:
        self._swarm = swarm
        self._store = store
        self._inline = swarm.on(store.db)
        self._server = server
        self._servers = servers
        self._metrics = metrics
        self._timeout_ms = settings.integer("tool_timeout_ms")
        self._max = settings.integer("queue_max")
        self._threads = ThreadPoolExecutor(self._max, thread_name_prefix="tool")
        self._patience = settings.number("busy_timeout")
        self.folders = (str(settings.home), str(settings.database_path.parent))
        self._running: list[_Running] = []
        self._untold: deque[Telling] = deque(maxlen=_MOST_UNTOLD)
        self._telling: asyncio.Task[None] | None = None
        self._closing = False
        self._unanswered = 0
        self._answered = asyncio.Event()

    @property
    def size(self) -> int:
        return len(self._running)

    def beat(self) -> None:
        """Every other second, so that it is known of a killed server which answers it still had to give."""
        self._servers.beat(self._server)

    async def call(self, origin: Origin, name: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        """Run one tool call. Whatever happens, one event tells of it; the answer is a result or an MCPError."""
        call = Call(self._swarm, origin.principal, name, arguments or {}, key=_key(origin.meta))
        self._unanswered += 1
        try:
            return await self._call(origin, call)
        except MCPError as error:
            code = str((error.error.data or {}).get("code", "INTERNAL_ERROR"))
            await self._record(call, code, error.error.message)
            raise
        except SwarmError as error:
            await self._record(call, error.code, error.message, error.details)
            about = call.about or (origin.principal.name if call.own else None)
            return contract.result(self._failure(call, error, about), is_error=True)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await self._record(call, "CANCELLED", "the client cancelled the call")
            raise
        except Exception as error:  # a bug in one tool is an answer to its caller, never the end of the server
            log.exception("the tool %s failed", name)
            await self._record(call, "INTERNAL_ERROR", type(error).__name__)
            bug = ExternalFailure(
                "a bug in swarm; its traceback is in the coordinator's log", code="INTERNAL_ERROR"
            )
            return contract.result(self._failure(call, bug, call.about), is_error=True)
        finally:
            self._metrics.called(name, call, known=name in registry.tools())
            self._unanswered -= 1
            self._answered.set()

    async def _call(self, origin: Origin, call: Call) -> dict[str, Any]:
        tool = registry.tools().get(call.tool)
        if tool is None:
            hint = "tools/list shows what there is"
            raise NotFound(f"there is no tool {call.tool[:80]!r}", code="NOT_FOUND", hint=hint)
        args = tool.parse(call.arguments)
        if tool.inline and not self._closing:
            return contract.result(await self._read(call, tool, args))
        self._admit(origin)
        throttle = Throttle(origin.progress) if origin.progress else None
        if throttle is not None:
            call.swarm = self._reporting(throttle)
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        future = loop.run_in_executor(self._threads, context.run, self._work, call, tool, args)
        running = _Running(call, future, throttle, origin)
        self._running.append(running)
        try:
            payload = await self._wait(running, self._limit(tool))
            if throttle is not None:
                await throttle.flush()
        finally:
            if throttle is not None:
                throttle.stop()
            self._running.remove(running)
        return contract.result(payload)

    async def _read(self, call: Call, tool: Tool, args: Any) -> dict[str, Any]:
        """On the event loop, which never waits."""
        call.swarm = self._inline
        checkpoint = self._swarm.context.checkpoint
        _permit(call, tool.name, None)
        checkpoint(f"{tool.name}:permitted")
        payload = tool.run(call, args, None)
        checkpoint(f"{tool.name}:ran")
        await self._store.write(call.tell, within=self._patience)
        call.finished = True
        checkpoint(f"{tool.name}:recorded")
        return payload

    def _work(self, call: Call, tool: Tool, args: Any) -> dict[str, Any]:
        """In a worker thread."""
        with call.scope.active():
            target = _target(call, tool, args)
            if target is not None:
                call.about, call.place = target.id, (target.repo_path, target.worktree_path)
            _permit(call, tool.name, target)
            call.swarm.context.checkpoint(f"{tool.name}:permitted")
            if tool.writes and self._claim(call, tool):
                assert call.claim is not None
                assert call.claim.result is not None
                call.swarm.context.checkpoint(f"{tool.name}:replayed")
                return call.claim.result
            payload = tool.run(call, args, target)
            call.swarm.context.checkpoint(f"{tool.name}:ran")
            if not call.finished:
                call.finish(payload)
            call.swarm.context.checkpoint(f"{tool.name}:recorded")
            return payload

    def _claim(self, call: Call, tool: Tool) -> bool:
        """Record the call before it does anything; True when its result is known from an earlier one."""
        with call.db.write():
            claim = requests.claim(
                call.db,
                principal=call.actor,
                tool=tool.name,
                digest=digest(tool.name, call.arguments),
                key=call.key,
                server=self._server,
                servers=self._servers,
                holds=functools.partial(tool.holds, call),
            )
            if claim.result is not None:
                call.tell_replay(claim)
        call.claim = claim
        call.finished = claim.result is not None
        return call.finished

    async def _wait(self, running: _Running, limit: float) -> Any:
        """The tool's result; when time is up or the client gives up, the work stops and its programs are ended."""
        try:
            done, _ = await asyncio.wait({running.task}, timeout=limit or None)
        except asyncio.CancelledError:
            await self._end(running)
            raise
        if not done:
            await self._end(running)
            if running.task.done() and running.call.finished:  # it was done before it heard that time was up
                return running.task.result()
            raise ExternalFailure(
                f"{running.call.tool} took longer than {limit:g} s and was ended",
                code="TOOL_TIMEOUT",
                hint="try again; `swarm doctor` says what may be slow",
                details={"timeoutMs": int(limit * 1000)},
            )
        try:
            return running.task.result()
        except Cancelled:
            if self._closing:
                raise _shutting_down() from None
            raise

    async def _end(self, running: _Running) -> None:
        """Stop the work and wait until it is undone, whether or not anybody still waits for the answer."""
        running.stop()
        running.task.add_done_callback(_heard)
        with anyio.CancelScope(shield=True):
            await asyncio.wait({running.task}, timeout=_ENDS_WITHIN)

    async def reading(self, origin: Origin, method: str, asked: dict[str, Any], read: Callable[[], _T]) -> _T:
        """Read what is no tool, for whoever may query and within a tool's limits; an event tells of a denial."""
        call = Call(self._swarm, origin.principal, method, asked)
        try:
            _permit(call, permissions.READ, None)
        except Denied as error:
            await self._record(call, error.code, error.message, error.details)
            raise
        self._admit(origin)

        def work() -> _T:
            with call.scope.active():
                return read()

        future = asyncio.get_running_loop().run_in_executor(self._threads, contextvars.copy_context().run, work)
        running = _Running(call, future, None, origin)
        self._running.append(running)
        try:
            return cast("_T", await self._wait(running, self._timeout_ms / 1000))
        finally:
            self._running.remove(running)

    def cancel(self, connection: str, request_id: str) -> bool:
        """For `$/cancelRequest`: the call ends with a CANCELLED result; True when there was such a call."""
        found = self._under_way(connection, request_id)
        for running in found:
            running.stop()
        return bool(found)

    def _under_way(self, connection: str, request_id: str) -> list[_Running]:
        asked = (connection, request_id)
        return [r for r in self._running if (r.origin.connection, r.origin.request_id) == asked]

    async def close(self, *, patience: float) -> None:
        """Take no more calls and let those in flight have their answers; after so many seconds they are ended."""
        self._closing = True
        await self._all_answered(patience)
        for left in self._running:
            left.stop()
        await self._all_answered(_ENDS_WITHIN)
        if self._telling is not None:
            self._telling.cancel()
            await self._tell()
        self._threads.shutdown(wait=False)

    async def _all_answered(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while self._unanswered:
                self._answered.clear()
                await self._answered.wait()

    def _admit(self, origin: Origin) -> None:
        if self._closing:
            raise _shutting_down()
        if len(self._running) >= self._max:
            said = f"{len(self._running)} calls are under way, {self._max} may be; try again in a moment"
            queue = {"max": self._max, "size": len(self._running)}
            raise contract.protocol_error(
                contract.QUEUE_OVERLOADED, "QUEUE_OVERLOADED", said, details={"queue": queue}
            )
        if origin.in_session and self._under_way(origin.connection, origin.request_id):
            raise contract.protocol_error(
                t.INVALID_REQUEST,
                "INVALID_REQUEST",
                f"request id {origin.request_id} is in use by a call that is under way",
            )

    def _limit(self, tool: Tool) -> float:
        """Seconds; a setting holds for every tool, only the default knows that some take long."""
        if tool.long and self._timeout_ms == SETTINGS["tool_timeout_ms"].default:
            return LONG_TIMEOUT
        return self._timeout_ms / 1000

    def _reporting(self, throttle: Throttle) -> Swarm:
        loop = asyncio.get_running_loop()

        def report(text: str) -> None:
            loop.call_soon_threadsafe(throttle.report, text)

        return self._swarm.reporting(report)

    async def _record(self, call: Call, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        """A failed call's event. While it cannot be written the answer goes out without it.

        What a call with a claim has finished may have been rolled back, so its row is asked.
        """
        if call.finished and call.claim is None:
            return
        call.code, call.spent = code, time.perf_counter() - call.began
        telling = functools.partial(call.tell_failure, message=message, details=details)
        try:
            await self._store.write(telling, within=0.0 if code == "DATABASE_LOCKED" else self._patience)
        except SwarmError as error:
            log.warning("no event yet for %s of %s (%s): %s", call.tool[:80], call.actor, code, error.code)
            if len(self._untold) == _MOST_UNTOLD:
                log.error("too many events wait to be written: the oldest of them is lost")
            self._untold.append(telling)
            if self._telling is None or self._telling.done():
                self._telling = asyncio.ensure_future(self._tell_later())

    def _failure(self, call: Call, error: SwarmError, about: str | None) -> dict[str, Any]:
        folders = (*self.folders, *call.place)
        return contract.failure(error, tool=call.tool, instance_id=about, folders=folders)

    async def _tell_later(self) -> None:
        while self._untold:
            await asyncio.sleep(_TELL_AGAIN)
            await self._tell()

    async def _tell(self) -> None:
        """Write the events that could not be written, as far as they can be now."""
        while self._untold:
            try:
                await self._store.write(self._untold[0])
            except SwarmError as error:
                if contract.category(error) == "database":
                    return
                log.warning("an event is lost: %s (%s)", error.message, error.code)
            self._untold.popleft()


def _target(call: Call, tool: Tool, args: Any) -> Instance | None:
    """What the call acts on; somebody who may never use the tool is told that and not what is there."""
    try:
        return tool.target(call, args)
    except SwarmError:
        if not permissions.may_call(tool.name, permissions.caller_of(call.principal), call.principal.scopes):
            _permit(call, tool.name, None)
        raise


def _heard(task: asyncio.Future[Any]) -> None:
    """How work ends that was told to stop is no news; asyncio would log what nobody has asked for."""
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, SwarmError):
        log.error("what was told to stop met a bug", exc_info=error)


def _shutting_down() -> ExternalFailure:
    return ExternalFailure("the server is shutting down", code="SHUTTING_DOWN", hint="try again in a moment")


def _permit(call: Call, tool: str, target: Instance | None) -> None:
    """Raises Denied unless a rule allows the call; the rule that decided is kept either way."""
    agent = call.principal.kind == PrincipalKind.INSTANCE
    links = relationships.of(call.db, target.id) if target is not None and agent else []
    relation = permissions.relation_of(call.principal.name, target, links)
    caller = permissions.caller_of(call.principal)
    try:
        call.rule = permissions.require(tool, caller, relation, call.principal.scopes, target)
    except Denied as error:
        call.rule = str(error.details["rule"])
        raise


def _key(meta: dict[str, Any]) -> str | None:
    for name in _KEYS:
        value = meta.get(name)
        if isinstance(value, str) and 0 < len(value) <= 200:
            return value
    return None
