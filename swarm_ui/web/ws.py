"""WebSocket /ws: every event by its name, for programs that watch."""

from __future__ import annotations

import asyncio

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from swarm_ui.web.endpoint import NOBODY, Visitor
from swarm_ui.web.frames import as_json, message
from swarm_ui.web.hub import Client
from swarm_ui.web.site import Site
from swarm_ui.web.threads import for_streams

PATH = "/ws"
_PING_EVERY = 15.0
_NOT_ALLOWED, _GOING_AWAY, _TOO_SLOW = 1008, 1001, 1013


def routes(site: Site) -> list[BaseRoute]:
    async def events(socket: WebSocket) -> None:
        visitor: Visitor = socket.scope.get("swarm.visitor", NOBODY)
        since = socket.query_params.get("since")
        if visitor.how == NOBODY.how or not (since is None or (since.isdecimal() and len(since) < 19)):
            await socket.close(_NOT_ALLOWED)
            return
        await socket.accept()
        await _Session(site, socket, visitor, None if since is None else int(since)).run()

    return [WebSocketRoute(PATH, events)]


class _Session:
    """One program that listens. What it says is read and dropped; it must only not go away."""

    def __init__(self, site: Site, socket: WebSocket, visitor: Visitor, since: int | None) -> None:
        self._hub = site.hub
        self._socket = socket
        self._client = Client(visitor, since=since, rows=False)

    async def run(self) -> None:
        leaving = asyncio.create_task(self._until_gone())
        try:
            await self._hub.enter(self._client)
            await self._catch_up()
            await self._follow()
            await self._socket.close(_GOING_AWAY if self._hub.ended else _TOO_SLOW)
        except (WebSocketDisconnect, RuntimeError):  # it has left while we were sending
            pass
        except asyncio.CancelledError:
            if not self._client.over:
                raise
        finally:
            leaving.cancel()
            self._hub.leave(self._client)

    async def _catch_up(self) -> None:
        client = self._client
        known = client.state.last if client.since is None else client.since
        await self._socket.send_text(as_json({"event": "hello", "id": known}))
        while found := await for_streams(self._hub.missed, client, known):
            for row, event in found:
                await self._socket.send_text(message(row, event))
            known = found[-1][1].id

    async def _follow(self) -> None:
        client = self._client
        while not client.over:
            for text in await client.wait(_PING_EVERY):
                if isinstance(text, str):
                    await self._socket.send_text(text)

    async def _until_gone(self) -> None:
        try:
            while (await self._socket.receive())["type"] != "websocket.disconnect":
                pass
        finally:
            self._client.end(0.0)
