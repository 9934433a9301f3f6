"""The contract with clients of every front end: versions, the one error object, and well-known codes."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from swarm_core.errors import Conflict, Denied, ExternalFailure, InvalidRequest, NotFound, SwarmError

NAME = "swarm"
SCHEMA_VERSION = "2.0.0"
TOOL_VERSION = importlib.metadata.version("swarm-coordinator")

# The codes every client may rely on; ours are more exact and each belongs to one of these.
CANONICAL = {
    "INVALID_REQUEST": "The request, its arguments or the state they meet do not allow it.",
    "UNAUTHORIZED": "No valid token.",
    "FORBIDDEN": "The caller may not do this.",
    "NOT_FOUND": "What was named does not exist.",
    "CAPABILITY_MISSING": "A program that is needed is not installed.",
    "NO_INDEX": "There is no database to look into.",
    "CANCELLED": "The work was cancelled and undone.",
    "INTERNAL": "A bug, or a failure of git, tmux, GitHub, SQLite or an agent program.",
    "QUEUE_OVERLOADED": "Too many calls are under way.",
    "TOOL_TIMEOUT": "It took longer than it may.",
}
CATEGORIES = ("validation", "state", "external", "database")
# The fields of every error object, over MCP and HTTP alike.
ERROR_FIELDS = {
    "code": "A stable word; programs match on it.",
    "message": "What happened, for a person.",
    "details": "Facts about it: an object, or for a violated schema the list of violations.",
    "recovery_hint": "What to do next; null when there is nothing to suggest.",
    "instance_id": "The instance it is about; null when it is about none.",
    "tool_name": "The tool that was called; null outside of tool calls.",
    "category": "validation, state, external or database.",
    "canonical": "The well-known code that `code` belongs to.",
    "retry": "Whether the same request may succeed later.",
}
_CANONICAL = {
    "UNAUTHORIZED": "UNAUTHORIZED",
    "CANCELLED": "CANCELLED",
    "TOOL_TIMEOUT": "TOOL_TIMEOUT",
    "QUEUE_OVERLOADED": "QUEUE_OVERLOADED",
    "NO_INDEX": "NO_INDEX",
    "INTERNAL": "INTERNAL",
    "AGENT_NOT_INSTALLED": "CAPABILITY_MISSING",
    "TMUX_NOT_AVAILABLE": "CAPABILITY_MISSING",
}
# What the caller did not name and cannot change by asking differently.
_OUTSIDE = frozenset(
    {"GIT_REPOSITORY_NOT_FOUND", "GIT_REPOSITORY_INVALID", "WORKTREE_NOT_FOUND", "AGENT_NOT_INSTALLED"}
)
# Conditions that pass by themselves.
_PASSING = frozenset({"INSTANCE_BUSY", "REQUEST_IN_PROGRESS"})
_LASTING = frozenset({"INTERNAL", "INTERRUPTED", "DATABASE_CORRUPT", "DATABASE_TOO_NEW"})
_MOST_VIOLATIONS = 20
_LONGEST_POINTER = 200
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


def may_retry(error: SwarmError) -> bool:
    """Whether the same request may succeed later without anybody changing it."""
    return error.code in _PASSING or (isinstance(error, ExternalFailure) and error.code not in _LASTING)


def error_object(
    error: SwarmError, *, tool: str | None = None, instance_id: str | None = None, folders: Sequence[str] = ()
) -> dict[str, Any]:
    """The one shape in which MCP and HTTP report a failure, without the paths of this machine."""
    violations = error.violations if isinstance(error, InvalidRequest) else []
    return {
        "code": error.code,
        "message": without_paths(error.message, folders),
        "details": violations or without_paths(error.details, folders),
        "recovery_hint": without_paths(error.hint, folders) if error.hint else None,
        "instance_id": instance_id,
        "tool_name": tool,
        "category": category(error),
        "canonical": canonical(error),
        "retry": may_retry(error),
    }


def violations(found: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What pydantic found wrong with a request, without repeating what was sent."""
    return [
        {"path": "/".join(map(str, e["loc"]))[:_LONGEST_POINTER], "type": e["type"], "message": e["msg"]}
        for e in list(found)[:_MOST_VIOLATIONS]
    ]


def nulls(given: Mapping[str, Any], names: Iterable[str]) -> list[dict[str, str]]:
    """Fields that are null: an optional field is left out, over MCP and HTTP alike."""
    return [
        {"path": name, "type": "null", "message": "must not be null; leave it out"}
        for name in names
        if name in given and given[name] is None
    ]


def described(listed: Sequence[Mapping[str, str]]) -> str:
    """The violations in words: many clients show nothing but the message."""
    return "; ".join(f"{v['path']}: {v['message']}" if v["path"] else v["message"] for v in listed[:5])[:1000]


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
