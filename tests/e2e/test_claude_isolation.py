"""The real Claude Code is refused a file of the main checkout before it writes, and is told where its own is."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.messages_api import Play, Text, ToolUse, asked
from tests.integration.claude_fixture import ClaudeWorld, claude_home, claude_program, claude_world, messages

__all__ = ["claude_home", "claude_program", "claude_world", "messages"]


def test_a_write_into_the_main_checkout_is_refused_and_its_own_file_is_named(
    claude_world: ClaudeWorld,
) -> None:
    outside = claude_world.world.repo / "made.txt"
    call = ToolUse("Write", {"file_path": str(outside), "content": "not here\n"})
    claude_world.play(Play().when(asked("make it")).then(call, Text("It was refused.")))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "make it")
        claude_world.api.wait_for(lambda r: bool(r.tool_results), marker=work.conversation_id, timeout=60)
        claude_world.wait_activity(work, "idle", timeout=60)
        (denied,) = [e for e in swarm.events(after=0, limit=1000) if e.name == "tool:denied"]
        assert (denied.instance_id, denied.tool_name, denied.metadata["rule"]) == (work.id, "Write", "isolation")
    assert not outside.exists()
    (_, second) = claude_world.api.turns(work.conversation_id)
    said = str(second)
    assert "you may change files of your own worktree only" in said
    assert str(Path(work.worktree_path, "made.txt")) in said
