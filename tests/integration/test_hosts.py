"""A host that does not answer: nothing is known of it, so nothing is decided about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swarm_core.errors import Conflict, HostLost
from swarm_core.hosts.base import InstanceFacts, StartOrder, Watched
from swarm_core.hosts.local import LocalHost
from swarm_core.hosts.pool import HostPool
from swarm_core.store import actions, hosts
from swarm_core.swarm import Swarm
from tests.world import World, assert_agreement


class Distant(LocalHost):
    """This machine behind a line that can be cut."""

    cut = False

    def snapshot(self, watched: list[Watched]) -> dict[str, InstanceFacts]:
        self._line()
        return super().snapshot(watched)

    def start(self, order: StartOrder) -> Any:
        self._line()
        return super().start(order)

    def _line(self) -> None:
        if self.cut:
            raise HostLost("the line is cut")


def over_a_line(world: World, swarm: Swarm) -> tuple[Swarm, Distant]:
    host = Distant(world.settings, world.environ)
    return Swarm(replace(swarm.context, hosts=HostPool([host])), world.environ), host


def names(swarm: Swarm) -> list[str]:
    return [e.name for e in swarm.events() if e.name.startswith("host:")]


def test_while_a_host_is_lost_its_agents_are_not_declared_dead(world: World) -> None:
    with world.open() as local:
        swarm, host = over_a_line(world, local)
        instance = world.work(swarm)
        world.wait_idle(swarm, instance.id)
        before = swarm.find(instance.id)
        host.cut = True
        swarm.reconcile()
        swarm.reconcile()
        assert swarm.find(instance.id) == before
        assert hosts.state(swarm.context.db, "local") == "lost"
        host.cut = False
        swarm.reconcile()
        assert names(swarm) == ["host:lost", "host:back"]
        assert_agreement(world, swarm)


def test_an_operation_cut_off_from_its_host_goes_on_when_the_host_is_back(world: World) -> None:
    with world.open() as local:
        swarm, host = over_a_line(world, local)
        host.cut = True
        with pytest.raises(HostLost):
            world.work(swarm)
        [action] = actions.all_open(swarm.context.db)
        assert (action.kind, action.steps_done, action.error_code) == ("spawn", ("worktree",), None)
        host.cut = False
        swarm.reconcile()
        assert [i.status for i in swarm.instances()] == ["running"]
        assert_agreement(world, swarm)


def test_an_instance_of_a_host_that_is_not_in_the_pool_is_lost_and_not_deleted(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        swarm.context.hosts._hosts["elsewhere"] = swarm.context.hosts._hosts.pop("local")
        with pytest.raises(HostLost):
            swarm.stop(instance.id)
        swarm.context.hosts._hosts["local"] = swarm.context.hosts._hosts.pop("elsewhere")
        assert swarm.stop(instance.id).status == "terminated"


def test_a_start_of_an_older_epoch_is_refused(world: World) -> None:
    with world.open() as swarm:
        instance = world.work(swarm)
        swarm.restart(instance.id)
        order: StartOrder = {
            "instance_id": instance.id,
            "epoch": 1,
            "cwd": instance.worktree_path,
            "argv": ["true"],
            "resume_argv": None,
            "resume_probe": [],
            "agent": "scripted",
            "resume": False,
            "env": {},
            "unset": [],
            "files": {},
            "secrets": {},
        }
        with pytest.raises(Conflict) as caught:
            swarm.context.hosts.choose().start(order)
        assert caught.value.code == "STALE_EPOCH"
        assert_agreement(world, swarm)
