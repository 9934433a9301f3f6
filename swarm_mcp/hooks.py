"""What agent programs report of themselves, `POST /hooks/{event}`: activity, receipts; replies carry messages."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from swarm_core import cancel
from swarm_core.agents import table
from swarm_core.agents.base import Agent, Reading
from swarm_core.errors import SwarmError
from swarm_core.hosts.base import FolderFacts
from swarm_core.hosts.pool import HostPool
from swarm_core.models import Activity, Instance, MessageState, Principal, Source
from swarm_core.ops import courier, dialogs, envelopes, isolation, touched
from swarm_core.store import events, instances, messages
from swarm_core.store.database import Database
from swarm_mcp import contract
from swarm_mcp.loop import LoopStore
from swarm_mcp.metrics import Metrics

BODY_MAX = 8 << 20
_DETAIL_MAX = 500
_REPLY_MAX = 32 << 10
_MOST_IN_A_ROW = 7  # Claude Code ends a turn by itself when hooks have prevented that nine times
_ANSWERED_WITHIN = 0.25
_TRIED_FOR = 5.0
_ASK_EVERY = 0.2
_LOOK_WITHIN = 1.0  # of the 3 seconds for which Claude Code waits
_MOST_UNWRITTEN = 10_000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Heard:
    """One report on its way into the database. `waits`: the agent still waits for the reply."""

    instance_id: str
    event: str
    agent: Agent
    reading: Reading | None
    prompt: str
    at: str
    done: asyncio.Future[None]
    waits: bool = True
    hold: str = ""
    about: str = ""
    of_subagent: bool = False
    denial: dict[str, Any] | None = None
    stray: touched.Stray | None = None
    call: str = ""
    named: list[touched.Stray] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)


class Hooks:
    """An agent waits for the answer, so it always gets one at once; what is not understood is ignored.

    What agents say is written down in the order it came, and later when the database is locked.
    """

    def __init__(self, store: LoopStore, metrics: Metrics, hosts: HostPool) -> None:
        self._store = store
        self._hosts = hosts
        self._metrics = metrics
        self._unwritten: list[_Heard] = []
        self._writing: asyncio.Task[None] | None = None
        self._in_a_row: dict[str, int] = {}
        self._commands = isolation.Commands()
        self._ending = False
        self._holding = 0

    async def answer(self, request: Request) -> JSONResponse:
        principal: Principal = request.scope["swarm.principal"]
        try:
            body = await _read(request)
        except (ValueError, RecursionError):
            self._metrics.hooks["unreadable"] += 1
            said = contract.refusal("INVALID_REQUEST", "a hook's body is a JSON object of at most 8 MB")
            return JSONResponse(said, status_code=400)
        except ClientDisconnect:
            self._metrics.hooks["unreadable"] += 1
            return JSONResponse({}, status_code=400)
        heard = self._hear(principal.name, request.path_params["event"], body)
        if heard is None:
            return JSONResponse({})
        await self._look(heard)
        await asyncio.wait({heard.done}, timeout=_ANSWERED_WITHIN)
        heard.waits = False
        if heard.denial is not None:
            return JSONResponse(heard.denial)
        if heard.hold and heard.done.done():
            return JSONResponse(await self._hold(heard, request))
        return JSONResponse(heard.reply)

    async def _look(self, heard: _Heard) -> None:
        """At the places that a command names, before it runs and when it has."""
        try:
            if heard.named and heard.denial is None:
                await self._look_before(heard)
            elif heard.call and heard.event in (isolation.AFTER, isolation.FAILED):
                await self._look_after(heard)
        except SwarmError as error:
            log.warning("what a command of %s changes is not known: %s", heard.instance_id, error.code)
        except Exception:  # the agent waits for its hook, whatever is wrong with those places
            log.exception("what a command of %s changes is not known", heard.instance_id)

    async def _look_before(self, heard: _Heard) -> None:
        at, event_id = self._store.db.now(), events.newest_id(self._store.db)
        states = await self._states(heard.named, heard.instance_id)
        sights = [
            isolation.Sight(one, now, at, event_id) for one, now in zip(heard.named, states, strict=True) if now
        ]
        self._commands.begin(heard.instance_id, heard.call, sights)

    async def _look_after(self, heard: _Heard) -> None:
        sights = self._commands.end(heard.instance_id, heard.call)
        if not sights:
            return
        states = await self._states([sight.found for sight in sights], heard.instance_id)
        tool = heard.reading.detail if heard.reading else ""

        def tell(db: Database) -> None:
            instance = instances.get(db, heard.instance_id)
            for sight, now in zip(sights, states, strict=True):
                if now is not None:
                    isolation.compare(db, instance, sight, now, tool=tool)

        await self._store.write(tell, within=_LOOK_WITHIN)

    async def _states(self, found: Sequence[touched.Stray], instance_id: str) -> list[FolderFacts | None]:
        """How places are now; None for one that cannot be read in time, and its git is ended."""
        host = self._hosts.get(instances.get(self._store.db, instance_id).host)
        scope = cancel.Scope()

        def read(folder: str) -> FolderFacts | None:
            with scope.active():
                try:
                    cancel.check()
                    return host.folder_state(folder)
                except SwarmError as error:
                    log.warning(
                        "%s, which a command of %s names, cannot be read: %s", folder, instance_id, error.code
                    )
                    return None

        loop = asyncio.get_running_loop()
        reading = [loop.run_in_executor(None, read, one.folder) for one in found]
        await asyncio.wait(reading, timeout=_LOOK_WITHIN)
        scope.cancel()
        return [one.result() if one.done() else None for one in reading]

    async def _hold(self, heard: _Heard, request: Request) -> dict[str, Any]:
        """Wait until somebody answers the agent's dialog from here, or it is over, or we end."""
        self._holding += 1
        try:
            while not self._ending and not await request.is_disconnected():
                instance = instances.get(self._store.db, heard.instance_id)
                if not dialogs.is_held(instance, heard.hold):
                    break
                if '"answer"' in instance.blocked_on and (given := await self._take(heard)) is not None:
                    return heard.agent.permission_reply(heard.event, allow=given["allow"], why=given["why"])
                await asyncio.sleep(_ASK_EVERY)
        except SwarmError as error:
            log.warning("the dialog of %s is left to its screen: %s", heard.instance_id, error.code)
        finally:
            self._holding -= 1
        return {}

    async def _take(self, heard: _Heard) -> dict[str, Any] | None:
        taken: list[dict[str, Any] | None] = []

        def take(db: Database) -> None:
            taken.append(dialogs.take_answer(db, heard.instance_id, heard.hold))

        await self._store.write(take, within=_TRIED_FOR)
        return taken[-1]

    async def close(self) -> None:
        """Let go of the agents that wait for an answer; their dialogs stay on their screens."""
        self._ending = True
        deadline = asyncio.get_running_loop().time() + 1.0
        while self._holding and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_ASK_EVERY)

    def _hear(self, instance_id: str, event: str, body: dict[str, Any]) -> _Heard | None:
        """Queue what was said; None when there is nothing to write down."""
        try:
            instance = instances.get(self._store.db, instance_id)
            agent = table.get(instance.agent)
            reading = agent.read_hook(event, body)
            if reading is None or reading.activity == Activity.EXITED or instance.ended:
                self._metrics.hooks["ignored"] += 1  # an end is what the kernel says, and it says so at once
                return None
            Activity(reading.activity)
            stray = isolation.found_in(self._store.db, instance, agent, event, body)
            call = isolation.call_of(body, agent)
            named = isolation.named_in(self._store.db, instance, agent, body) if event == isolation.BEFORE else []
        except (SwarmError, ValueError, TypeError, AttributeError) as error:
            log.warning("the hook %s of %s could not be used: %s", event[:80], instance_id, error)
            self._metrics.hooks["failed"] += 1
            return None
        if len(self._unwritten) >= _MOST_UNWRITTEN:
            log.error("the database has been locked for too long: the hook %s of %s is lost", event, instance_id)
            self._metrics.hooks["failed"] += 1
            return None
        prompt = body.get("prompt")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        said = prompt if isinstance(prompt, str) else ""
        heard = _Heard(instance_id, event, agent, reading, said, self._store.db.now(), done)
        heard.of_subagent = bool(body.get("agent_id"))
        heard.call, heard.named = call, named
        if instance.budget_state == "held":
            heard.denial = agent.deny_reply(event, _OVER_BUDGET)
        elif stray is not None:
            heard.stray, heard.denial = stray, agent.deny_reply(event, isolation.refusal(instance, stray))
        if event in agent.ways.asks:
            heard.hold, heard.about = secrets.token_hex(8), agent.asks_about(body)
        self._metrics.hooks["observed"] += 1
        self._unwritten.append(heard)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return heard

    async def _write(self) -> None:
        while self._unwritten:
            heard = list(self._unwritten)
            try:
                await self._store.write(partial(self._record, heard=heard), within=_TRIED_FOR)
            except SwarmError as error:
                log.warning("what %d hooks said is not written yet: %s", len(heard), error.code)
                for one in heard:
                    one.reply = {}
                if error.code == "DATABASE_LOCKED":
                    continue
            except Exception:  # what one hook brought must not silence all that come after it
                log.exception("what %d hooks said could not be used", len(heard))
                for one in heard:
                    one.reply = {}  # what it carried was not recorded as handed over
            del self._unwritten[: len(heard)]
            for one in heard:
                if not one.done.done():
                    one.done.set_result(None)
        self._writing = None

    def _record(self, db: Database, heard: Sequence[_Heard]) -> None:
        for one in heard:
            one.reply = {}
            instance = instances.get(db, one.instance_id)
            if instance.ended:
                continue
            for message_id in envelopes.named_in(one.prompt):
                _see(db, instance, message_id)
            if one.stray is not None:
                tool = one.reading.detail if one.reading else ""
                isolation.record(db, instance, one.stray, tool=tool, denied=one.denial is not None)
            if one.waits:
                one.reply = self._reply(db, instance, one)
            _observe(db, instance, one)
            if one.hold and one.waits:
                dialogs.hold(db, instance.id, one.hold, one.about)

    def _reply(self, db: Database, instance: Instance, one: _Heard) -> dict[str, Any]:
        """What the agent is told in answer to the hook, recorded as handed over."""
        if one.event not in one.agent.ways.hooks or one.of_subagent:
            return {}  # a subagent would keep to itself what it is told
        idles = one.reading is not None and one.reading.activity == Activity.IDLE
        blocked = self._in_a_row.get(instance.id, 0) if idles else 0
        pending = messages.undelivered(db, instance.id, limit=20)
        under_way = any(m.state == MessageState.INJECTED for m in pending)  # nothing overtakes it
        if not pending or under_way or blocked >= _MOST_IN_A_ROW or _must_wait(db, pending[0].next_at):
            self._in_a_row.pop(instance.id, None)
            return {}
        text, taken = envelopes.join(pending, longest=_REPLY_MAX)
        reply = one.agent.hook_reply(one.event, text)
        if reply is None or not messages.inject(
            db, [m.id for m in taken], how=courier.how_of(one.event, instance)
        ):
            return {}
        self._in_a_row[instance.id] = blocked + 1
        return reply


_OVER_BUDGET = "the budget of this instance is used up: stop here and wait; a person was told and may raise it"


def _observe(db: Database, instance: Instance, one: _Heard) -> None:
    """A turn that was about to end goes on when a message is handed over."""
    assert one.reading is not None
    goes_on = one.reply and one.reading.activity == Activity.IDLE
    activity = Activity.BUSY if goes_on else Activity(one.reading.activity)
    said = "a message was handed over" if goes_on else one.reading.detail[:_DETAIL_MAX]
    detail = "".join(c if c.isprintable() else " " for c in said).strip()
    instances.observe(db, instance.id, activity, source=Source.HOOK, detail=detail, at=one.at)


def _see(db: Database, instance: Instance, message_id: str) -> None:
    """A prompt names the message; only its own receiver can have seen it."""
    try:
        message = messages.get(db, message_id)
    except SwarmError:
        return
    if message.instance_id == instance.id:
        messages.see(db, message_id, evidence="its prompt hook")


def _must_wait(db: Database, next_at: str | None) -> bool:
    return next_at is not None and next_at > db.now()


async def _read(request: Request) -> dict[str, Any]:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_MAX:
            raise ValueError("too large")
        parts.append(part)
    body = json.loads(b"".join(parts) or b"{}")
    if not isinstance(body, dict):
        raise ValueError("not an object")
    return body
