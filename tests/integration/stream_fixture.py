"""A dashboard's streams on a real port, and somebody who reads them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from swarm_core import config, process
from swarm_core.config import Settings
from swarm_core.process import Card
from swarm_core.store import events
from swarm_core.store.database import open_database
from swarm_core.swarm import Swarm
from swarm_ui.web import endpoint, slow, stream, ws
from swarm_ui.web.api import terminal
from swarm_ui.web.endpoint import Visitor
from swarm_ui.web.hub import Hub
from swarm_ui.web.site import Site
from swarm_ui.web.terminals import Terminals
from tests.support import wait_until

OWNER = Visitor("operator", may_write=True, how="cookie")


@dataclass
class Frame:
    name: str
    data: Any
    id: int | None


class Listener:
    """One connection; frames are kept as they come, in a thread."""

    def __init__(self, port: int, **query: object) -> None:
        self.frames: list[Frame] = []
        self.bytes = 0
        self.comments: list[str] = []
        self.ended = threading.Event()
        self._socket = socket.create_connection(("127.0.0.1", port))
        path = f"/api/v1/stream?{urlencode(query)}"
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        self._thread = threading.Thread(target=self._read, daemon=True)

    def read(self) -> Listener:
        self._thread.start()
        return self

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def named(self, name: str) -> list[Any]:
        return [f.data for f in list(self.frames) if f.name == name]

    def until(self, condition: Callable[[], object], what: str = "") -> Any:
        return wait_until(condition, what=what or f"in {[f.name for f in self.frames]}")

    def first(self, name: str) -> Any:
        return self.until(lambda: self.named(name), f"a frame {name}")[0]

    @property
    def event_ids(self) -> list[int]:
        return [row["id"] for rows in self.named("events") for row in rows]

    def _read(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            raw = self._socket.makefile("rb")
            status = raw.readline()
            while raw.readline() not in (b"\r\n", b""):
                pass
            if b" 200 " not in status:
                return
            while size := int(raw.readline() or b"0", 16):
                chunk = raw.read(size)
                raw.readline()
                self.bytes += len(chunk)
                *blocks, rest = (rest + chunk).split(b"\n\n")
                self.frames += [f for f in map(self._frame, blocks) if f]
        self.ended.set()

    def _frame(self, block: bytes) -> Frame | None:
        lines = dict(line.split(": ", 1) for line in block.decode().splitlines() if not line.startswith(":"))
        self.comments += [line for line in block.decode().splitlines() if line.startswith((":", "retry"))]
        if "event" not in lines:
            return None
        return Frame(lines["event"], json.loads(lines["data"]), int(lines["id"]) if "id" in lines else None)


class _LetIn:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.visitor = OWNER

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["swarm.visitor"] = self.visitor
        await self._app(scope, receive, send)


class _Server(uvicorn.Server):
    site: Site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.site.hub.say_bye()
        await super().shutdown(sockets)


@dataclass
class Streams:
    """`start` and `stop` as often as wanted; each is a new process to a page."""

    settings: Settings
    environ: dict[str, str]
    pid: int = 4000
    port: int = 0
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self) -> Streams:
        self.pid += 1
        self._stack = contextlib.ExitStack()
        swarm = self._stack.enter_context(Swarm.open(self.settings, self.environ))
        card = Card("dashboard", self.pid, "here", self.port, "2026-01-01T00:00:00Z", str(self.settings.home))
        hub, terminals = Hub(swarm, self.settings, card), Terminals(swarm, self.settings)
        self.site = Site(card, self.settings, swarm, None, hub, terminals, None, slow.pools())  # type: ignore[arg-type]

        @contextlib.asynccontextmanager
        async def life(_: Starlette) -> Any:
            self.loop = asyncio.get_running_loop()
            await hub.start()
            yield
            await terminals.close()
            await hub.close()

        routes = [
            *stream.routes(self.site),
            *ws.routes(self.site),
            *endpoint.routes(self.site, terminal.ENDPOINTS),
        ]
        self.door = _LetIn(Starlette(routes=routes, lifespan=life))
        listening = process.listen(self.port)
        self.port = listening.getsockname()[1]
        server = _Server(
            uvicorn.Config(
                self.door,
                log_config=None,
                lifespan="on",
                ws="websockets-sansio",
                timeout_graceful_shutdown=5,
            )
        )
        server.site = self.site
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()

        def end() -> None:
            server.should_exit = True
            thread.join()
            listening.close()

        self._stack.callback(end)
        wait_until(lambda: server.started, what="the server listens")
        return self

    def stop(self) -> None:
        self._stack.close()

    @property
    def hub(self) -> Hub:
        return self.site.hub

    def listen(self, **query: object) -> Listener:
        return Listener(self.port, **query).read()

    def write(self, count: int, **more: Any) -> list[int]:
        """Events, each in a transaction of another process's connection."""
        db = open_database(self.settings.database_path)
        with contextlib.closing(db):
            ids = []
            for _ in range(count):
                with db.write():
                    ids.append(events.add(db, "coordinator:started", actor="test", **more))
            return ids


@contextlib.contextmanager
def streams_of(home: Path) -> Iterator[Streams]:
    environ = dict(os.environ) | {"SWARM_HOME": str(home)}
    made = Streams(config.load(environ), environ)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def streams(short_tmp: Path) -> Iterator[Streams]:
    with streams_of(short_tmp / "h") as made:
        yield made


__all__ = ["OWNER", "Frame", "Listener", "Streams", "streams", "streams_of"]
