"""The clock jumps; order comes from ids and nothing breaks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support import git_run, wait_until
from tests.world import World, assert_agreement

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


class Clock:
    def __init__(self) -> None:
        self.offset = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.offset


def test_a_jumping_clock_changes_neither_the_order_of_events_nor_what_is_newest(world: World) -> None:
    clock = Clock()
    with world.open(clock=clock) as swarm:
        instance = world.work(swarm)
        world.wait_idle(swarm, instance.id)
        file = Path(instance.worktree_path) / "work.txt"
        for jump, text in [(_DAY, "first"), (-_HOUR, "second"), (2 * _DAY, "third"), (-_DAY, "newest")]:
            clock.offset += jump
            if swarm.find(instance.id).cleaned:
                swarm.restore(instance.id)
                swarm.restart(instance.id)
                wait_until(lambda: "resumed" in swarm.screen(swarm.find(instance.id)), what="the agent to resume")
            file.write_text(text)
            swarm.stop(instance.id)
            swarm.clean(instance.id)
            assert_agreement(world, swarm)
        kept = swarm.detail(instance.id).preserved
        assert [one.id for one in kept] == sorted(one.id for one in kept)
        assert len({one.ref for one in kept}) == 4
        assert max(kept, key=lambda one: one.created_at) is not kept[-1]
        swarm.restore(instance.id)
        assert file.read_text() == "newest"
        events = swarm.events(after=0, limit=1000)
        assert [e.id for e in events] == sorted(e.id for e in events)
        assert [e.at for e in events] != sorted(e.at for e in events)
        names = [e.name for e in events if e.name in ("instance:cleaned", "instance:restored")]
        assert names == ["instance:cleaned", "instance:restored"] * 4
        assert swarm.events(limit=1) == events[-1:]


def test_an_instance_of_the_future_neither_hides_the_next_one_nor_is_forgotten(world: World) -> None:
    clock = Clock()
    with world.open(clock=clock) as swarm:
        clock.offset = _DAY
        future = world.work(swarm)
        clock.offset = -_HOUR
        past = world.work(swarm)
        assert (future.id, past.id) == ("work-a1", "work-a2")
        assert {i.id for i in swarm.instances()} == {future.id, past.id}
        for one in (future, past):
            world.wait_idle(swarm, one.id)
            swarm.stop(one.id)
        assert_agreement(world, swarm)
        assert git_run(world.repo, "status", "--porcelain") == ""
