"""Connections that do not wait for ever: whoever takes nothing of what is sent is cut off.

A transport that is only closed keeps its socket and all that is unsent until the other side reads.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from swarm_core.connections import Connections, Limited

# Before the hub gives up on such a viewer, so that its stream ends as one whose reader has left.
READ_WITHIN = 8.0


class _Patience(asyncio.Protocol):
    """For a protocol whose transport says when it is full, and when it is no more."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _end: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._end = self.loop.call_later(READ_WITHIN, self.transport.abort)

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._taken()
        super().connection_lost(exc)

    def _taken(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None


class Http(_Patience, Limited, HttpToolsProtocol):
    limits = Connections()


class WebSocket(_Patience, WebSocketsSansIOProtocol):
    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # by a refusal; uvicorn would log an error
