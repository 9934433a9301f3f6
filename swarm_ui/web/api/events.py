"""The history: pages of events that match, and all of them as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from swarm_core.store import events
from swarm_core.store.events import Wanted
from swarm_core.swarm import Swarm
from swarm_ui.web import endpoint, rows
from swarm_ui.web.asking import Asked, Described, InstanceId, Repo, check_database, reading, repository, route
from swarm_ui.web.endpoint import Endpoint, Question
from swarm_ui.web.site import Site

_PAGE = 500
_LARGEST = 2**63 - 1


class Filters(Asked):
    """All that is given must hold. An empty `next` is the end; a page that is not full need not be the last."""

    instance: InstanceId | None = None
    name: str | None = Field(None, min_length=1, max_length=60, description="A name, or how it begins: `pull:`.")
    level: Literal["info", "warning", "error"] | None = None
    actor: str | None = Field(None, min_length=1, max_length=200)
    repo: Repo | None = None
    q: str | None = Field(None, min_length=1, max_length=200, description="Text that occurs in the event.")


class Query(Filters):
    before: int | None = Field(None, ge=0, le=_LARGEST, description="Older than this id, newest first.")
    after: int | None = Field(None, ge=0, le=_LARGEST, description="Newer than this id, oldest first.")
    limit: int = Field(100, ge=1, le=500)

    @model_validator(mode="after")
    def one_way(self) -> Query:
        if self.before is not None and self.after is not None:
            raise ValueError("either before or after")
        return self


def _page(question: Question) -> dict[str, Any]:
    asked = question.query
    with reading(question) as swarm:
        db = swarm.context.db
        wanted = _wanted(swarm, asked)
        if asked.after is not None:
            found = events.since(db, asked.after, wanted, limit=asked.limit)
        else:
            found = events.before(db, asked.before, wanted, limit=asked.limit)
    return {"items": [rows.event(e) for e in found.events], "next": found.next}


def _wanted(swarm: Swarm, asked: Filters) -> Wanted:
    return Wanted(
        instance_id=asked.instance,
        name=asked.name,
        level=asked.level,
        actor=asked.actor,
        repo_path=repository(swarm.context.db, asked.repo),
        text=asked.q,
    )


def routes(site: Site) -> list[BaseRoute]:
    async def export(request: Request) -> Response:
        asked = endpoint.validated(Filters, endpoint.parameters(Filters, request))
        assert isinstance(asked, Filters)
        check_database(site.swarm)
        wanted = _wanted(site.swarm, asked)
        named = {"Content-Disposition": 'attachment; filename="events.jsonl"'}
        return StreamingResponse(_lines(site.swarm, wanted), media_type="application/x-ndjson", headers=named)

    return [route(site, "GET", EXPORT.path, export)]


def _lines(swarm: Swarm, wanted: Wanted) -> Iterator[bytes]:
    """Newest first, a page at a time; what is written meanwhile is not among them."""
    cursor: int | None = None
    while True:
        with swarm.context.db.reader() as db:
            page = events.before(db, cursor, wanted, limit=_PAGE)
        if page.events:
            yield "".join(f"{json.dumps(rows.event(e), ensure_ascii=False)}\n" for e in page.events).encode()
        if page.next is None:
            return
        cursor = page.next


EXPORT = Described(
    "GET",
    "/api/v1/events/export",
    "All events that match, newest first, one JSON object a line.",
    "application/x-ndjson",
    query=Filters,
)
DESCRIBED = (EXPORT,)
ENDPOINTS = (Endpoint("GET", "/api/v1/events", "A page of the events that match.", _page, query=Query),)
