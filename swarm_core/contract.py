"""The contract with clients of every front end: versions, and to which well-known code each failure belongs."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from typing import Any

from swarm_core.errors import Conflict, Denied, ExternalFailure, NotFound, SwarmError

NAME = "swarm"
SCHEMA_VERSION = "1.1.0"
TOOL_VERSION = importlib.metadata.version("swarm-coordinator")

# The codes every client may rely on; ours are more exact and each belongs to one of these.
_CANONICAL = {
    "UNAUTHORIZED": "UNAUTHORIZED",
    "CANCELLED": "CANCELLED",
    "TOOL_TIMEOUT": "TOOL_TIMEOUT",
    "QUEUE_OVERLOADED": "QUEUE_OVERLOADED",
    "NO_INDEX": "NO_INDEX",
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
