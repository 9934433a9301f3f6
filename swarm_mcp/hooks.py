"""What agent programs report about themselves: `POST /hooks/{event}` becomes activity with source and time."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from swarm_core.agents import table
from swarm_core.errors import SwarmError
from swarm_core.models import Activity, Principal, Source
from swarm_core.store import instances
from swarm_core.store.database import Database
from swarm_mcp.loop import LoopStore
from swarm_mcp.metrics import Metrics

BODY_MAX = 8 << 20
_DETAIL_MAX = 500
_ANSWERED_WITHIN = 0.25
_TRIED_FOR = 5.0
_MOST_UNWRITTEN = 10_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Heard:
    instance_id: str
    activity: Activity
    detail: str
    at: str


class Hooks:
    """An agent waits for the answer, so it always gets one at once; what is not understood is ignored.

    What agents say is written down in the order it came, and later when the database is locked.
    """

    def __init__(self, store: LoopStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._unwritten: list[_Heard] = []
        self._writing: asyncio.Task[None] | None = None

    async def answer(self, request: Request) -> JSONResponse:
        principal: Principal = request.scope["swarm.principal"]
        try:
            body = await _read(request)
        except (ValueError, RecursionError):
            self._metrics.hooks["unreadable"] += 1
            said = {"code": "INVALID_REQUEST", "message": "a hook's body is a JSON object of at most 8 MB"}
            return JSONResponse({"ok": False, **said, "error": said}, status_code=400)
        except ClientDisconnect:
            self._metrics.hooks["unreadable"] += 1
            return JSONResponse({}, status_code=400)
        outcome = self._hear(principal.name, request.path_params["event"], body)
        self._metrics.hooks[outcome] += 1
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=_ANSWERED_WITHIN)
        return JSONResponse({})

    def _hear(self, instance_id: str, event: str, body: dict[str, Any]) -> str:
        try:
            instance = instances.get(self._store.db, instance_id)
            reading = table.get(instance.agent).read_hook(event, body)
            if reading is None or reading.activity == Activity.EXITED or instance.ended:
                return "ignored"  # an end is what the kernel says, and it says so at once
            detail = "".join(c if c.isprintable() else " " for c in reading.detail[:_DETAIL_MAX]).strip()
            heard = _Heard(instance_id, Activity(reading.activity), detail, self._store.db.now())
        except (SwarmError, ValueError, TypeError, AttributeError) as error:
            log.warning("the hook %s of %s could not be used: %s", event[:80], instance_id, error)
            return "failed"
        if len(self._unwritten) >= _MOST_UNWRITTEN:
            log.error("the database has been locked for too long: the hook %s of %s is lost", event, instance_id)
            return "failed"
        self._unwritten.append(heard)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return "observed"

    async def _write(self) -> None:
        while self._unwritten:
            heard = list(self._unwritten)
            try:
                await self._store.write(partial(_observe, heard=heard), within=_TRIED_FOR)
            except SwarmError as error:
                log.warning("what %d hooks said is not written yet: %s", len(heard), error.code)
                if error.code == "DATABASE_LOCKED":
                    continue
            del self._unwritten[: len(heard)]
        self._writing = None


def _observe(db: Database, heard: Sequence[_Heard]) -> None:
    for one in heard:
        if not instances.get(db, one.instance_id).ended:
            instances.observe(db, one.instance_id, one.activity, source=Source.HOOK, detail=one.detail, at=one.at)


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
