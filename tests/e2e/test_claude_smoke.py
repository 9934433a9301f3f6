"""Claude Code itself, started by swarm: it reaches our tools, and its hooks tell what it is doing."""

from __future__ import annotations

import json
import threading

from tests.fakes.messages_api import Held, Play, Text, ToolUse, asked
from tests.integration.claude_fixture import ClaudeWorld, claude_home, claude_program, claude_world, messages

__all__ = ["claude_home", "claude_program", "claude_world", "messages"]


def test_claude_calls_our_tool_and_its_hooks_tell_what_it_does(claude_world: ClaudeWorld) -> None:
    gate = threading.Event()
    call = ToolUse("mcp__swarm__query_instances", {})
    claude_world.play(Play().when(asked("look around")).then(call, Held(gate, Text("I have looked."))))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")

    asked_back = claude_world.api.wait_for(lambda r: bool(r.tool_results), marker=work.conversation_id)
    assert "mcp__swarm__query_instances" in asked_back.tools
    assert work.worktree_path in asked_back.text
    [result] = asked_back.tool_results
    assert not result.is_error
    assert work.id in json.dumps(json.loads(result.text))

    busy = claude_world.wait_activity(work, "busy")
    assert busy.activity_source == "hook"
    gate.set()
    idle = claude_world.wait_activity(work, "idle")
    assert idle.activity_source == "hook"
    assert [r.conversation for r in claude_world.api.turns()] == [work.conversation_id] * 2
