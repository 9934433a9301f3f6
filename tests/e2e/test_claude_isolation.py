"""The real Claude Code stays in its worktree: a file elsewhere is refused, and what its shell does is told."""

from __future__ import annotations

from pathlib import Path

from swarm_core.ops import dialogs
from tests.fakes.messages_api import Play, Text, ToolUse, asked
from tests.integration.claude_fixture import ClaudeWorld, claude_home, claude_program, claude_world, messages
from tests.support import wait_until

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


def test_a_shell_command_that_writes_into_the_worktree_of_another_is_reported_at_once(
    claude_world: ClaudeWorld,
) -> None:
    with claude_world.world.open() as swarm:
        other = claude_world.work(swarm, "wait")
        claude_world.wait_activity(other, "idle", timeout=60)
        stray = Path(other.worktree_path, "made.txt")
        call = ToolUse("Bash", {"command": f"echo not here > {stray}", "description": "Make it"})
        claude_world.play(Play().when(asked("make it")).then(call, Text("It is done.")))
        work = claude_world.work(swarm, "make it")
        wait_until(lambda: dialogs.shown(swarm.find(work.id)), timeout=60, what="it asks for the permission")
        assert not stray.exists()
        swarm.answer(work.id, choice=1)
        claude_world.api.wait_for(lambda r: bool(r.tool_results), marker=work.conversation_id, timeout=60)
        assert stray.read_text() == "not here\n"
        (told,) = [e for e in swarm.events(after=0, limit=1000) if e.name == "checkout:touched"]
        assert (told.instance_id, told.metadata["owner"], told.metadata["tool"]) == (work.id, other.id, "Bash")
        assert (told.metadata["files"], told.metadata["certain"]) == (["made.txt"], False)
        assert swarm.find(work.id).needs_person == ""
