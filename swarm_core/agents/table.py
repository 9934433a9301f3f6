"""The one table of agents and its lookup."""

from __future__ import annotations

import difflib

from swarm_core.agents.base import Agent
from swarm_core.agents.claude_code import ClaudeCode
from swarm_core.agents.codex import Codex
from swarm_core.agents.gemini import Gemini
from swarm_core.agents.opencode import OpenCode
from swarm_core.agents.scripted import Scripted
from swarm_core.errors import NotFound

AGENTS: dict[str, Agent] = {
    "claude": ClaudeCode(),
    "codex": Codex(),
    "gemini": Gemini(),
    "opencode": OpenCode(),
    "scripted": Scripted(),
}


def get(name: str) -> Agent:
    agent = AGENTS.get(name)
    if agent is None:
        close = difflib.get_close_matches(name[:100].lower(), AGENTS, n=1)
        suggestion = f"Did you mean {close[0]}? " if close else ""
        raise NotFound(
            f"there is no agent named {name[:100]!r}",
            code="AGENT_UNKNOWN",
            hint=f"{suggestion}Known agents: {', '.join(AGENTS)}.",
            details={"name": name[:100], "known": list(AGENTS)},
        )
    return agent
