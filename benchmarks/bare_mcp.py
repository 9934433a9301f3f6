"""A bare low-level MCP server that answers one call with the JSON it was given: what a call costs without us.

`python -m benchmarks.bare_mcp JSON` prints its port and serves on the loopback until it is killed.
"""

from __future__ import annotations

import json
import socket
import sys

import mcp_types as t
import uvicorn
from mcp.server import Server


def main(answer: dict[str, object]) -> None:
    text = json.dumps(answer, separators=(",", ":"), ensure_ascii=False)

    async def list_tools(ctx: object, params: object) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[t.Tool(name="query_instances", input_schema={"type": "object"})])

    async def call_tool(ctx: object, params: t.CallToolRequestParams) -> t.CallToolResult:
        return t.CallToolResult(content=[t.TextContent(type="text", text=text)], structured_content=answer)

    server: Server = Server("bare", on_list_tools=list_tools, on_call_tool=call_tool)
    server.middleware.clear()
    app = server.streamable_http_app(json_response=True)
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    options = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning")
    uvicorn.Server(options).run(sockets=[listening])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
