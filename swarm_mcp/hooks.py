"""What agent programs report about themselves: `POST /hooks/{event}` becomes activity with source and time."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from swarm_core.agents import table
from swarm_core.errors import SwarmError
from swarm_core.models import Activity, Principal, Source
from swarm_core.store import instances
from swarm_core.store.database import Database
from swarm_mcp.metrics import Metrics

BODY_MAX = 8 << 20
_DETAIL_MAX = 500

log = logging.getLogger(__name__)


class Hooks:
    """An agent waits for the answer, so it always gets one at once; what is not understood is ignored."""

    def __init__(self, db: Database, metrics: Metrics) -> None:
        self._db = db
        self._metrics = metrics

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
        loop = asyncio.get_running_loop()
        outcome = await loop.run_in_executor(
            None, self._observe, principal.name, request.path_params["event"], body
        )
        self._metrics.hooks[outcome] += 1
        return JSONResponse({})

    def _observe(self, instance_id: str, event: str, body: dict[str, Any]) -> str:
        try:
            instance = instances.get(self._db, instance_id)
            reading = table.get(instance.agent).read_hook(event, body)
            if reading is None or reading.activity == Activity.EXITED or instance.ended:
                return "ignored"  # an end is what the kernel says, and it says so at once
            detail = "".join(c if c.isprintable() else " " for c in reading.detail[:_DETAIL_MAX]).strip()
            with self._db.write():
                now = self._db.now()
                instances.observe(
                    self._db, instance_id, Activity(reading.activity), source=Source.HOOK, detail=detail, at=now
                )
        except (SwarmError, ValueError, TypeError, AttributeError) as error:
            log.warning("the hook %s of %s could not be used: %s", event[:80], instance_id, error)
            return "failed"
        return "observed"


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
