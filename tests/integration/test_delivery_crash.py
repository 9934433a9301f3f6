"""What kills at bad moments must not do to messages: lose one, or have one act twice."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from swarm_core.agents import table
from swarm_core.models import Instance, Message
from swarm_core.ops import courier, envelopes
from swarm_core.ops.context import talk
from swarm_core.store import feedback, messages
from swarm_core.store.database import utc_now
from swarm_core.swarm import Swarm
from tests.chaos import Reporting
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import finished_work
from tests.integration.test_delivery import received, wait_state
from tests.support import wait_until
from tests.world import World


def log(world: World, instance: Instance) -> list[tuple[str | None, str]]:
    """Ids and kinds of what the agent's own log says it was given."""
    path = world.settings.instance_dir(instance.id) / "received.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(entry["message_id"], entry["kind"]) for entry in map(json.loads, lines)]


def idle(world: World, swarm: Swarm) -> Instance:
    return world.wait_idle(swarm, world.work(swarm, "say ready").id)


def hand_over_recorded(swarm: Swarm, message: Message, start: int) -> None:
    """As a courier leaves it that is killed before it has typed anything."""
    with swarm.context.db.write():
        assert messages.inject(swarm.context.db, [message.id], how=f"paste start {start}")


def state_of(swarm: Swarm, message: Message) -> Message:
    return messages.get(swarm.context.db, message.id)


def test_a_message_whose_program_dies_again_and_again_is_never_given_up(world: World) -> None:
    with world.open() as swarm:
        work = idle(world, swarm)
        message = swarm.message(work.id, "say hello")
        boy = courier.Courier(swarm.context)
        for _ in range(10):
            hand_over_recorded(swarm, message, start=work.epoch - 1)
            boy.deliver(work.id)
            assert state_of(swarm, message).state == "accepted"
        boy.deliver(work.id)
        assert state_of(swarm, message).state == "seen"
        assert log(world, work) == [(message.id, "message")]


def test_what_an_ending_program_took_late_is_not_sent_to_the_next_one(world: World) -> None:
    """A restart counts up the start before the earlier program has ended, which may still take the message."""
    with world.open() as swarm:
        work = idle(world, swarm)
        message = swarm.message(work.id, "say hello")
        boy = courier.Courier(swarm.context)
        hand_over_recorded(swarm, message, start=work.epoch - 1)
        boy.deliver(work.id)
        assert state_of(swarm, message).state == "accepted"
        swarm.context.host(work).hand_over(talk(work), envelopes.write(message))
        wait_until(lambda: log(world, work), what="it is taken")
        boy.deliver(work.id)
        assert state_of(swarm, message).state == "seen"
        assert log(world, work) == [(message.id, "message")]


def test_a_paste_whose_enter_got_lost_is_entered_and_not_pasted_again(world: World) -> None:
    late = timedelta()
    with world.open(clock=lambda: utc_now() + late) as swarm:
        work = idle(world, swarm)
        message = swarm.message(work.id, "say hello")
        hand_over_recorded(swarm, message, start=work.epoch)
        tmux = swarm.context.host(work)._tmux  # type: ignore[attr-defined]
        tmux.paste(work.id, envelopes.write(message), submit=False)
        wait_until(lambda: "[pasted" in swarm.screen(work), what="the paste is in the input box")
        late = timedelta(seconds=5)
        courier.Courier(swarm.context).deliver(work.id)
        wait_until(lambda: log(world, work), what="it is taken")
        assert log(world, work) == [(message.id, "message")]


def test_a_call_that_a_resumed_agent_repeats_has_its_effect_once(mcp: Coordinated) -> None:
    """Killed when its call was answered and not yet noted, the program makes it again."""
    told = {"feedback": "mind the gap", "feedback_type": "suggestions"}
    with mcp.swarm() as swarm:
        work = finished_work(mcp.world, swarm)
        review = swarm.request_review(work.id, reviewer_prompt="say ready")
        mcp.world.wait_idle(swarm, review.id)
        message = swarm.message(review.id, f"call send_feedback {json.dumps(told)}")
        wait_state(swarm, message, "acknowledged")
        assert len(feedback.of(swarm.context.db, work.id)) == 1
        swarm.stop(review.id)
        journal = mcp.world.settings.instance_dir(review.id) / "conversation.jsonl"
        begun = [line for line in journal.read_text().splitlines() if "message 1" not in line]
        journal.write_text("".join(f"{line}\n" for line in begun if '"finished": 1' not in line))
        swarm.restart(review.id)
        wait_until(lambda: '"finished": 1' in journal.read_text(), what="the message is finished again")
        assert len(feedback.of(swarm.context.db, work.id)) == 1
        assert [entry["kind"] for entry in received(mcp, review)] == ["message"]


def test_a_refused_hook_is_no_message(mcp: Coordinated, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier start whose token was revoked is told so in an answer that has a message of its own."""
    monkeypatch.setitem(table.AGENTS, "scripted", Reporting())
    with mcp.swarm() as swarm:
        work = mcp.world.wait_idle(swarm, mcp.world.work(swarm, "say ready").id)
        mcp.token(work)
        message = swarm.message(work.id, "append done.txt yes")
        wait_state(swarm, message, "acknowledged")
        assert [entry["message_id"] for entry in received(mcp, work)] == [message.id]
