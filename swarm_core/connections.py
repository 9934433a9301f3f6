"""Limits for the connections of an HTTP server: how many, and how long a peer may take to send a request."""

from __future__ import annotations

import asyncio
import resource
from typing import Any, Protocol

HEADERS_WITHIN = 10.0
BODY_WITHIN = 30.0
_MOST, _FEWEST = 1024, 32


class Connection(Protocol):
    """What uvicorn's protocol for one connection offers."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    cycle: Any


class Connections:
    """The open connections of one server, oldest activity first.

    Every peer is on the loopback, so addresses tell nobody apart. One too many closes the connection that has had
    no request under way for longest: half-sent requests and idle connections go, streams stay.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most or min(_MOST, max(_FEWEST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        self._open: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> None:
        self._open[connection] = None
        while len(self._open) > self._most:
            oldest = next((c for c in self._open if _is_idle(c)), connection)
            self.remove(oldest)
            oldest.transport.abort()

    def used(self, connection: Connection) -> None:
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def remove(self, connection: Connection) -> None:
        self._open.pop(connection, None)


class Limited(asyncio.Protocol):
    """Mixed into uvicorn's protocol: closes a connection whose request is not sent in time; answers may take long.

    Each server has a subclass with `limits` of its own.
    """

    limits: Connections
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    cycle: Any
    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._expect(HEADERS_WITHIN)
        self.limits.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self.limits.used(self)
        self._expect(HEADERS_WITHIN)
        super().on_message_begin()  # type: ignore[misc]

    def on_headers_complete(self) -> None:
        self._expect(BODY_WITHIN)
        super().on_headers_complete()  # type: ignore[misc]

    def on_message_complete(self) -> None:
        self._expect(None)
        super().on_message_complete()  # type: ignore[misc]

    def handle_websocket_upgrade(self) -> None:
        self._leave()
        super().handle_websocket_upgrade()  # type: ignore[misc]

    def _leave(self) -> None:
        self._expect(None)
        self.limits.remove(self)

    def _expect(self, seconds: float | None) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


class Whole(asyncio.Protocol):
    """Mixed into uvicorn's protocol: sends the headers of a response with its body, which wakes the peer once.

    uvicorn writes them one after the other, and uvloop sends each write at once.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(_Joining(transport))  # type: ignore[arg-type]


class _Joining:
    """A transport that keeps the headers of a response back until its body comes, or the loop's next turn."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held + data)
        elif data.startswith(b"HTTP/"):
            self._held = data
            asyncio.get_running_loop().call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)


def _is_idle(connection: Connection) -> bool:
    cycle = connection.cycle
    return cycle is None or bool(cycle.response_complete)
