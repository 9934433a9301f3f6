"""Messages reach scripted agents through a live coordinator: byte-exact, in order, once, with true receipts."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from swarm_core.models import Instance, Message
from swarm_core.store import messages
from swarm_core.swarm import Swarm
from tests.integration.mcp_fixture import Coordinated
from tests.support import wait_until

HEADER = "[swarm msg {} from operator]\n"


def received(mcp: Coordinated, instance: Instance) -> list[dict[str, Any]]:
    """What the agent's own log says it was given."""
    path = mcp.world.settings.instance_dir(instance.id) / "received.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def idle(mcp: Coordinated, swarm: Swarm, prompt: str = "say ready") -> Instance:
    return mcp.world.wait_idle(swarm, mcp.world.work(swarm, prompt).id)


def wait_state(swarm: Swarm, message: Message, *states: str, timeout: float = 30) -> Message:
    def reached() -> Message | None:
        found = messages.get(swarm.context.db, message.id)
        return found if found.state in states else None

    found = wait_until(reached, timeout=timeout, what=f"{message.id} is {states}")
    assert isinstance(found, Message)
    return found


@pytest.mark.parametrize(
    "body",
    [
        "x",
        "two\nlines",
        "tab\tand  spaces ",
        "!echo hi",
        "/exit",
        "# heading",
        "-rf",
        "ünïcode ✓ 漢字 🎉",
        "\n\nleading and trailing\n\n",
        "say from the message",
        "k" * 100 * 1024,
        "\n".join(f"line {n}" for n in range(3000)),
    ],
    ids=lambda body: repr(body[:12]),
)
def test_an_idle_agent_gets_exactly_the_text(mcp: Coordinated, body: str) -> None:
    with mcp.swarm() as swarm:
        work = idle(mcp, swarm)
        message = swarm.message(work.id, body)
        wait_state(swarm, message, "seen", "acknowledged")
        (got,) = received(mcp, work)
    assert base64.b64decode(got["base64"]).decode() == HEADER.format(message.id) + body


def test_what_a_terminal_cannot_take_is_in_a_file_that_the_message_names(mcp: Coordinated) -> None:
    body = "red \x1b[31mtext\x1b[0m\x07 \x1b[201~ end\r\n"
    with mcp.swarm() as swarm:
        work = idle(mcp, swarm)
        message = swarm.message(work.id, body)
        wait_state(swarm, message, "seen", "acknowledged")
        (got,) = received(mcp, work)
    assert message.document is not None
    assert Path(message.document).read_bytes().decode() == body
    assert message.document in got["text"]
    assert "\x1b" not in got["text"]


def test_a_text_larger_than_a_terminal_takes_is_read_from_its_file(mcp: Coordinated) -> None:
    body = "m" * (300 * 1024)
    with mcp.swarm() as swarm:
        work = idle(mcp, swarm)
        message = swarm.message(work.id, body)
        wait_state(swarm, message, "seen", "acknowledged")
        (got,) = received(mcp, work)
    assert message.document is not None
    assert Path(message.document).read_text() == body
    assert message.document in got["text"]
    assert len(got["text"]) < 1000


def test_fifty_at_once_arrive_in_order_and_once(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = idle(mcp, swarm)
        sent = [swarm.message(work.id, f"number {n}", sender=f"sender-{n % 3}") for n in range(50)]
        for message in sent:
            wait_state(swarm, message, "seen", "acknowledged", timeout=60)
        got = received(mcp, work)
    assert [g["message_id"] for g in got] == [m.id for m in sent]
    assert {g["kind"] for g in got} == {"message"}


def test_the_receipts_tell_the_story(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = idle(mcp, swarm)
        message = swarm.message(work.id, "busy 0.5")
        known = wait_state(swarm, message, "acknowledged")
    assert known.seen_at is not None
    assert known.acknowledged_at is not None
    assert known.created_at <= str(known.injected_at) <= known.seen_at <= known.acknowledged_at
    told = [e.name for e in mcp.events() if e.metadata.get("message_id") == message.id]
    assert told == ["message:accepted", "message:injected", "message:seen", "message:acknowledged"]


def test_nothing_is_typed_into_a_dialog_and_the_message_waits(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = mcp.world.work(swarm, "dialog Delete everything?\nsay done")
        wait_until(lambda: swarm.find(work.id).activity == "blocked", timeout=20, what="the dialog is noticed")
        message = swarm.message(work.id, "1")
        held = wait_state(swarm, message, "held")
        assert held.error == "permission"
        screen = swarm.screen(swarm.find(work.id))
        assert "answered:" not in screen
        assert received(mcp, work) == []
        swarm.context.host(work)._tmux.send_keys(work.id, "2")  # type: ignore[attr-defined]
        wait_state(swarm, message, "seen", "acknowledged")
        assert "answered: no" in swarm.screen(swarm.find(work.id))
        assert [g["kind"] for g in received(mcp, work)] == ["message"]


def test_a_busy_agent_gets_its_message_when_it_is_idle(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = mcp.world.work(swarm, "busy 4")
        wait_until(lambda: swarm.find(work.id).activity == "busy", timeout=20, what="it works")
        message = swarm.message(work.id, "say thanks")
        assert messages.get(swarm.context.db, message.id).state == "accepted"
        wait_state(swarm, message, "seen", "acknowledged")
        assert [g["message_id"] for g in received(mcp, work)] == [message.id]


def test_a_message_to_a_stopped_agent_arrives_when_it_runs_again(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = idle(mcp, swarm)
        swarm.stop(work.id)
        message = swarm.message(work.id, "say back")
        swarm.restart(work.id)
        wait_state(swarm, message, "seen", "acknowledged")
        assert [g["message_id"] for g in received(mcp, work)] == [message.id]


def test_while_the_coordinator_is_away_messages_are_kept(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = idle(mcp, swarm)
        mcp.kill()
        sent = [swarm.message(work.id, f"number {n}") for n in range(3)]
        mcp.restart()
        for message in sent:
            wait_state(swarm, message, "seen", "acknowledged")
        assert [g["message_id"] for g in received(mcp, work)] == [m.id for m in sent]


def test_a_busy_agent_with_hooks_gets_its_message_in_the_reply_to_one(
    mcp: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWARM_HOOKS", "1")
    with mcp.swarm() as swarm:
        work = mcp.world.work(swarm, "busy 2\nbusy 0.5\nbusy 600")
        wait_until(lambda: swarm.find(work.id).activity == "busy", timeout=20, what="it works")
        sent = [swarm.message(work.id, f"number {n}") for n in range(3)]
        known = [wait_state(swarm, message, "seen") for message in sent]
        assert {m.how for m in known} == {"hook step start 1"}
        assert [g["message_id"] for g in received(mcp, work)] == [m.id for m in sent]
        assert swarm.find(work.id).activity == "busy"


def test_a_turn_that_would_end_goes_on_with_the_message(mcp: Coordinated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWARM_HOOKS", "1")
    with mcp.swarm() as swarm:
        work = mcp.world.work(swarm, "busy 3")
        wait_until(lambda: swarm.find(work.id).activity == "busy", timeout=20, what="it works")
        message = swarm.message(work.id, "write from-message.txt done")
        known = wait_state(swarm, message, "seen", "acknowledged")
        assert known.how.startswith("hook ")
        wait_until(Path(work.worktree_path, "from-message.txt").exists, timeout=20, what="the message is acted on")
        assert len(received(mcp, work)) == 1


def test_a_message_in_the_prompt_hook_of_another_is_not_taken_for_seen(
    mcp: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mcp.swarm() as swarm:
        work, other = (mcp.world.work(swarm, "busy 600") for _ in range(2))
        message = swarm.message(work.id, "say hello")
        client = mcp.client(mcp.token(other), initialize=False)
        body = json.dumps({"prompt": f"[swarm msg {message.id} from operator]\nsay hello"}).encode()
        assert client.post(body, path="/hooks/prompt_submit").status == 200
        assert messages.get(swarm.context.db, message.id).seen_at is None
        mine = mcp.client(mcp.token(work), initialize=False)
        assert mine.post(body, path="/hooks/prompt_submit").status == 200
        assert wait_state(swarm, message, "seen").seen_at is not None


def test_what_nobody_saw_in_time_expires(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = idle(mcp, swarm)
        swarm.stop(work.id)
        message = swarm.message(work.id, "say late")
        with swarm.context.db.write():
            swarm.context.db.execute("UPDATE messages SET expires_at = '2020-01-01T00:00:00.000+00:00'")
        assert wait_state(swarm, message, "expired").error
        swarm.restart(work.id)
        mcp.world.wait_idle(swarm, work.id)
        assert received(mcp, work) == []


def test_a_subagent_is_not_told_what_is_meant_for_its_agent(mcp: Coordinated) -> None:
    with mcp.swarm() as swarm:
        work = mcp.world.work(swarm, "busy 600")
        wait_until(lambda: swarm.find(work.id).activity == "busy", timeout=20, what="it works")
        message = swarm.message(work.id, "say hello")
        client = mcp.client(mcp.token(work), initialize=False)
        assert client.post(b'{"agent_id": "a1"}', path="/hooks/step").message == {}
        assert messages.get(swarm.context.db, message.id).state == "accepted"
        assert message.id in client.post(b"{}", path="/hooks/step").message["message"]
        assert messages.get(swarm.context.db, message.id).state == "injected"
