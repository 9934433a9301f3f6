"""The dashboard's routes, all behind one guard."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from swarm_core.errors import NotFound
from swarm_ui.web import endpoint, openapi, page, static, stream, ws
from swarm_ui.web.api import events, search, status
from swarm_ui.web.endpoint import Refused
from swarm_ui.web.guard import Guard
from swarm_ui.web.site import Site

# Each has a stack and a heap of its own, and Python runs one at a time.
_THREADS = 8


def application(site: Site) -> ASGIApp:
    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = _THREADS
        await site.hub.start()
        try:
            yield
        finally:
            for pool in site.pools.values():
                pool.close()
            await site.runner.close()
            await site.terminals.close()
            await site.hub.close()

    behind = Starlette(
        routes=_routes(site), exception_handlers={HTTPException: _refuse, Exception: _fail}, lifespan=life
    )
    behind.router.redirect_slashes = False
    # Outside of everything, or an answer that Starlette gives to a bug would have none of the guard's headers.
    return Guard(behind, site=site)


def _routes(site: Site) -> list[BaseRoute]:
    plain = endpoint.routes(site, openapi.endpoints())
    streams = [r for module in (stream, ws, status, search, events) for r in module.routes(site)]
    # Pages first: for a browser `/health` is one.
    return [*page.routes(site), *streams, *plain, *openapi.routes(site), *static.routes()]


async def _refuse(_: Request, error: Exception) -> Response:
    """A path or a method that is not served, in the same envelope as every other failure."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return endpoint.failed(NotFound("there is no such page", hint="GET /openapi.json lists all"))
    answer = endpoint.failed(Refused(str(error.detail), status=error.status_code))
    answer.headers.update(error.headers or {})
    return answer


async def _fail(_: Request, error: Exception) -> Response:
    return endpoint.failed(error)
