"""MCP clients written by hand: what the test says goes over the wire, and what comes back is shown whole."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

VERSION = "2025-11-25"
_INFO = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@dataclass
class Answer:
    """One answer: the HTTP status (0 on stdio), its JSON-RPC message, and the notifications that came before."""

    status: int
    message: dict[str, Any]
    notifications: list[dict[str, Any]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def result(self) -> dict[str, Any]:
        assert "result" in self.message, self.message
        found: dict[str, Any] = self.message["result"]
        return found

    @property
    def error(self) -> dict[str, Any]:
        assert "error" in self.message, self.message
        found: dict[str, Any] = self.message["error"]
        return found

    @property
    def payload(self) -> dict[str, Any]:
        """What a tool returned, checked to be the same as text and as object."""
        body: dict[str, Any] = self.result["structuredContent"]
        (content,) = self.result["content"]
        assert content["type"] == "text"
        assert json.loads(content["text"]) == body
        return body

    @property
    def ok(self) -> dict[str, Any]:
        """The payload of a call that went well."""
        assert not self.result.get("isError"), self.payload
        return self.payload

    @property
    def code(self) -> str:
        """The error code of a tool error, a protocol error or a refusal; "" when all went well."""
        if "error" in self.message and "jsonrpc" in self.message:
            return str((self.message["error"].get("data") or {}).get("code", self.message["error"]["code"]))
        if "code" in self.message:
            return str(self.message["code"])
        return str(self.payload["code"]) if self.result.get("isError") else ""


class Client:
    """What both transports share."""

    ids = 0

    def next_id(self) -> int:
        self.ids += 1
        return self.ids

    def send(self, message: dict[str, Any]) -> Answer:
        raise NotImplementedError

    def initialize(self, version: str = VERSION) -> Answer:
        params = {"protocolVersion": version, **_INFO}
        answer = self.request("initialize", params)
        if "result" in answer.message:
            self.notify("notifications/initialized")
        return answer

    def request(self, method: str, params: dict[str, Any] | None = None, *, id: Any = None) -> Answer:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self.next_id() if id is None else id, "method": method}
        if params is not None:
            message["params"] = params
        return self.send(message)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method} | ({"params": params} if params is not None else {}))

    def call(self, tool: str, meta: dict[str, Any] | None = None, *, id: Any = None, **arguments: Any) -> Answer:
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if meta is not None:
            params["_meta"] = meta
        return self.request("tools/call", params, id=id)

    def tools(self) -> dict[str, dict[str, Any]]:
        return {t["name"]: t for t in self.request("tools/list").result["tools"]}


class HttpClient(Client):
    """One connection and, after `initialize`, one session."""

    def __init__(self, port: int, token: str | None, *, timeout: float = 60) -> None:
        self.port = port
        self.token = token
        self.session: str | None = None
        self.timeout = timeout
        self.extra: dict[str, str] = {}
        self._connection: http.client.HTTPConnection | None = None

    def headers(self) -> dict[str, str]:
        found = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.token is not None:
            found["Authorization"] = f"Bearer {self.token}"
        if self.session is not None:
            found |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": VERSION}
        return found | self.extra

    def send(self, message: dict[str, Any]) -> Answer:
        return self.post(json.dumps(message).encode())

    def post(self, body: bytes, path: str = "/mcp", method: str = "POST") -> Answer:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        try:
            self._connection.request(method, path, body, self.headers())
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        headers = {name.lower(): value for name, value in response.getheaders()}
        self.session = self.session or headers.get("mcp-session-id")
        if headers.get("content-type", "").startswith("text/event-stream"):
            *before, last = _events(text)
            return Answer(response.status, last, before, headers)
        return Answer(response.status, json.loads(text) if text else {}, [], headers)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class StdioClient(Client):
    """A server process on pipes. `stray` keeps notifications that belong to no request."""

    def __init__(self, environ: dict[str, str], *, timeout: float = 60, command: list[str] | None = None) -> None:
        argv = command or [sys.executable, "-P", "-m", "swarm_mcp", "--stdio"]
        self.timeout = timeout
        self.stray: list[dict[str, Any]] = []
        self._buffer = b""
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
        )

    def send(self, message: dict[str, Any]) -> Answer:
        self.write(json.dumps(message).encode() + b"\n")
        if "id" not in message:
            return Answer(0, {})
        return self.answer_to(message["id"])

    def write(self, raw: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(raw)
        self.process.stdin.flush()

    def answer_to(self, id: Any) -> Answer:
        """Read until the answer with this id has come; what comes before it is kept."""
        before: list[dict[str, Any]] = []
        while True:
            message = self.read()
            if message.get("id") == id and "method" not in message:
                return Answer(0, message, before)
            before.append(message)

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        deadline = time.monotonic() + self.timeout
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError("the server did not answer")
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                raise EOFError(f"the server ended: {self.stderr()}")
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def stderr(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode(errors="replace")

    def close(self) -> int:
        with contextlib.suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(20)
        finally:
            for pipe in (self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()


def _events(text: bytes) -> Iterator[dict[str, Any]]:
    for block in text.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
        if data:
            yield json.loads(b"\n".join(data))
