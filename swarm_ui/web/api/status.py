"""How swarm and its instances are, as `swarm status --json` tells it; once, or as a stream of one answer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from swarm_core import overview
from swarm_core.ops import inbox, pull_status
from swarm_core.swarm import Swarm
from swarm_ui import health
from swarm_ui.web import endpoint, rows
from swarm_ui.web.asking import (
    Asked,
    Described,
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
from swarm_ui.web.slow import HEALTH
from swarm_ui.web.threads import shared


class Query(Asked):
    repo: Repo | None = None


def _status(question: Question) -> dict[str, Any]:
    repo = _repo(question.site.swarm, question.query)
    return {"repo": repo, "status": status(question.site.swarm, repo)}


def status(swarm: Swarm, repo: str | None) -> dict[str, Any]:
    """Of all instances, or of those of one repository."""
    found = health.overview(swarm.context.settings)
    if repo is not None and found["database"]["problem"] is None:
        with swarm.context.db.reader() as db:
            board = inbox.board(db, policy=pull_status.policy(swarm.context.settings))
        found["instances"] = overview.counted(board, repo)
    return rows.clean(found)


def _repo(swarm: Swarm, asked: Query) -> str | None:
    check_database(swarm)
    return repository(swarm.context.db, asked.repo)


def routes(site: Site) -> list[BaseRoute]:
    async def stream(request: Request) -> Response:
        asked = endpoint.validated(Query, endpoint.parameters(Query, request))
        assert isinstance(asked, Query)
        repo = await shared(_repo, site.swarm, asked)
        return event_stream(_told(site, repo))

    return [route(site, "GET", STREAM.path, stream)]


async def _told(site: Site, repo: str | None) -> AsyncIterator[bytes]:
    started = time.monotonic()
    yield sse("start", endpoint.ok({"repo": repo}, started=started))
    work = site.pools[HEALTH].run(lambda: status(site.swarm, repo))
    yield await outcome(site, work, lambda found: {"repo": repo, "status": found}, started)
    yield sse("done", endpoint.ok({}, started=started))


STREAM = Described(
    "GET",
    "/status/stream",
    "The same as events: start, result or error, done.",
    "text/event-stream",
    query=Query,
)
DESCRIBED = (STREAM,)
ENDPOINTS = (Endpoint("GET", "/status", "How swarm and its instances are.", _status, query=Query, runs=HEALTH),)
