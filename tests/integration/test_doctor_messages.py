"""Doctor knows about messages that wait and agents without their tools."""

from __future__ import annotations

from swarm_core.ops.doctor import Check
from swarm_core.swarm import Swarm
from tests.world import World


def found(swarm: Swarm, name: str) -> list[Check]:
    return [check for check in swarm.doctor() if check.name == name]


def test_messages_that_nobody_delivers_are_named_with_the_command(world: World) -> None:
    with world.open() as swarm:
        work = world.wait_idle(swarm, world.work(swarm).id)
        assert [c.state for c in found(swarm, "messages")] == ["ok"]
        swarm.message(work.id, "say hello")
        (check,) = found(swarm, "messages")
        assert check.state == "warn"
        assert check.message.startswith("1 messages wait")
        assert "swarm up" in check.hint


def test_an_agent_that_needs_the_coordinator_and_never_connected_is_named(world: World) -> None:
    with world.open() as swarm:
        work = world.wait_idle(swarm, world.work(swarm).id)
        assert [c.state for c in found(swarm, "tools")] == ["ok"], "the scripted agent connects when it calls"
        with swarm.context.db.write():
            swarm.context.db.execute(
                "UPDATE instances SET agent = 'claude', started_at = '2020-01-01T00:00:00.000+00:00'"
            )
        (check,) = found(swarm, "tools")
        assert check.state == "warn"
        assert work.id in check.message
