"""The real Claude Code through crashes: its own, the coordinator's, and tmux's. The conversation goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from swarm_core.models import Instance
from swarm_core.store import events
from swarm_core.swarm import Swarm
from tests.e2e.test_claude_messages import LOOK, conversation, header, idle, told, wait_seen, wait_state
from tests.fakes.messages_api import Held, Play, Reply, Text, asked, says
from tests.integration.claude_fixture import ClaudeWorld, claude_home, claude_program, claude_world, messages
from tests.support import wait_until

__all__ = ["claude_home", "claude_program", "claude_world", "messages"]


def wait_written(claude_world: ClaudeWorld, work: Instance, text: str, *, prompt: str = "look around") -> None:
    """The program writes its log some time after it has said something, a first prompt even after the answer."""

    def written() -> bool:
        log = claude_world.transcript(work)
        said = {kind: str([e.get("message") for e in log if e["type"] == kind]) for kind in ("user", "assistant")}
        return prompt in said["user"] and text in said["assistant"]

    wait_until(written, timeout=20, what=f"{prompt!r} and {text!r} are in the log")


def split_log(path: Path) -> tuple[str, str]:
    """The log until the first answer, and from there on."""
    log = [(line, json.loads(line)) for line in path.read_text().splitlines(keepends=True)]
    answered_at = min(entry["timestamp"] for _, entry in log if entry["type"] == "assistant")
    after = [line for line, entry in log if "uuid" in entry and entry["timestamp"] >= answered_at]
    return "".join(line for line, _ in log if line not in after), "".join(after)


def kill(claude_world: ClaudeWorld, work: Instance) -> None:
    """End the program with -9 and wait until that is known."""
    pid = claude_world.find(work).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    claude_world.wait_activity(work, "exited")


def revive(claude_world: ClaudeWorld) -> None:
    """Start the coordinator again where its agents know it."""
    claude_world.mcp.restart(MCP_SERVER_PORT=str(claude_world.mcp.port))


def calls_a_tool(claude_world: ClaudeWorld, swarm: Swarm, work: Instance) -> None:
    """The model is asked to call one of our tools, and has its result."""
    claude_world.play(Play().when(says("call it")).then(LOOK, Text("Called.")))
    message = swarm.message(work.id, "call it")
    got = claude_world.api.wait_for(lambda r: bool(r.tool_results) and message.id in r.text, timeout=60)
    [result] = got.tool_results
    assert not result.is_error, result.text
    assert work.id in result.text
    wait_state(swarm, message, "acknowledged")


def test_a_killed_claude_is_restarted_in_its_conversation_and_gets_what_waited(claude_world: ClaudeWorld) -> None:
    claude_world.play(Play().when(asked("look around")).then(Text("I have seen a heron.")))
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        wait_written(claude_world, work, "I have seen a heron.")
        kill(claude_world, work)
        dead = claude_world.find(work)
        assert (dead.status, dead.wanted, dead.exit_signal) == ("failed", "stopped", signal.SIGKILL)
        sent = [swarm.message(work.id, f"number {n}") for n in range(3)]
        again = swarm.restart(work.id)
        assert (again.epoch, again.conversation_id) == (2, work.conversation_id)
        for message in sent:
            wait_state(swarm, message, "acknowledged")
        assert all(told(swarm, m) == ["accepted", "injected", "seen", "acknowledged"] for m in sent)
    given = conversation(claude_world, work)
    assert "I have seen a heron." in given
    assert [given.count(header(m)) for m in sent] == [1, 1, 1]
    assert {r.session for r in claude_world.api.turns()} == {work.conversation_id}


def test_a_claude_resumed_without_a_prompt_asks_its_model_nothing_until_it_gets_a_message(
    claude_world: ClaudeWorld,
) -> None:
    claude_world.play(Play().when(asked("look around")).then(Text("I have seen a heron.")))
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        wait_written(claude_world, work, "I have seen a heron.")
        kill(claude_world, work)
        turns = len(claude_world.api.turns())
        again = swarm.restart(work.id, prompt=False)
        assert again.conversation_id == work.conversation_id
        claude_world.wait_activity(work, "idle")
        assert len(claude_world.api.turns()) == turns
        message = swarm.message(work.id, "what have you seen?")
        wait_state(swarm, message, "acknowledged")
        assert len(claude_world.api.turns()) == turns + 1
    assert "I have seen a heron." in conversation(claude_world, work)


def test_a_claude_that_is_killed_before_it_wrote_anything_down_has_its_task_after_the_restart(
    claude_world: ClaudeWorld,
) -> None:
    claude_world.play(Play().when(asked("count the herons")).then(Held(threading.Event(), Text("Never said."))))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "count the herons")
        claude_world.wait_activity(work, "busy")
        before = len(claude_world.api.turns())
        kill(claude_world, work)
        claude_world.play(Play())
        swarm.restart(work.id)
        claude_world.api.wait_for(lambda r: r.number > before and "count the herons" in r.text)
        claude_world.wait_activity(work, "idle")


@pytest.mark.parametrize("reply", [Text("Done."), LOOK], ids=["text", "tool"])
def test_a_coordinator_that_is_killed_in_the_middle_of_a_turn_finds_its_agent_again(
    claude_world: ClaudeWorld, reply: Reply
) -> None:
    gate = threading.Event()
    claude_world.play(Play().when(asked("look around")).then(Held(gate, reply), Text("Done now.")))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")
        claude_world.api.wait_for(asked("look around"))
        claude_world.wait_activity(work, "busy")
        claude_world.mcp.kill()
        message = swarm.message(work.id, "while you were away")
        revive(claude_world)
        assert claude_world.wait_activity(work, "busy").epoch == 1
        gate.set()
        wait_state(swarm, message, "acknowledged")
        assert conversation(claude_world, work).count(header(message)) == 1
        adopted = claude_world.wait_activity(work, "idle")
        assert (adopted.status, adopted.epoch, adopted.pid) == ("running", 1, work.pid)
        calls_a_tool(claude_world, swarm, work)


def test_a_turn_that_ends_while_the_coordinator_is_away_is_known_afterwards(claude_world: ClaudeWorld) -> None:
    """Its hooks had nobody to tell: the file that the program keeps says that it is idle."""
    gate = threading.Event()
    claude_world.play(Play().when(asked("look around")).then(Held(gate, Text("Done."))))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")
        claude_world.api.wait_for(asked("look around"))
        claude_world.wait_activity(work, "busy")
        claude_world.mcp.kill()
        gate.set()
        wait_until(
            lambda: [s["status"] for s in claude_world.home.sessions()] == ["idle"],
            timeout=30,
            what="its turn ends",
        )
        assert claude_world.find(work).activity == "busy"
        sent = [swarm.message(work.id, f"number {n}") for n in range(3)]
        revive(claude_world)
        known = claude_world.wait_activity(work, "idle")
        assert known.activity_source == "file"
        for message in sent:
            wait_seen(swarm, message)
        calls_a_tool(claude_world, swarm, work)
    given = conversation(claude_world, work)
    assert [given.count(header(m)) for m in sent] == [1, 1, 1]
    assert claude_world.find(work).epoch == 1


def test_a_claude_that_started_without_a_coordinator_gets_its_tools_later(
    claude_world: ClaudeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program tries only once by itself."""
    monkeypatch.setenv("MCP_SERVER_PORT", str(claude_world.mcp.port))
    claude_world.mcp.kill()
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")
        first = claude_world.api.wait_for(asked("look around"), timeout=60)
        assert LOOK.name not in first.tools
        revive(claude_world)
        wait_until(
            lambda: events.last_at(swarm.context.db, work.id, "mcp:connected"), timeout=60, what="it is connected"
        )
        calls_a_tool(claude_world, swarm, work)
        asked_for = [e for e in swarm.events(after=0, limit=10_000) if e.name == "mcp:reconnect"]
        assert [e.instance_id for e in asked_for] == [work.id]


def test_after_the_loss_of_tmux_one_command_resumes_the_conversations(claude_world: ClaudeWorld) -> None:
    claude_world.play(Play().when(asked("look around")).then(Text("I have seen a heron.")))
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        wait_written(claude_world, work, "I have seen a heron.")
        claude_world.world.kill_tmux()
        lost = claude_world.wait_activity(work, "exited")
        assert (lost.status, lost.activity_detail) == ("failed", "session lost")
        message = swarm.message(work.id, "are you there?")
        done = claude_world.world.command("resume")
        assert (done.returncode, work.id in done.stdout.decode()) == (0, True), done.stderr
        wait_state(swarm, message, "acknowledged")
        again = claude_world.world.command("resume")
        assert (again.returncode, again.stdout) == (0, b"no agent has lost its session\n")
        assert (swarm.find(work.id).epoch, swarm.find(work.id).status) == (2, "running")
    given = conversation(claude_world, work)
    assert "I have seen a heron." in given
    assert given.count(header(message)) == 1


def test_an_answer_that_was_written_before_its_question_is_in_the_resumed_conversation(
    claude_world: ClaudeWorld,
) -> None:
    """Killed then, the program would go on from the last line of its log, which is the question."""
    claude_world.play(Play().when(asked("look around")).then(LOOK, Text("I have seen a heron.")))
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        wait_written(claude_world, work, "I have seen a heron.")
        kill(claude_world, work)
        path = claude_world.home.transcript_path(work.conversation_id, work.worktree_path)
        until, after = split_log(path)
        path.write_text(after + until)
        sent = []
        for number in range(2):
            sent.append(swarm.message(work.id, f"number {number}"))
            swarm.restart(work.id)
            wait_state(swarm, sent[-1], "acknowledged")
            claude_world.wait_activity(work, "idle")
            wait_written(claude_world, work, "ok", prompt=sent[-1].id)
            given = conversation(claude_world, work)
            assert given.index("look around") < given.index("I have seen a heron.") < given.index(header(sent[0]))
            assert [given.count(header(m)) for m in sent] == [1] * len(sent)
            kill(claude_world, work)


def test_a_log_in_which_only_the_question_is_missing_is_begun_anew_with_the_question(
    claude_world: ClaudeWorld,
) -> None:
    claude_world.play(Play().when(asked("look around")).then(LOOK, Text("I have seen a heron.")))
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        wait_written(claude_world, work, "I have seen a heron.")
        kill(claude_world, work)
        path = claude_world.home.transcript_path(work.conversation_id, work.worktree_path)
        path.write_text(split_log(path)[1])
        before = claude_world.api.requests[-1].number
        swarm.restart(work.id)
        claude_world.api.wait_for(lambda r: r.number > before and r.last_user_text == "look around")
        assert claude_world.wait_activity(work, "idle").epoch == 2


def test_a_log_without_a_conversation_does_not_keep_claude_from_starting_again(claude_world: ClaudeWorld) -> None:
    """The program writes late: killed at once, it leaves a log that it will neither resume nor replace."""
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        kill(claude_world, work)
        path = claude_world.home.transcript_path(work.conversation_id, work.worktree_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"type":"mode","mode":"normal","sessionId":"{work.conversation_id}"}}\n')
        before = claude_world.api.requests[-1].number
        swarm.restart(work.id)
        claude_world.api.wait_for(lambda r: r.number > before and r.last_user_text == "look around")
        assert claude_world.wait_activity(work, "idle").epoch == 2
        calls_a_tool(claude_world, swarm, work)
