"""The contract with clients: versions, the shape of results and errors, and the numbers of protocol errors."""

from __future__ import annotations

import importlib.metadata
import json
import re
from typing import Any

import mcp_types as t
from mcp.shared.exceptions import MCPError

from swarm_core.errors import Conflict, Denied, ExternalFailure, NotFound, SwarmError

NAME = "swarm"
SCHEMA_VERSION = "1.0.0"
TOOL_VERSION = importlib.metadata.version("swarm-coordinator")

QUEUE_OVERLOADED = -32001
UNAUTHORIZED = -32000

# The codes every client may rely on; ours are more exact and each belongs to one of these.
_CANONICAL = {
    "UNAUTHORIZED": "UNAUTHORIZED",
    "CANCELLED": "CANCELLED",
    "TOOL_TIMEOUT": "TOOL_TIMEOUT",
    "QUEUE_OVERLOADED": "QUEUE_OVERLOADED",
    "INTERNAL_ERROR": "INTERNAL",
    "AGENT_NOT_INSTALLED": "CAPABILITY_MISSING",
    "TMUX_NOT_AVAILABLE": "CAPABILITY_MISSING",
}
_PATH = re.compile(r"(?<![\w:/.])/(?:[^\s/'\":,;()\[\]]+/)+([^\s/'\":,;()\[\]]*)")


def canonical(error: SwarmError) -> str:
    if error.code in _CANONICAL:
        return _CANONICAL[error.code]
    if isinstance(error, Denied):
        return "FORBIDDEN"
    if isinstance(error, NotFound):
        return "NOT_FOUND"
    return "INTERNAL" if isinstance(error, ExternalFailure) else "INVALID_REQUEST"


def category(error: SwarmError) -> str:
    """validation, state, external or database."""
    if error.code.startswith("DATABASE_") or error.code == "DISK_FULL":
        return "database"
    if isinstance(error, ExternalFailure):
        return "external"
    return "state" if isinstance(error, Conflict) else "validation"


def failure(error: SwarmError, *, tool: str, instance_id: str | None) -> dict[str, Any]:
    """The body of a tool error. `code` and `message` are there twice: old clients read them at the top."""
    details = without_paths(error.details)
    message = str(without_paths(error.message))
    body: dict[str, Any] = {"code": error.code, "message": message}
    body["details"] = details
    body["recovery_hint"] = without_paths(error.hint) if error.hint else None
    body |= {"instance_id": instance_id, "tool_name": tool}
    body |= {"category": category(error), "canonical": canonical(error)}
    more = details if isinstance(details, dict) else {}
    return {**more, "ok": False, "code": error.code, "message": message, "error": body}


def result(payload: dict[str, Any], *, is_error: bool = False) -> t.CallToolResult:
    """One text item of compact JSON and the same object beside it."""
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
    content: list[t.ContentBlock] = [t.TextContent(type="text", text=text)]
    return t.CallToolResult(content=content, structured_content=payload, is_error=is_error)


def protocol_error(number: int, code: str, message: str, **data: Any) -> MCPError:
    """A JSON-RPC error. Clients show only `message`, so it has to say everything that matters."""
    return MCPError(number, message, {"code": code, "message": message, **data})


def without_paths(value: Any) -> Any:
    """The value with the folders of absolute paths taken out: they are nobody's business but the machine's."""
    if isinstance(value, str):
        return _PATH.sub(lambda m: f"<path>/{m[1]}", value)
    if isinstance(value, dict):
        return {k: without_paths(v) for k, v in value.items() if k not in ("argv", "undo")}
    if isinstance(value, list | tuple):
        return [without_paths(v) for v in value]
    return value
