"""A permission dialog of the real Claude Code is answered through its own hook: no key is pressed."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm_core.models import Instance
from swarm_core.ops import dialogs
from swarm_core.swarm import Swarm
from tests.fakes.messages_api import Play, Text, ToolUse, asked
from tests.integration.claude_fixture import ClaudeWorld, claude_home, claude_program, claude_world, messages
from tests.support import wait_until

__all__ = ["claude_home", "claude_program", "claude_world", "messages"]


def asks(claude_world: ClaudeWorld, swarm: Swarm) -> Instance:
    call = ToolUse("Bash", {"command": "touch made.txt && echo made", "description": "Make it"})
    claude_world.play(Play().when(asked("make it")).then(call, Text("It is done.")))
    work = claude_world.work(swarm, "make it")

    def read() -> bool:
        return dialogs.shown(swarm.find(work.id)) is not None

    wait_until(read, timeout=40, what="the dialog is read")
    return swarm.find(work.id)


def test_a_yes_runs_the_command(claude_world: ClaudeWorld) -> None:
    with claude_world.world.open() as swarm:
        work = asks(claude_world, swarm)
        known = dialogs.shown(work)
        assert known is not None
        assert known["held"]
        assert "touch made.txt" in known["text"]
        swarm.answer(work.id, choice=1, actor="kim")
        claude_world.wait_activity(work, "idle")
        assert Path(work.worktree_path, "made.txt").exists()
        assert "Allowed by PermissionRequest hook" in claude_world.screen(work)
        (told,) = [e for e in swarm.events(after=0, limit=1000) if e.name == "dialog:answered"]
        assert (told.actor, told.metadata["answer"]) == ("kim", "Yes")


def test_a_no_ends_the_turn_and_runs_nothing(claude_world: ClaudeWorld) -> None:
    with claude_world.world.open() as swarm:
        work = asks(claude_world, swarm)
        swarm.answer(work.id, choice=3)
        claude_world.wait_activity(work, "idle")
        assert not Path(work.worktree_path, "made.txt").exists()
        assert len(claude_world.api.turns(work.conversation_id)) == 1, "the model was not asked again"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_without_the_coordinator_the_dialog_is_answered_by_its_keys(claude_world: ClaudeWorld, how: str) -> None:
    with claude_world.world.open() as swarm:
        work = asks(claude_world, swarm)
        if how == "stop":
            assert claude_world.mcp.stop() == 0
        else:
            claude_world.mcp.kill()
        swarm.answer(work.id, choice=1)
        wait_until(Path(work.worktree_path, "made.txt").exists, timeout=30, what="the command ran")
