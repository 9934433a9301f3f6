"""Dialogs of the real Claude Code are answered from outside, by choice, and only the one that is still shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swarm_core.errors import SwarmError
from swarm_core.models import Instance
from swarm_core.ops import dialogs
from swarm_core.swarm import Swarm
from tests.e2e.test_claude_messages import wait_state
from tests.fakes.messages_api import Play, Reply, Text, ToolUse, asked
from tests.integration.claude_fixture import ClaudeWorld, claude_home, claude_program, claude_world, messages
from tests.support import wait_until

__all__ = ["claude_home", "claude_program", "claude_world", "messages"]

TOUCH = ToolUse("Bash", {"command": "touch first.txt", "description": "Make the first"})
AGAIN = ToolUse("Bash", {"command": "touch second.txt", "description": "Make the second"})
QUESTION = ToolUse(
    "AskUserQuestion",
    {
        "questions": [
            {
                "question": "Which colour shall the button have?",
                "header": "Colour",
                "multiSelect": False,
                "options": [
                    {"label": "Red", "description": "Like a warning"},
                    {"label": "Blue", "description": "Like the sea"},
                ],
            }
        ]
    },
)


def shown(swarm: Swarm, work: Instance, text: str) -> dict[str, Any]:
    """The question that is kept with the instance, once it is the one with the text."""

    def read() -> dict[str, Any] | None:
        found = dialogs.shown(swarm.find(work.id))
        return found if found and text in found["text"] else None

    found = wait_until(read, timeout=40, what=f"the dialog {text!r} is read")
    assert isinstance(found, dict)
    return found


def start(claude_world: ClaudeWorld, swarm: Swarm, *replies: Reply) -> Instance:
    claude_world.play(Play().when(asked("make it")).then(*replies))
    return claude_world.work(swarm, "make it")


def made(work: Instance) -> list[str]:
    return sorted(p.name for p in Path(work.worktree_path).glob("*.txt"))


@pytest.mark.parametrize(("answer", "files"), [("yes", ["first.txt"]), ("no", [])])
def test_the_command_line_shows_the_permission_and_answers_it(
    claude_world: ClaudeWorld, answer: str, files: list[str]
) -> None:
    with claude_world.world.open() as swarm:
        work = start(claude_world, swarm, TOUCH, Text("Made."))
        known = shown(swarm, work, "touch first.txt")
        assert known["kind"] == "permission"
        assert known["choices"][0] == "Yes"
        assert known["choices"][-1].startswith("No")
        told = claude_world.world.command("show", work.id).stdout.decode()
        assert "touch first.txt" in told
        assert f"swarm answer {work.id} --choice N" in told
        choice = 1 if answer == "yes" else len(known["choices"])
        done = claude_world.world.command("answer", work.id, "--choice", str(choice))
        assert done.returncode == 0, done.stderr
        claude_world.wait_activity(work, "idle")
        assert made(work) == files
        (event,) = [e for e in swarm.events(after=0, limit=1000) if e.name == "dialog:answered"]
        assert (event.actor, event.metadata["digest"]) == ("operator", known["digest"])
        assert (event.metadata["choice"], event.metadata["answer"]) == (choice, known["choices"][choice - 1])
        assert swarm.find(work.id).blocked_on == ""


def test_a_question_is_answered_by_its_second_choice(claude_world: ClaudeWorld) -> None:
    with claude_world.world.open() as swarm:
        work = start(claude_world, swarm, QUESTION, Text("Blue it is."))
        known = shown(swarm, work, "Which colour")
        assert known["kind"] == "question"
        assert [c.split(" · ")[0] for c in known["choices"][:2]] == ["Red", "Blue"]
        message = swarm.message(work.id, "1")
        wait_state(swarm, message, "held")
        swarm.answer(work.id, choice=2, actor="kim")
        got = claude_world.api.wait_for(lambda r: bool(r.tool_results), marker=work.conversation_id)
        [result] = got.tool_results
        assert "Blue" in result.text
        assert "Red" not in result.text
        wait_state(swarm, message, "acknowledged")
        (event,) = [e for e in swarm.events(after=0, limit=1000) if e.name == "dialog:answered"]
        assert (event.actor, event.metadata["choice"]) == ("kim", 2)
        assert "Which colour shall the button have?" in event.metadata["question"]


def test_an_answer_to_a_dialog_that_was_answered_meanwhile_is_refused(claude_world: ClaudeWorld) -> None:
    """The next one looks alike and is about something else."""
    with claude_world.world.open() as swarm:
        work = start(claude_world, swarm, TOUCH, AGAIN, Text("Made."))
        first = shown(swarm, work, "touch first.txt")
        swarm.answer(work.id, choice=1, digest=first["digest"])
        second = shown(swarm, work, "touch second.txt")
        assert made(work) == ["first.txt"]
        with pytest.raises(SwarmError) as failed:
            swarm.answer(work.id, choice=1, digest=first["digest"])
        assert failed.value.code == "DIALOG_CHANGED"
        assert made(work) == ["first.txt"]
        assert dialogs.shown(swarm.find(work.id)) == second
        swarm.answer(work.id, choice=1, digest=second["digest"])
        claude_world.wait_activity(work, "idle")
        assert made(work) == ["first.txt", "second.txt"]
