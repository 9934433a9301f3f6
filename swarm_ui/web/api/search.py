"""Full-text search over what was said and done; the result is that of the MCP tool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from swarm_core.models import Hit
from swarm_core.ops import describe
from swarm_core.store import instances
from swarm_core.store.search import LIMIT_MAX
from swarm_core.swarm import Swarm
from swarm_ui.web import endpoint, rows
from swarm_ui.web.asking import (
    Asked,
    Described,
    InstanceId,
    Repo,
    check_database,
    event_stream,
    outcome,
    repository,
    route,
    sse,
)
from swarm_ui.web.endpoint import Endpoint, Question
from swarm_ui.web.site import Site
from swarm_ui.web.threads import shared

Moment = Annotated[str, Field(max_length=40)]


class Body(Asked):
    """As for the MCP tool search; `repo` keeps to what instances of one repository said and did."""

    model_config = ConfigDict(strict=True)

    query: str = Field(min_length=1, max_length=500, description="Words; all must occur.")
    kinds: list[Literal["event", "feedback", "message"]] | None = Field(None, max_length=3)
    instance: InstanceId | None = None
    since: Moment | None = Field(None, description="ISO time, for example 2026-01-31.")
    until: Moment | None = None
    limit: int = Field(20, ge=1, le=LIMIT_MAX)
    repo: Repo | None = None


def _search(question: Question) -> dict[str, Any]:
    swarm, asked = question.site.swarm, question.body
    repo = _repo(swarm, asked)
    return {"repo": repo, "search": search(swarm, asked, repo)}


def search(swarm: Swarm, asked: Body, repo: str | None) -> describe.Hits:
    hits = swarm.search(
        asked.query,
        kinds=asked.kinds or (),
        instance=asked.instance,
        since=asked.since,
        until=asked.until,
        limit=LIMIT_MAX if repo else asked.limit,
    )
    found = [hit for hit in hits if repo is None or _is_of(swarm, hit, repo)][: asked.limit]
    return rows.clean(describe.search(found, swarm.unsearched()))


def _is_of(swarm: Swarm, hit: Hit, repo: str) -> bool:
    one = instances.find(swarm.context.db, hit.instance_id) if hit.instance_id else None
    return one is not None and one.repo_path == repo


def _repo(swarm: Swarm, asked: Body) -> str | None:
    check_database(swarm)
    return repository(swarm.context.db, asked.repo)


def routes(site: Site) -> list[BaseRoute]:
    async def stream(request: Request) -> Response:
        asked = await endpoint.read_body(request, Body)
        assert isinstance(asked, Body)
        repo = await shared(_repo, site.swarm, asked)
        return event_stream(_told(site, asked, repo))

    return [route(site, "POST", STREAM.path, stream)]


async def _told(site: Site, asked: Body, repo: str | None) -> AsyncIterator[bytes]:
    started = time.monotonic()
    yield sse("start", endpoint.ok({}, started=started))
    reports: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def report(text: str) -> None:
        loop.call_soon_threadsafe(reports.put_nowait, text)

    swarm = site.swarm.reporting(report)
    work = asyncio.ensure_future(shared(search, swarm, asked, repo))
    yield sse("progress", endpoint.ok({"phase": "search", "message": "searching"}, started=started))
    while not work.done():
        heard = asyncio.ensure_future(reports.get())
        await asyncio.wait((work, heard), return_when=asyncio.FIRST_COMPLETED)
        if heard.done():
            told = {"phase": "index", "message": heard.result()}
            yield sse("progress", endpoint.ok(told, started=started))
        heard.cancel()
    yield await outcome(site, work, lambda found: {"repo": repo, "search": found}, started)
    yield sse("done", endpoint.ok({}, started=started))


STREAM = Described(
    "POST",
    "/search/stream",
    "The same as events: start, progress, result or error, done.",
    "text/event-stream",
    body=Body,
)
DESCRIBED = (STREAM,)
ENDPOINTS = (Endpoint("POST", "/search", "What was said and done that has all the words.", _search, body=Body),)
