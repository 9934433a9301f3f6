"""A small MCP server on our transports, run as a program of its own: `mcp_probe.py http` or `mcp_probe.py stdio`.

Over HTTP the first line on stdout is the port. `/state` tells what happened inside, `/revoke` ends the sessions of
one client; `/mcp` has the usual patience, `/quick` almost none. The token `token-ann` stands for the client ann.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as t
import uvicorn
from mcp.server import Server
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from pydantic import ConfigDict
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from swarm_mcp.stdio import stdio_streams
from swarm_mcp.transport import HybridSessionManager

QUICK = 0.05
GRACE = 2


class Anything(t.NotificationParams):
    model_config = ConfigDict(extra="allow")


class Probe:
    def __init__(self) -> None:
        self.held: dict[str, asyncio.Event] = {}
        self.cancelled: list[str] = []
        self.noticed: list[dict[str, Any]] = []
        self.ending = asyncio.Event()
        self.server: Server[Any] = Server("probe", on_list_tools=self._list, on_call_tool=self._call)
        self.server.middleware.clear()
        self.server.add_notification_handler("$/cancelRequest", Anything, self._notice)
        self.server.add_request_handler("shutdown", t.RequestParams, self._shutdown)

    async def _list(self, ctx: Any, params: Any) -> t.ListToolsResult:
        names = [name.removeprefix("tool_") for name in dir(self) if name.startswith("tool_")]
        return t.ListToolsResult(tools=[t.Tool(name=name, input_schema={"type": "object"}) for name in names])

    async def _call(self, ctx: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
        text = await getattr(self, f"tool_{params.name}")(ctx, **(params.arguments or {}))
        return t.CallToolResult(content=[t.TextContent(type="text", text=text)])

    async def _notice(self, ctx: Any, params: Anything) -> None:
        self.noticed.append(params.model_dump(exclude_none=True))

    async def _shutdown(self, ctx: Any, params: t.RequestParams) -> dict[str, Any]:
        return {}

    async def tool_echo(self, ctx: Any, text: str = "") -> str:
        return text

    async def tool_hold(self, ctx: Any, key: str) -> str:
        """Answers when somebody calls `release` with the same key."""
        released = self.held[key] = asyncio.Event()
        try:
            await released.wait()
        except asyncio.CancelledError:
            self.cancelled.append(key)
            raise
        finally:
            del self.held[key]
        return key

    async def tool_release(self, ctx: Any, key: str) -> str:
        self.held[key].set()
        return key

    async def tool_progress(self, ctx: Any, steps: int, key: str = "") -> str:
        for step in range(1, steps + 1):
            await ctx.session.report_progress(step, steps, f"step {step}")
        return await self.tool_hold(ctx, key) if key else "done"

    async def tool_linger(self, ctx: Any, steps: int = 0, key: str = "") -> str:
        """Answers only after the server was told to end."""
        await self.tool_progress(ctx, steps)
        self.held[key] = self.ending
        await self.ending.wait()
        await asyncio.sleep(0.3)
        return "lingered"

    async def tool_slow(self, ctx: Any, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slow"

    async def tool_ask(self, ctx: Any) -> str:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await ctx.session.elicit_form("who?", schema, related_request_id=ctx.request_id)
        return str((answer.content or {}).get("name"))

    async def tool_big(self, ctx: Any, size: int) -> str:
        return "x" * size

    async def tool_odd(self, ctx: Any) -> str:
        return "name-\udcff"

    async def tool_print(self, ctx: Any, text: str) -> str:
        print(text + " from print")
        os.write(1, (text + " from fd 1\n").encode())
        child = subprocess.run(["sh", "-c", f"echo {text} from a child; cat"], timeout=10, check=False)
        return str(child.returncode)

    async def tool_state(self, ctx: Any) -> str:
        return repr({"noticed": self.noticed, "threads": threading.active_count()})


class Verifier(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        name = token.removeprefix("token-")
        claims = {"iss": "probe"}
        return AccessToken(token=token, client_id=name, subject=name, scopes=[], claims=claims)


async def serve_http() -> None:
    probe = Probe()
    foreign: list[list[str]] = []

    def on_foreign(session_id: str, scope: Any) -> None:
        foreign.append([session_id, scope["user"].username])

    usual = HybridSessionManager(probe.server, on_foreign=on_foreign)
    quick = HybridSessionManager(probe.server, commit_after=QUICK)

    async def state(_: Request) -> JSONResponse:
        sessions = usual.open_sessions + quick.open_sessions
        said = {"held": sorted(probe.held), "cancelled": probe.cancelled, "foreign": foreign, "sessions": sessions}
        return JSONResponse(said)

    async def revoke(request: Request) -> JSONResponse:
        name = request.query_params["name"]
        return JSONResponse(await usual.terminate_where(lambda owner: owner["client_id"] == name))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with usual.run(), quick.run():
            yield

    app = Starlette(
        routes=[
            Route("/mcp", RequireAuthMiddleware(StreamableHTTPASGIApp(usual), [])),
            Route("/quick", RequireAuthMiddleware(StreamableHTTPASGIApp(quick), [])),
            Route("/state", state),
            Route("/revoke", revoke, methods=["POST"]),
        ],
        middleware=[
            Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(Verifier())),
            Middleware(AuthContextMiddleware),
        ],
        lifespan=lifespan,
    )
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=GRACE)
    server = HttpServer(config, probe, usual)
    # uvicorn raises the signal once more after its shutdown.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    print(listening.getsockname()[1], flush=True)
    await server.serve(sockets=[listening])


class HttpServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, probe: Probe, sessions: HybridSessionManager) -> None:
        super().__init__(config)
        self._probe = probe
        self._sessions = sessions

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._probe.ending.set()
        self._sessions.end_listening()
        await super().shutdown(sockets)


async def serve_stdio(answer_within: float) -> None:
    server = Probe().server
    async with stdio_streams(answer_within=answer_within) as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=["http", "stdio"])
    parser.add_argument("--answer-within", type=float, default=3.0)
    chosen = parser.parse_args()
    asyncio.run(serve_http() if chosen.transport == "http" else serve_stdio(chosen.answer_within))


if __name__ == "__main__":
    sys.exit(main())
