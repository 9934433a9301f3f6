"""The contract with MCP clients: the shape of results and errors, and the numbers of protocol errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import mcp_types as t
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from swarm_core.contract import NAME, SCHEMA_VERSION, TOOL_VERSION, canonical, category, without_paths
from swarm_core.errors import SwarmError

QUEUE_OVERLOADED = -32001
UNAUTHORIZED = -32000
_as_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_MOST_DETAILS = 20
_LONGEST_PATH = 200

__all__ = ["NAME", "SCHEMA_VERSION", "TOOL_VERSION", "canonical", "category", "without_paths"]


def failure(
    error: SwarmError, *, tool: str, instance_id: str | None, folders: Sequence[str] = ()
) -> dict[str, Any]:
    """The body of a tool error. `code` and `message` are there twice: old clients read them at the top."""
    details = without_paths(error.details, folders)
    message = str(without_paths(error.message, folders))
    body: dict[str, Any] = {"code": error.code, "message": message}
    body["details"] = details
    body["recovery_hint"] = without_paths(error.hint, folders) if error.hint else None
    body |= {"instance_id": instance_id, "tool_name": tool}
    body |= {"category": category(error), "canonical": canonical(error)}
    more = details if isinstance(details, dict) else {}
    return {**more, "ok": False, "code": error.code, "message": message, "error": body}


def result(payload: dict[str, Any], *, is_error: bool = False) -> dict[str, Any]:
    """One text item of compact JSON and the same object beside it, as it goes over the wire."""
    content = [{"type": "text", "text": _as_text(payload)}]
    # The 2026 era needs the last; for the others the SDK takes it out.
    return {"content": content, "structuredContent": payload, "isError": is_error, "resultType": "complete"}


def protocol_error(number: int, code: str, message: str, **data: Any) -> MCPError:
    """A JSON-RPC error. Clients show only `message`, so it has to say everything that matters."""
    return MCPError(number, message, {"code": code, "message": message, **data})


def invalid(about: str, error: ValidationError) -> MCPError:
    """A violation of a schema, with the names of the fields where a client shows them."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    details = [
        {"path": "/".join(map(str, e["loc"]))[:_LONGEST_PATH], "type": e["type"], "message": e["msg"]}
        for e in found[:_MOST_DETAILS]
    ]
    said = "; ".join(f"{d['path']}: {d['message']}" if d["path"] else d["message"] for d in details[:5])
    return protocol_error(t.INVALID_PARAMS, "INVALID_REQUEST", f"{about}: {said}"[:1000], details=details)
