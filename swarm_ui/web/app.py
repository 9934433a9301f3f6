"""The dashboard's routes. Every answer is read from the database; nothing is written."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from swarm_core import process
from swarm_core.config import Settings
from swarm_core.errors import SwarmError
from swarm_core.process import Card
from swarm_core.store import instances
from swarm_core.store.database import Database
from swarm_ui.web import page

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def application(card: Card, settings: Settings, db: Database) -> Starlette:
    def health(_: Request) -> Response:
        problem, count = None, None
        try:
            count = len(instances.listed(db))
        except SwarmError as error:
            problem = error.message
        body = process.health(card, settings, instances=count, last_look_age_s=None, problem=problem)
        return JSONResponse(body, status_code=200 if body["ok"] else 503, headers=HEADERS)

    def now(_: Request) -> Response:
        try:
            listed = instances.listed(db)
        except SwarmError as error:
            return HTMLResponse(page.failure(error), status_code=503, headers=HEADERS)
        coordinator = process.running(settings, process.COORDINATOR) is not None
        return HTMLResponse(
            page.now(listed, datetime.now(UTC), coordinator=coordinator, home=str(settings.home)), headers=HEADERS
        )

    def style(_: Request) -> Response:
        return Response(page.STYLE, media_type="text/css", headers=HEADERS)

    routes = [Route("/", now), Route("/health", health), Route("/style.css", style)]
    return Starlette(routes=routes, middleware=[Middleware(OnlyForUs, port=card.port)])


class OnlyForUs:
    """Refuses requests whose Host is not ours, so that no web page can reach us under another name."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [value for name, value in scope.get("headers", []) if name == b"host"]
        if scope["type"] != "lifespan" and not process.host_allowed(hosts, self._port):
            refused = PlainTextResponse("this name is not served here\n", status_code=403 if hosts else 400)
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)
