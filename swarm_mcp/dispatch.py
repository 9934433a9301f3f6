"""The one way a tool is called: validation, limits, permission, the thread it runs in, and what is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import anyio
import mcp_types as t
from mcp.shared.exceptions import MCPError

from swarm_core import cancel
from swarm_core.config import Settings
from swarm_core.errors import Cancelled, Denied, ExternalFailure, InvalidRequest, NotFound, SwarmError
from swarm_core.models import Instance, Principal, PrincipalKind
from swarm_core.ops.presence import Servers
from swarm_core.store import relationships, requests, tokens
from swarm_core.swarm import Swarm
from swarm_mcp import contract, permissions, registry
from swarm_mcp.call import Call, digest
from swarm_mcp.loop import LoopStore
from swarm_mcp.metrics import Metrics
from swarm_mcp.progress import Progress, Throttle
from swarm_mcp.receipts import Receipts
from swarm_mcp.registry import Tool

LONG_TIMEOUT = 600.0
_ENDS_WITHIN = 10.0
_UNDONE_WITHIN = 1.5
_TOLD_WITHIN = 0.25
_READ_PATIENCE = 0.5
_ON_LOOP = 0.004
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.01
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

    @property
    def asked(self) -> tuple[str, str]:
        """What tells its request from others that are under way."""
        return self.connection, self.request_id


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool returned, or the body of its error."""

    payload: dict[str, Any]
    is_error: bool = False


class Worker(Protocol):
    """Carries out and records calls in another process."""

    async def call(self, origin: Origin, name: str, arguments: dict[str, Any]) -> Answer: ...

    def cancel(self, connection: str, request_id: str) -> None: ...

    def close(self, patience: float) -> None: ...


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
    """One per server process; lives on its event loop. Tools run in threads, so that one waiting stalls nobody.

    Small calls run on the event loop, unless `on_loop` is off. With a `worker` all others run there: threads that
    compute would keep the event loop from Python's interpreter.
    """

    def __init__(
        self,
        swarm: Swarm,
        settings: Settings,
        store: LoopStore,
        *,
        server: str,
        servers: Servers,
        metrics: Metrics,
        on_loop: bool = True,
        worker: Worker | None = None,
    ) -> None:
        self._swarm = swarm
        self._store = store
        self._inline = swarm.on(store.db)
        self._server = server
        self._servers = servers
        self._metrics = metrics
        self._timeout_ms = settings.integer("tool_timeout_ms")
        self._settings = settings
        self._max = settings.integer("queue_max")
        self._threads = ThreadPoolExecutor(self._max, thread_name_prefix="tool")
        self._receipts = Receipts(store.db)
        self._patience = settings.number("busy_timeout")
        self.folders = settings.own_folders
        self._on_loop = on_loop
        self._worker = worker
        self._running: list[_Running] = []
        self._handed_on: Counter[tuple[str, str]] = Counter()
        self._closing = False
        self._unanswered = 0
        self._answered = asyncio.Event()

    @property
    def size(self) -> int:
        return len(self._running) + self._handed_on.total()

    def capabilities(self) -> dict[str, dict[str, bool]]:
        """What this installation can do, so that a client can adapt."""
        return self._swarm.capabilities()

    def beat(self) -> None:
        """Every other second, so that it is known of a killed server which answers it still had to give."""
        self._servers.beat(self._server)

    async def call(self, origin: Origin, name: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        """Run one tool call and return its result as it goes over the wire."""
        answer = await self.carry_out(origin, name, arguments)
        return contract.result(answer.payload, is_error=answer.is_error)

    async def carry_out(self, origin: Origin, name: str, arguments: dict[str, Any] | None) -> Answer:
        """Run one tool call. Whatever happens, one event tells of it; raises only MCPError."""
        call = Call(self._swarm, origin.principal, name, arguments or {}, key=_key(origin.meta))
        self._unanswered += 1
        try:
            return await self._call(origin, call)
        except MCPError as error:
            await self._record(call, contract.code_of(error.error), error.error.message)
            raise
        except SwarmError as error:
            await self._record(call, error.code, error.message, error.details)
            about = call.about or (origin.principal.name if call.own else None)
            return Answer(self._failure(call, error, about), is_error=True)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await self._record(call, "CANCELLED", "the client cancelled the call")
            raise
        except Exception as error:  # a bug in one tool is an answer to its caller, never the end of the server
            log.exception("the tool %s failed", name)
            await self._record(call, "INTERNAL", type(error).__name__)
            return Answer(self._failure(call, contract.bug(), call.about), is_error=True)
        finally:
            self._metrics.called(name, call, known=name in registry.tools())
            self._unanswered -= 1
            self._answered.set()

    async def refused(self, principal: Principal, params: Any, error: t.ErrorData) -> None:
        """Record a call that was refused before it could be dispatched."""
        given = params if isinstance(params, dict) else {}
        name = given.get("name")
        call = Call(self._swarm, principal, name if isinstance(name, str) else "", given.get("arguments", {}))
        await self._record(call, str(error.data["code"]), error.message)
        self._metrics.called(call.tool, call, known=call.tool in registry.tools())

    async def _call(self, origin: Origin, call: Call) -> Answer:
        tool = registry.tools().get(call.tool)
        if tool is None:
            hint = "tools/list shows what there is"
            raise NotFound(f"there is no tool {call.tool[:80]!r}", code="NOT_FOUND", hint=hint)
        args = tool.parse(call.arguments)
        if self._on_loop and not self._closing and origin.progress is None:
            self._require_free_id(origin, tool.name)
            payload = None
            if tool.inline:
                payload = await self._read(origin, call, tool, args)
            elif tool.quick(call.arguments):
                write = functools.partial(self._write, call, tool, args)
                payload = await self._here(origin, call, write, patience=self._patience)
                await self._store.synced()
            if payload is not None:
                return Answer(payload)
        if self._worker is not None:
            return await self._hand_on(self._worker, origin, call)
        self._admit(origin, tool.name)
        throttle = Throttle(origin.progress) if origin.progress else None
        if throttle is not None:
            call.swarm = self._reporting(throttle)
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        future = loop.run_in_executor(self._threads, context.run, self._work, call, tool, args)
        running = _Running(call, future, throttle, origin)
        self._running.append(running)
        try:
            payload = await self._wait(running, time_limit(self._settings, tool))
            if throttle is not None:
                await throttle.flush()
        finally:
            if throttle is not None:
                throttle.stop()
            self._running.remove(running)
        return Answer(await tool.after(call, payload, self._receipts))

    async def _hand_on(self, worker: Worker, origin: Origin, call: Call) -> Answer:
        """Have the worker carry out the call; it records what becomes of it."""
        if self._closing:
            raise _shutting_down()
        self._require_free_id(origin, call.tool)
        self._handed_on[origin.asked] += 1
        call.finished = True
        try:
            answer = await worker.call(origin, call.tool, call.arguments)
        except MCPError as error:
            call.code = contract.code_of(error.error)
            raise
        except SwarmError as error:
            call.code = error.code
            raise
        except asyncio.CancelledError:
            call.code = "CANCELLED"
            raise
        finally:
            self._handed_on[origin.asked] -= 1
            self._handed_on += Counter()  # without what is at zero
        call.code = str(answer.payload["code"]) if answer.is_error else None
        return answer

    async def _read(self, origin: Origin, call: Call, tool: Tool, args: Any) -> dict[str, Any] | None:
        """On the event loop; None when the read takes so long that it is for a thread."""
        checkpoint = self._swarm.context.checkpoint

        def read() -> dict[str, Any]:
            _permit(call, tool.name, None)
            checkpoint(f"{tool.name}:permitted")
            with cancel.Scope(cpu_seconds=_ON_LOOP).active():
                found: dict[str, Any] = tool.run(call, args, None)
                return found

        try:
            payload = await self._here(origin, call, read, patience=_READ_PATIENCE)
        except Cancelled:
            call.scope.check()
            call.swarm = self._swarm
            return None
        checkpoint(f"{tool.name}:ran")
        call.ended()
        self._store.note(call.tell)
        call.finished = True
        checkpoint(f"{tool.name}:recorded")
        return payload

    async def _here(
        self, origin: Origin, call: Call, work: Callable[[], dict[str, Any]], *, patience: float
    ) -> dict[str, Any]:
        """Run a small call on the event loop; try again later while another process writes for longer."""
        call.swarm = self._inline
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + patience, _FIRST_PAUSE
        with contextlib.ExitStack() as stack:
            while True:
                call.scope.check()
                call.may_wait = loop.time() < deadline
                try:
                    return work()
                except SwarmError as error:
                    if error.code != "DATABASE_LOCKED" or not call.may_wait:
                        raise
                if pause == _FIRST_PAUSE:
                    stack.enter_context(self._under_way_as(_Running(call, loop.create_future(), None, origin)))
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _write(self, call: Call, tool: Tool, args: Any) -> dict[str, Any]:
        """Claim, effect, result and event in one transaction: it has happened, or nothing has."""
        try:
            with call.db.write():
                return self._work(call, tool, args)
        except BaseException:
            call.claim, call.finished = None, False
            raise

    @contextlib.contextmanager
    def _under_way_as(self, running: _Running) -> Iterator[None]:
        self._admit(running.origin, running.call.tool)
        self._running.append(running)
        try:
            yield
        finally:
            self._running.remove(running)

    def _work(self, call: Call, tool: Tool, args: Any) -> dict[str, Any]:
        """In a worker thread, unless the call is quick."""
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
            payload: dict[str, Any] = tool.run(call, args, target)
            call.swarm.context.checkpoint(f"{tool.name}:ran")
            if not tool.writes:
                self._tell_read(call)
            elif not call.finished:
                call.finish(payload)
            call.swarm.context.checkpoint(f"{tool.name}:recorded")
            return payload

    def _tell_read(self, call: Call) -> None:
        """A read that has its answer waits a moment for its event and goes out without it while it cannot be
        written."""
        call.swarm.context.checkpoint(f"{call.tool}:recording")
        call.ended()
        self._store.backlog.add(call.tell)
        call.finished = True
        self._store.backlog.flush(_TOLD_WITHIN)

    def _claim(self, call: Call, tool: Tool) -> bool:
        """Record the call before it does anything; True when its result is known from an earlier one."""
        with call.db.write():
            _require_token(call)
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
            raise _timed_out(running, limit)
        try:
            return running.task.result()
        except Cancelled:
            if self._closing:
                raise _shutting_down() from None
            raise

    async def _end(self, running: _Running) -> None:
        """Stop the work and wait a moment until it is undone, whether or not anybody still waits for the answer.

        The record is undone at once; a program that hangs may keep the rest waiting, which then goes on by itself.
        """
        running.stop()
        running.task.add_done_callback(_heard)
        with anyio.CancelScope(shield=True):
            await asyncio.wait({running.task}, timeout=_UNDONE_WITHIN)

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
        asked = (connection, request_id)
        found = [one for one in self._running if one.origin.asked == asked]
        for running in found:
            running.stop()
        if self._worker is not None and self._handed_on[asked]:
            self._worker.cancel(connection, request_id)
            return True
        return bool(found)

    async def close(self, *, patience: float) -> None:
        """Take no more calls and let those in flight have their answers; after so many seconds they are ended."""
        self._closing = True
        self._receipts.close()
        if self._worker is not None:
            self._worker.close(patience)
        await self._all_answered(patience)
        for left in self._running:
            left.stop()
        await self._all_answered(_ENDS_WITHIN)
        self._threads.shutdown(wait=False)

    async def _all_answered(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while self._unanswered:
                self._answered.clear()
                await self._answered.wait()

    def _admit(self, origin: Origin, tool: str | None = None) -> None:
        if self._closing:
            raise _shutting_down()
        if len(self._running) >= self._max:
            too_many = ExternalFailure(
                f"{len(self._running)} calls are under way, {self._max} may be",
                code="QUEUE_OVERLOADED",
                hint="try again in a moment",
                details={"queue": {"max": self._max, "size": len(self._running)}},
            )
            raise contract.protocol_error(contract.QUEUE_OVERLOADED, too_many, tool=tool)
        self._require_free_id(origin, tool)

    def _require_free_id(self, origin: Origin, tool: str | None) -> None:
        asked = origin.asked
        if origin.in_session and (self._handed_on[asked] or any(r.origin.asked == asked for r in self._running)):
            taken = InvalidRequest(f"request id {origin.request_id} is in use by a call that is under way")
            raise contract.protocol_error(t.INVALID_REQUEST, taken, tool=tool)

    def _reporting(self, throttle: Throttle) -> Swarm:
        loop = asyncio.get_running_loop()

        def report(text: str) -> None:
            loop.call_soon_threadsafe(throttle.report, text)

        return self._swarm.reporting(report)

    async def _record(self, call: Call, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        """A failed call's event. The answer goes out without it while it cannot be written.

        What a call with a claim has finished may have been rolled back, so its row is asked; and it is closed
        before the answer, or a retry would be told that the call is still under way.
        """
        if call.finished and call.claim is None:
            return
        call.code = code
        call.ended()
        telling = functools.partial(call.tell_failure, message=message, details=details)
        if call.claim is None or code == "DATABASE_LOCKED":
            self._store.note(telling)
            return
        try:
            await self._store.write(telling, within=self._patience)
        except SwarmError as error:
            log.warning("no event yet for %s of %s (%s): %s", call.tool[:80], call.actor, code, error.code)
            self._store.backlog.add(telling)

    def _failure(self, call: Call, error: SwarmError, about: str | None) -> dict[str, Any]:
        folders = (*self.folders, *call.place)
        return contract.failure(error, tool=call.tool, instance_id=about, folders=folders)


def time_limit(settings: Settings, tool: Tool) -> float:
    """Seconds; what somebody has set holds for every tool, and only without that some may take long."""
    if tool.long and "tool_timeout_ms" not in settings.given:
        return LONG_TIMEOUT
    return settings.integer("tool_timeout_ms") / 1000


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


def _timed_out(running: _Running, limit: float) -> ExternalFailure:
    details: dict[str, Any] = {"timeoutMs": int(limit * 1000)}
    hint = "try again; `swarm doctor` says what may be slow"
    if not running.task.done():
        details["undoing"] = True
        hint = "the record is undone, so you can try again; what the call left behind is removed later"
    said = f"{running.call.tool} took longer than {limit:g} s and was ended"
    return ExternalFailure(said, code="TOOL_TIMEOUT", hint=hint, details=details)


def _shutting_down() -> ExternalFailure:
    return ExternalFailure("the server is shutting down", code="SHUTTING_DOWN", hint="try again in a moment")


def _permit(call: Call, tool: str, target: Instance | None) -> None:
    """Raises Denied unless a rule allows the call; the rule that decided is kept either way."""
    is_other = call.principal.kind == PrincipalKind.INSTANCE and target is not None and target.id != call.actor
    links = relationships.of(call.db, target.id) if target is not None and is_other else []
    relation = permissions.relation_of(call.principal.name, target, links)
    caller = permissions.caller_of(call.principal)
    try:
        call.rule = permissions.require(tool, caller, relation, call.principal.scopes, target)
    except Denied as error:
        call.rule = str(error.details["rule"])
        raise


def _require_token(call: Call) -> None:
    """An agent that has ended meanwhile changes nothing; inside the transaction that records the call."""
    who = call.principal
    if who.kind == PrincipalKind.INSTANCE and not tokens.has_valid(call.db, who.kind, who.name):
        raise Denied(
            f"the token of {who.name} was revoked while the call was under way",
            code="UNAUTHORIZED",
            hint=f"`swarm restart {who.name}` gives it a new one",
        )


def _key(meta: dict[str, Any]) -> str | None:
    for name in _KEYS:
        value = meta.get(name)
        if isinstance(value, str) and 0 < len(value) <= 200:
            return value
    return None
