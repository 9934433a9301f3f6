"""GET /api/v1/stream: everything that changes, to one page, as it changes."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from swarm_core import ids
from swarm_ui.web import endpoint
from swarm_ui.web.asking import Described
from swarm_ui.web.endpoint import Refused
from swarm_ui.web.frames import frame
from swarm_ui.web.hub import Client
from swarm_ui.web.site import Site
from swarm_ui.web.terminals import Watching
from swarm_ui.web.threads import for_streams

PATH = "/api/v1/stream"
_PING_EVERY = 15.0
_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}


class Query(BaseModel):
    """`since` and `rev` are what the page has; `term` the instance whose terminal it shows."""

    model_config = ConfigDict(extra="forbid")

    since: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    rev: Annotated[str | None, Field(max_length=64)] = None
    term: Annotated[str | None, Field(max_length=64)] = None
    tiles: Annotated[int, Field(ge=0, le=1)] = 0


DESCRIBED = (
    Described(
        "GET",
        PATH,
        "Everything that changes, as it changes: hello, snapshot, events, instances, inbox, pulls, health, term,"
        " tiles, action, bye.",
        "text/event-stream",
        query=Query,
    ),
)


def routes(site: Site) -> list[BaseRoute]:
    async def stream(request: Request) -> Response:
        try:
            query = endpoint.validated(Query, dict(request.query_params))
            assert isinstance(query, Query)
            if query.term is not None and not ids.is_id(query.term):
                raise Refused("term is the id of an instance")
        except Refused as error:
            return endpoint.failed(error)
        if request.method == "HEAD":
            return Response(headers=_HEADERS)
        return _Stream(site, request, query)

    return [Route(PATH, stream, methods=["GET"])]


class _Stream(Response):
    """An answer that ends when the viewer leaves, is let go, or the server ends."""

    def __init__(self, site: Site, request: Request, query: Query) -> None:
        super().__init__()
        self._site = site
        self._query = query
        self._visitor = endpoint.visitor(request)
        self._since = query.since
        last = request.headers.get("last-event-id", "")
        if last.isascii() and last.isdigit() and len(last) < 19:  # a browser that connects again by itself
            self._since = max(int(last), query.since or 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(self._visitor, since=self._since, rev=self._query.rev)
        leaving = asyncio.create_task(_until_gone(receive, client))
        try:
            await self._run(client, send)
        except asyncio.CancelledError:
            if not client.over:
                raise
        finally:
            leaving.cancel()

    async def _run(self, client: Client, send: Send) -> None:
        hub = self._site.hub
        await send({"type": "http.response.start", "status": 200, "headers": Headers(_HEADERS).raw})
        try:
            await hub.enter(client)
            await self._catch_up(client, send)
            with Watching(
                self._site.terminals, client, self._query.term, tiles=bool(self._query.tiles)
            ) as watching:
                await self._follow(client, watching, send)
        finally:
            hub.leave(client)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _catch_up(self, client: Client, send: Send) -> None:
        """What the page has missed, before anything that is new.

        It is greeted twice: it has the rows of our `rev` only after they were sent, whenever the connection ends.
        """
        hub = self._site.hub
        known = client.state.last if client.since is None else client.since
        await _write(send, b"retry: 1000\n\n" + frame("hello", hub.hello(client, rev=client.rev or ""), known))
        if not client.uncertain and not hub.is_lost(client):
            while found := await for_streams(hub.missed, client, known):
                known = found[-1][1].id
                await _write(send, frame("events", [row for row, _ in found], known))
        if client.uncertain:
            await _write(send, hub.news(client))
        else:
            await _write(send, hub.news(client) + frame("hello", hub.hello(client), client.state.last))

    async def _follow(self, client: Client, watching: Watching, send: Send) -> None:
        while True:
            arrived = await client.wait(_PING_EVERY)
            chunk = b"".join(part for part in arrived if isinstance(part, bytes)) + watching.take()
            if chunk or not client.over:
                await _write(send, chunk or b": ping\n\n")
            if client.over:
                return


async def _until_gone(receive: Receive, client: Client) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    client.end(0.0)


async def _write(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
