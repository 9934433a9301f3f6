"""A client that costs next to nothing: MCP over HTTP spoken by hand on kept-alive connections."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

_VERSION = "2025-11-25"


@dataclass
class Client:
    """One agent: its connection and its MCP session."""

    port: int
    token: str = ""
    accept: str = "application/json, text/event-stream"
    session: str = ""
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None
    ids: int = 0
    listening: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        params = {
            "protocolVersion": _VERSION,
            "capabilities": {},
            "clientInfo": {"name": "benchmark", "version": "1"},
        }
        headers, _ = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.session = headers["mcp-session-id"]
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def listen(self) -> None:
        """Open the stream of notifications, as an agent does that stays connected."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(self._head("GET", 0))
        await reader.readuntil(b"\r\n\r\n")
        self.listening.append(writer)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.ids += 1
        body = {"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params}
        _, answer = await self.post(body)
        return json.loads(answer)

    async def post(self, body: dict[str, Any]) -> tuple[dict[str, str], bytes]:
        assert self.reader is not None
        assert self.writer is not None
        text = json.dumps(body).encode()
        self.writer.write(self._head("POST", len(text)) + text)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
        if not head[0].split()[1].startswith("2"):
            raise RuntimeError(f"{head[0]}: {await self.reader.read(500)!r}")
        return headers, await self.reader.readexactly(int(headers.get("content-length", 0)))

    def close(self) -> None:
        for writer in [self.writer, *self.listening]:
            if writer is not None:
                writer.close()

    def _head(self, method: str, size: int) -> bytes:
        lines = [f"{method} /mcp HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        lines += [f"Accept: {self.accept}", "Content-Type: application/json"]
        lines += [f"Content-Length: {size}"] if size else []
        lines += [f"Authorization: Bearer {self.token}"] if self.token else []
        lines += [f"Mcp-Session-Id: {self.session}", f"MCP-Protocol-Version: {_VERSION}"] if self.session else []
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def load(clients: list[Client], calls: int, tool: str, arguments: dict[str, Any]) -> list[float]:
    """Every client calls one after another, all clients at once; the time of each call in seconds."""
    spent: list[float] = []

    async def one(client: Client, times: int) -> None:
        for _ in range(times):
            began = time.perf_counter()
            answer = await client.ask("tools/call", {"name": tool, "arguments": arguments})
            spent.append(time.perf_counter() - began)
            if answer["result"].get("isError"):
                raise RuntimeError(str(answer)[:500])

    await asyncio.gather(*(one(c, calls // len(clients)) for c in clients))
    return spent
