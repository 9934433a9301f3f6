"""A real MCP server (low-level SDK, Streamable HTTP, bearer tokens) on loopback, in a thread of the test."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as t
import uvicorn
from mcp.server import Server
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

TOKEN = "a-token-of-the-tests"


@dataclass
class Recorder:
    """What the server saw."""

    url: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    hooks: list[tuple[str, dict[str, Any], str | None]] = field(default_factory=list)
    initialised: int = 0


class OneToken(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        if token != TOKEN:
            return None
        return AccessToken(
            token=token, client_id="agent", subject="agent", scopes=["swarm"], claims={"iss": "swarm"}
        )


def build(recorder: Recorder) -> Server[Any]:
    async def on_list_tools(ctx: Any, params: Any) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[t.Tool(name="echo", input_schema={"type": "object"})])

    async def on_call_tool(ctx: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
        arguments = dict(params.arguments or {})
        recorder.calls.append((params.name, arguments))
        if params.name == "echo":
            return _result({"echo": arguments})
        if params.name == "refuse":
            return _result({"ok": False, "code": "DENIED"}, is_error=True)
        if params.name == "progress":
            for step in range(3):
                await ctx.session.report_progress(step, 3, "going")
                await anyio.sleep(0)
            return _result({"done": True})
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")

    async def count(ctx: Any, call_next: Any) -> Any:
        recorder.initialised += ctx.method == "initialize"
        return await call_next(ctx)

    server: Server[Any] = Server("fake", version="1", on_list_tools=on_list_tools, on_call_tool=on_call_tool)
    server.middleware.clear()
    server.middleware.append(count)
    return server


def _result(body: dict[str, Any], *, is_error: bool = False) -> t.CallToolResult:
    text = t.TextContent(type="text", text=json.dumps(body))
    return t.CallToolResult(content=[text], structured_content=body, is_error=is_error)


@contextmanager
def running(*, json_response: bool = False, port: int = 0, recorder: Recorder | None = None) -> Iterator[Recorder]:
    """Serve until the block ends; every session is forgotten with it."""
    recorder = recorder or Recorder()

    async def hook(request: Request) -> Response:
        recorder.hooks.append(
            (request.path_params["event"], await request.json(), request.headers.get("authorization"))
        )
        return JSONResponse({})

    async def health(request: Request) -> Response:
        return JSONResponse({"ok": True})

    app = build(recorder).streamable_http_app(
        json_response=json_response,
        auth=AuthSettings(issuer_url="http://127.0.0.1", resource_server_url=None, required_scopes=["swarm"]),
        token_verifier=OneToken(),
        custom_starlette_routes=[Route("/hooks/{event}", hook, methods=["POST"]), Route("/health", health)],
    )
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    recorder.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 15
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.started
    try:
        yield recorder
    finally:
        server.should_exit = True
        thread.join(timeout=15)
        listener.close()
        assert not thread.is_alive()
