"""HTTP on the loopback: who may talk to us, and whether we are well."""

from __future__ import annotations

import signal
import socket

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from swarm_core import process
from swarm_core.config import Settings
from swarm_core.process import Card
from swarm_mcp.watch import Watch

_END_WITHIN = 5


def application(card: Card, settings: Settings, watch: Watch) -> Starlette:
    async def health(_: Request) -> JSONResponse:
        body = process.health(
            card, settings, instances=watch.instances, last_look_age_s=watch.age(), problem=watch.problem()
        )
        return JSONResponse(body, status_code=200 if body["ok"] else 503)

    return Starlette(routes=[Route("/health", health)])


def make(app: Starlette, port: int) -> uvicorn.Server:
    app.user_middleware.append(Middleware(OnlyForUs, port=port))
    settings = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_END_WITHIN,
    )
    return uvicorn.Server(settings)


def run(server: uvicorn.Server, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then return."""

    def end(number: int, frame: object) -> None:
        # uvicorn raises the signal once more after its shutdown; by then it must change nothing.
        server.should_exit = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    server.run(sockets=[listening])


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
