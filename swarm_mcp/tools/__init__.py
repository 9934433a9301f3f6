"""The tools, one module for each noun, and the table of them all."""

from __future__ import annotations

from swarm_mcp.registry import Tool
from swarm_mcp.tools import feedback, find, pulls, spawn, status, system

TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        spawn.REVIEW,
        pulls.CREATE,
        feedback.SEND,
        status.UPDATE,
        find.QUERY,
        spawn.FORK,
        find.SEARCH,
        pulls.QUERY,
        pulls.MERGE,
        system.STATUS,
    )
}
