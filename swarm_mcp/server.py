"""HTTP on the loopback: the routes, who may come in, and how the server ends without leaving a call unanswered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from swarm_core import process
from swarm_core.config import Settings
from swarm_core.connections import Connections, Limited, Whole
from swarm_core.errors import SwarmError
from swarm_core.models import PrincipalKind
from swarm_core.ops.presence import Servers
from swarm_core.process import Card
from swarm_core.store import events, forge_counts, instances, requests
from swarm_core.swarm import Swarm
from swarm_mcp import contract
from swarm_mcp import metrics as prometheus
from swarm_mcp.arrivals import Arrivals
from swarm_mcp.dispatch import Dispatcher
from swarm_mcp.door import MCP_SCOPE, Door
from swarm_mcp.hooks import Hooks
from swarm_mcp.identity import Identity
from swarm_mcp.loop import LoopStore
from swarm_mcp.metrics import Metrics
from swarm_mcp.protocol import SwarmServer
from swarm_mcp.refusals import Refusals
from swarm_mcp.resources import Reader
from swarm_mcp.transport import HybridSessionManager
from swarm_mcp.webhooks import PATH as WEBHOOKS
from swarm_mcp.webhooks import SECRET, Webhooks
from swarm_mcp.worker.handle import Worker

_END_WITHIN = 5
_PATIENCE = 3.0
_SENT_WITHIN = 1.0
_KEEP_ALIVE = 75
_LOOK_EVERY = 2.0
_SWEEP_EVERY = 30.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Service:
    """Everything that answers requests; lives as long as the process."""

    card: Card
    settings: Settings
    swarm: Swarm
    worker: Worker
    store: LoopStore
    servers: Servers
    identity: Identity
    metrics: Metrics
    dispatcher: Dispatcher
    refusals: Refusals
    manager: HybridSessionManager
    hooks: Hooks
    webhooks: Webhooks

    async def health(self, _: Request) -> JSONResponse:
        body = process.health(
            self.card,
            self.settings,
            instances=self.worker.instances,
            last_look_age_s=self.worker.age(),
            problem=self.worker.problem(self.swarm.context.db),
        )
        return JSONResponse(body, status_code=200 if body["ok"] else 503)

    async def show_metrics(self, _: Request) -> Response:
        loop = asyncio.get_running_loop()
        db = self.swarm.context.db
        statuses, newest, forge = await loop.run_in_executor(
            None, lambda: (instances.by_status(db), events.newest_id(db), forge_counts.counted(db))
        )
        text = self.metrics.text(
            running=self.dispatcher.size,
            sessions=self.manager.open_sessions,
            statuses=statuses,
            newest_event=newest,
            forge=forge,
        )
        return PlainTextResponse(text, media_type=prometheus.CONTENT_TYPE)

    async def close(self) -> None:
        """Before the server ends: calls in flight get their answers, open streams are closed."""
        await self.hooks.close()
        await self.dispatcher.close(patience=_PATIENCE)
        await self.manager.answered(_SENT_WITHIN)
        await self.manager.terminate_where(lambda _: True)
        await self.refusals.drain()

    async def housekeeping(self) -> None:
        """Cut off who has lost their token, and tell of calls that died with their server."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            try:
                self.dispatcher.beat()
                await self.manager.terminate_where(self._is_gone)
                self.manager.end_listening(lambda token: self.identity.find(token).principal is None)
                self.refusals.flush()
                if loop.time() >= due:
                    due = loop.time() + _SWEEP_EVERY
                    await loop.run_in_executor(None, self._sweep)
            except SwarmError as error:
                log.warning("housekeeping failed: %s (%s)", error.message, error.code)
            except Exception:  # what failed once may go well the next time; nobody would notice a loop that ended
                log.exception("housekeeping met a bug")
            await asyncio.sleep(_LOOK_EVERY)

    def _sweep(self) -> None:
        """In a thread: the loop's own connection leaves the disk to us."""
        self.swarm.context.db.checkpoint()
        requests.sweep(self.swarm.context.db, self.servers)
        self.servers.forget_dead()

    def _is_gone(self, owner: AuthorizationContext) -> bool:
        name = owner["subject"] or ""
        if owner["client_id"].startswith("automation:"):
            return not self.identity.is_current(PrincipalKind.AUTOMATION, name)
        kind = PrincipalKind.OPERATOR if name == PrincipalKind.OPERATOR else PrincipalKind.INSTANCE
        return not self.identity.is_current(kind, name)


def service(
    card: Card, settings: Settings, swarm: Swarm, worker: Worker, store: LoopStore, servers: Servers, me: str
) -> Service:
    metrics = Metrics()
    dispatcher = Dispatcher(swarm, settings, store, server=me, servers=servers, metrics=metrics, worker=worker)

    def count(reason: str) -> None:
        metrics.refused[reason] += 1

    refusals = Refusals(swarm.context.db, count)
    server = SwarmServer(dispatcher, Reader(swarm))
    manager = HybridSessionManager(server, at_once=server.at_once)

    def foreign(session: str, scope: Scope) -> None:
        actor = scope["swarm.principal"].actor
        refusals.add("session of another", code="NOT_FOUND", principal=actor, session=session[:8], path="/mcp")

    def begun(scope: Scope) -> None:
        principal = scope["swarm.principal"]
        if principal.kind == PrincipalKind.INSTANCE:
            arrivals.note(principal.name)

    arrivals = Arrivals(store)
    manager.on_foreign = foreign
    manager.on_begun = begun
    manager.on_refused = server.refused
    identity = Identity(store)
    hooks = Hooks(store, metrics, swarm.context.hosts)
    secret = swarm.context.environ.get(SECRET, "")
    folders = settings.own_folders
    webhooks = Webhooks(secret, store, refusals, metrics, wake=worker.wake, folders=folders)
    made = (card, settings, swarm, worker, store, servers, identity, metrics, dispatcher, refusals, manager)
    return Service(*made, hooks, webhooks)


def application(service: Service, port: int) -> Front:
    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with service.worker.connected(), service.manager.run():
            keeping = asyncio.create_task(service.housekeeping())
            try:
                yield
            finally:
                keeping.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await keeping

    def door(app: ASGIApp, scope: str) -> Door:
        folders = service.settings.own_folders
        return Door(app, service.identity, service.refusals, scope=scope, folders=folders)

    hooks = Route("/hooks/{event}", service.hooks.answer, methods=["POST"])
    pages = Starlette(
        routes=[
            Route("/hooks/{event}", door(hooks.app, "hooks"), methods=["POST"]),
            Route("/metrics", door(Route("/metrics", service.show_metrics).app, "metrics"), methods=["GET"]),
            Route("/health", service.health),
        ],
        lifespan=lifespan,
    )
    return Front(pages, door(service.manager.handle_request, MCP_SCOPE), service.webhooks, service.refusals, port)


class HttpServer(uvicorn.Server):
    """Lets the service end its work before the connections are closed."""

    def __init__(self, settings: uvicorn.Config, service: Service) -> None:
        super().__init__(settings)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.close()
        await super().shutdown(sockets)


def make(service: Service, port: int) -> HttpServer:
    class Http(Limited, Whole, HttpToolsProtocol):
        limits = Connections()

    settings = uvicorn.Config(
        application(service, port),
        loop="uvloop",
        http=Http,
        ws="none",
        proxy_headers=False,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_END_WITHIN,
    )
    return HttpServer(settings, service)


def run(server: uvicorn.Server, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then return."""

    def end(number: int, frame: object) -> None:
        # uvicorn raises the signal once more after its shutdown; by then it must change nothing.
        server.should_exit = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    server.run(sockets=[listening])


class Front:
    """Refuses requests that were not meant for us or that a web page sent, under whatever name it reached us.

    `/mcp` is most of the traffic and goes straight to its door. A tunnel brings webhooks under a name of its own:
    while they are on, that one page asks for a signature in place of our name; pages may still not call it.
    """

    def __init__(self, pages: ASGIApp, mcp: ASGIApp, webhooks: Webhooks, refusals: Refusals, port: int) -> None:
        self._pages = pages
        self._mcp = mcp
        self._webhooks = webhooks
        self._refusals = refusals
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._pages(scope, receive, send)
            return
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        origins = [value for name, value in scope["headers"] if name == b"origin"]
        reported = scope["path"] == WEBHOOKS
        if not process.host_allowed(hosts, self._port) and not (reported and self._webhooks.is_on):
            await self._refuse("host of another name", hosts, "Host header not allowed", scope, receive, send)
        elif not process.origin_allowed(origins, self._port):
            await self._refuse("page of another site", origins, "Origin header not allowed", scope, receive, send)
        elif reported:
            await self._webhooks(scope, receive, send)
        else:
            await (self._mcp if scope["path"] == "/mcp" else self._pages)(scope, receive, send)

    async def _refuse(
        self, reason: str, said: list[bytes], answer: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        named = b", ".join(said).decode("latin-1")[:120]
        self._refusals.add(reason, code="FORBIDDEN", named=named)
        body = contract.refusal("FORBIDDEN", answer)
        await JSONResponse(body, status_code=403 if said else 400)(scope, receive, send)
