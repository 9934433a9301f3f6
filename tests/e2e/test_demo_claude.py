"""`swarm demo --agent claude`: the real program with a scripted model, and what is said when it cannot be used."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_demo import COMMAND, assert_nothing_is_left
from tests.fakes.messages_api import MessagesApi, Play, Request, Text, ToolUse, asked, says
from tests.integration.claude_fixture import ClaudeHome, claude_program, messages

__all__ = ["claude_program", "messages"]

SAVE = "import json\n\n\ndef save(tasks, path):\n    path.write_text(json.dumps(tasks))\n"
LOAD = SAVE + "\n\ndef load(path):\n    return json.loads(path.read_text()) if path.exists() else []\n"


def write_storage(text: str) -> Any:
    """The model writes the file where it works, which it knows from its system prompt."""

    def answer(request: Request) -> ToolUse:
        found = re.search(r"[Ww]orking directory: (\S+)", request.text)
        assert found is not None
        return ToolUse("Write", {"file_path": f"{found[1]}/storage.py", "content": text})

    return answer


def bash(command: str) -> ToolUse:
    return ToolUse("Bash", {"command": command, "description": "git"})


def tool(name: str, **arguments: str) -> ToolUse:
    return ToolUse(f"mcp__swarm__{name}", arguments)


def loop() -> Play:
    """An author that forgets something, a reviewer that says so, and then approves."""
    play = Play()
    commit = (bash("git add -A"), bash("git commit -q -m 'Keep tasks in a file'"), tool("spawn_review_instance"))
    said = {"feedback": "storage.py:4: load() is missing", "feedback_type": "needs_work"}
    play.when(asked("Round 1 of")).then(
        bash("git log --oneline"), tool("send_feedback", **said), Text("Sent back.")
    )
    approve = tool("update_instance_status", status="approved", message="load() is there.")
    play.when(asked("Round 2 of")).then(bash("git diff HEAD~1"), approve, Text("Approved."))
    play.when(asked("Add a module storage.py")).then(write_storage(SAVE), *commit, Text("I wait for the review."))
    play.when(says("Feedback from review-")).then(write_storage(LOAD), *commit, Text("Reworked."))
    pull = tool("create_pull_request", title="Keep tasks in a file", description="save() and load()")
    play.when(says(" approved commit ")).then(pull, Text("Opened."))
    return play


@pytest.fixture
def environ(claude_program: Path, messages: MessagesApi, tmp_path: Path) -> dict[str, str]:
    """That of a person who is signed in and has never seen the demo's folder."""
    home = ClaudeHome(tmp_path / "claude-home", claude_program, messages.url)
    home.write()
    return {"PATH": os.environ["PATH"]} | home.environ


def demo(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[bytes]:
    argv = [*COMMAND, "demo", "--agent", "claude", *words]
    return subprocess.run(argv, env=environ, capture_output=True, timeout=280, check=False)


@pytest.mark.timeout(300)
def test_claude_goes_through_the_loop_and_leaves_nothing_behind(
    environ: dict[str, str], messages: MessagesApi
) -> None:
    messages.script = loop()
    done = demo(environ, "--json")
    told = done.stderr.decode()
    assert done.returncode == 0, f"{done.stdout.decode()}\n{told}"
    result = json.loads(done.stdout)
    assert all(check["ok"] for check in result["checks"])
    [storage] = result["agents"]
    assert [review["verdict"] for review in storage["reviews"]] == ["needs_work", "approved"]
    assert (storage["status"], storage["commits"]) == ("pr_merged", 2)
    assert "may trust the demo's own folder" in told
    assert "asks you" not in told
    assert_nothing_is_left(str(Path(result["home"]).parent))


def failure(environ: dict[str, str]) -> str:
    done = demo(environ, "--json")
    assert done.returncode == 1
    return str(json.loads(done.stdout)["error"]["code"])


def test_without_the_program_the_demo_says_so(environ: dict[str, str], tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    assert failure(environ | {"PATH": str(programs)}) == "AGENT_NOT_INSTALLED"


def test_without_an_account_the_demo_says_so(environ: dict[str, str]) -> None:
    assert failure({k: v for k, v in environ.items() if k != "ANTHROPIC_API_KEY"}) == "AGENT_NOT_SIGNED_IN"
