"""The contract with clients: versions, the shape of results and errors, and the numbers of protocol errors."""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Sequence
from typing import Any

import mcp_types as t
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from swarm_core.errors import Conflict, Denied, ExternalFailure, NotFound, SwarmError

NAME = "swarm"
SCHEMA_VERSION = "1.1.0"
TOOL_VERSION = importlib.metadata.version("swarm-coordinator")

QUEUE_OVERLOADED = -32001
UNAUTHORIZED = -32000
_as_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_MOST_DETAILS = 20
_LONGEST_PATH = 200

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
# What the caller did not name and cannot change by asking differently.
_OUTSIDE = frozenset(
    {"GIT_REPOSITORY_NOT_FOUND", "GIT_REPOSITORY_INVALID", "WORKTREE_NOT_FOUND", "AGENT_NOT_INSTALLED"}
)
_PATH = re.compile(r"(?<![\w/.>])/(?:[^\s/'\":,;()\[\]]+/)+([^\s/'\":,;()\[\]]*)")
_FOLDER = "/\ue000"


def canonical(error: SwarmError) -> str:
    if error.code in _CANONICAL:
        return _CANONICAL[error.code]
    if isinstance(error, Denied):
        return "FORBIDDEN"
    if isinstance(error, NotFound):
        return "NOT_FOUND"
    return "INTERNAL" if category(error) in ("external", "database") else "INVALID_REQUEST"


def category(error: SwarmError) -> str:
    """validation, state, external or database."""
    if error.code.startswith("DATABASE_") or error.code == "DISK_FULL":
        return "database"
    if isinstance(error, ExternalFailure) or error.code in _OUTSIDE:
        return "external"
    return "state" if isinstance(error, Conflict) else "validation"


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


def without_paths(value: Any, folders: Sequence[str] = ()) -> Any:
    """The value with the folders of absolute paths taken out: they are nobody's business but the machine's.

    Where a path ends nobody can tell if there are spaces in it, unless it begins with one of the known `folders`.
    """
    if isinstance(value, str):
        for folder in sorted(folders, key=len, reverse=True):
            value = value.replace(folder, _FOLDER)
        return _PATH.sub(lambda m: f"<path>/{m[1]}", value).replace(_FOLDER, "<path>")
    if isinstance(value, dict):
        return {k: without_paths(v, folders) for k, v in value.items() if k not in ("argv", "undo")}
    if isinstance(value, list | tuple):
        return [without_paths(v, folders) for v in value]
    return value
