"""Messages to the real Claude Code: idle and busy, exact, once, and never into a dialog."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from pathlib import Path

import pytest

from swarm_core.models import Instance, Message
from swarm_core.ops import dialogs
from swarm_core.store import messages as ledger
from swarm_core.swarm import Swarm
from tests.fakes.messages_api import Held, Play, Reply, Text, ToolUse, asked
from tests.integration.claude_fixture import ClaudeWorld, claude_home, claude_program, claude_world, messages
from tests.support import wait_until

__all__ = ["claude_home", "claude_program", "claude_world", "messages"]

LOOK = ToolUse("mcp__swarm__query_instances", {})


def wait_state(swarm: Swarm, message: Message, *states: str, timeout: float = 40) -> Message:
    def reached() -> Message | None:
        found = ledger.get(swarm.context.db, message.id)
        return found if found.state in states else None

    found = wait_until(reached, timeout=timeout, what=f"{message.id} is {states}")
    assert isinstance(found, Message)
    return found


def wait_seen(swarm: Swarm, message: Message) -> Message:
    return wait_state(swarm, message, "seen", "acknowledged")


def header(message: Message) -> str:
    return f"[swarm msg {message.id} from {message.sender}"


def conversation(claude_world: ClaudeWorld, work: Instance) -> str:
    """Everything the model has been given by its last request, once.

    Of what a Stop hook said, the program tells the model a second time that it was an error of the hook.
    """
    last = claude_world.api.turns(work.conversation_id)[-1]
    kept = [m for m in last.messages if not str(m["content"]).startswith("Stop hook blocking error")]
    return dataclasses.replace(last, body={**last.body, "messages": kept}).text


def idle(claude_world: ClaudeWorld, swarm: Swarm, prompt: str = "look around") -> Instance:
    """An agent whose first turn is over."""
    work = claude_world.work(swarm, prompt)
    claude_world.api.wait_for(asked(prompt), marker=work.conversation_id)
    return claude_world.wait_activity(work, "idle")


def told(swarm: Swarm, message: Message) -> list[str]:
    """What the events tell of a message."""
    found = swarm.events(after=0, limit=10_000)
    return [e.name.removeprefix("message:") for e in found if e.metadata.get("message_id") == message.id]


def test_an_idle_claude_gets_the_message_as_a_prompt(claude_world: ClaudeWorld) -> None:
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        message = swarm.message(work.id, "!echo hi\n/exit\n# and ünïcode ✓")
        known = wait_seen(swarm, message)
        assert known.how.startswith("paste")
        got = claude_world.api.wait_for(lambda r: message.id in r.last_user_text, marker=work.conversation_id)
        assert got.last_user_text == f"{header(message)}]\n!echo hi\n/exit\n# and ünïcode ✓"
        wait_state(swarm, message, "acknowledged")
        assert told(swarm, message) == ["accepted", "injected", "seen", "acknowledged"]
    assert conversation(claude_world, work).count(header(message)) == 1


@pytest.mark.parametrize(
    ("reply", "how"),
    [(LOOK, "hook PostToolUse start 1"), (Text("Done."), "hook Stop start 1")],
    ids=["tool", "text"],
)
def test_a_busy_claude_gets_the_message_in_the_same_turn_by_its_next_hook(
    claude_world: ClaudeWorld, reply: Reply, how: str
) -> None:
    gate = threading.Event()
    claude_world.play(Play().when(asked("look around")).then(Held(gate, reply), Text("I have read it.")))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")
        claude_world.wait_activity(work, "busy")
        message = swarm.message(work.id, "!touch acted\nund weiter: ✓\n\tdrei")
        assert ledger.get(swarm.context.db, message.id).state == "accepted"
        gate.set()
        known = wait_seen(swarm, message)
        wait_state(swarm, message, "acknowledged")
        assert told(swarm, message) == ["accepted", "injected", "seen", "acknowledged"]
    assert known.how == how
    first, second = claude_world.api.turns(work.conversation_id)
    assert header(message) not in first.text
    assert f"{header(message)}]\n!touch acted\nund weiter: ✓\n\tdrei" in second.new_text
    assert second.text.count(header(message)) == 1
    assert not Path(work.worktree_path, "acted").exists()


def test_twenty_at_once_are_all_seen_once_and_in_order(claude_world: ClaudeWorld) -> None:
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        sent = [swarm.message(work.id, f"number {n}", sender=f"sender-{n % 3}") for n in range(20)]
        for message in sent:
            wait_state(swarm, message, "acknowledged")
        assert all(told(swarm, m) == ["accepted", "injected", "seen", "acknowledged"] for m in sent)
    given = conversation(claude_world, work)
    assert [given.count(header(m)) for m in sent] == [1] * 20
    places = [given.index(f"{header(m)}]\nnumber {n}") for n, m in enumerate(sent)]
    assert places == sorted(places)


def exact(claude_world: ClaudeWorld, swarm: Swarm, work: Instance, body: str) -> str:
    """What the model is given of a message that is sent while the agent is idle, without its header."""
    claude_world.wait_activity(work, "idle")
    message = swarm.message(work.id, body)
    known = wait_state(swarm, message, "acknowledged")
    assert known.how.startswith("paste")
    assert conversation(claude_world, work).count(header(message)) == 1
    got = claude_world.api.wait_for(lambda r: message.id in r.last_user_text, marker=work.conversation_id)
    first, _, rest = got.last_user_text.partition("\n")
    about = f" exact text: {message.document}" if message.document else ""
    assert first == f"{header(message)}{about}]"
    return rest


def test_what_was_written_is_what_the_model_reads(claude_world: ClaudeWorld) -> None:
    """And nothing in it acts: the program reads `!`, `/`, `#` and `@` at the start of a prompt as commands."""
    bodies = [
        "x",
        "two\n\nlines  with spaces",
        "ünïcode ✓ 漢字 🎉 \u00a0end",
        "!touch acted",
        "/exit",
        "# heading",
        "-rf",
        "@README.md & ? 'quoted' \"twice\" `touch acted` $(touch acted)",
    ]
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        assert {body: exact(claude_world, swarm, work, body) for body in bodies} == {body: body for body in bodies}
    assert not Path(work.worktree_path, "acted").exists()
    now = claude_world.find(work)
    assert (now.status, now.activity, now.epoch) == ("running", "idle", 1)


@pytest.mark.parametrize("size", [20 << 10, 100 << 10])
def test_a_long_message_is_read_to_its_last_byte(claude_world: ClaudeWorld, size: int) -> None:
    lines = "".join(f"{n:06} ünï {'x' * 60}\n" for n in range(size // 70))
    body = lines.encode()[: size - 1].decode(errors="ignore").rstrip() + "."
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        assert exact(claude_world, swarm, work, body) == body


def test_what_the_program_alters_is_as_known_and_control_characters_are_in_a_named_file(
    claude_world: ClaudeWorld,
) -> None:
    """A tab becomes four spaces, newlines at the end may be cut; what a terminal would obey is never typed."""
    odd = "red \x1b[31mtext\x1b[0m\x07 \x1b[201~ end\r\n!touch acted"
    with claude_world.world.open() as swarm:
        work = idle(claude_world, swarm)
        for body in ("a\tb\n", "a\tb\n\tc\n\nd\n\n"):
            read = exact(claude_world, swarm, work, body)
            assert read.rstrip("\n") == body.replace("\t", "    ").rstrip("\n")
        read = exact(claude_world, swarm, work, odd)
        [message] = [m for m in ledger.of(swarm.context.db, work.id) if m.body == odd]
    assert "\x1b" not in read
    assert "\r" not in read
    assert message.document is not None
    assert Path(message.document).read_bytes().decode() == odd
    assert not Path(work.worktree_path, "acted").exists()


def test_a_message_in_the_reply_to_the_hook_of_a_claude_that_is_killed_arrives_after_its_restart(
    claude_world: ClaudeWorld,
) -> None:
    gate, never = threading.Event(), threading.Event()
    play = Play().when(asked("look around")).then(Held(gate, LOOK), Held(never, Text("Never said.")))
    claude_world.play(play)
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")
        pid = claude_world.wait_activity(work, "busy").pid
        assert pid is not None
        message = swarm.message(work.id, "do not lose me")
        gate.set()
        handed = wait_state(swarm, message, "injected", "seen")
        os.kill(pid, signal.SIGKILL)
        assert handed.how == "hook PostToolUse start 1"
        claude_world.wait_activity(work, "exited")
        claude_world.play(Play())
        swarm.restart(work.id)
        wait_state(swarm, message, "acknowledged")
    given = conversation(claude_world, work)
    assert given.count(header(message)) == 1
    assert "do not lose me" in given
    # One that begins anew may take the message before its task.
    wait_until(lambda: "look around" in conversation(claude_world, work), what="it has its task")


def test_nothing_is_typed_while_a_permission_is_asked_for_and_the_message_waits(claude_world: ClaudeWorld) -> None:
    command = ToolUse("Bash", {"command": "touch acted", "description": "touch"})
    claude_world.play(Play().when(asked("look around")).then(command, Text("Touched.")))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")
        claude_world.wait_activity(work, "blocked")
        wait_until(lambda: "Do you want to proceed?" in claude_world.screen(work), what="the dialog is drawn")
        message = swarm.message(work.id, "1")
        held = wait_state(swarm, message, "held")
        assert held.attempts == 0
        wait_until(lambda: swarm.find(work.id).blocked_on, what="the question is known")
        assert "Do you want to proceed?" in claude_world.screen(work)
        assert not Path(work.worktree_path, "acted").exists()
        wait_until(lambda: _answers(swarm, work), what="the question can be answered")
        known = wait_seen(swarm, message)
        assert known.how.startswith("hook PostToolUse")
        wait_state(swarm, message, "acknowledged")
        assert told(swarm, message) == ["accepted", "held", "injected", "seen", "acknowledged"]
    assert Path(work.worktree_path, "acted").exists()
    assert conversation(claude_world, work).count(f"{header(message)}]\n1") == 1


def _answers(swarm: Swarm, work: Instance) -> bool:
    if dialogs.shown(swarm.find(work.id)) is None:
        return False
    swarm.answer(work.id, choice=1)
    return True
