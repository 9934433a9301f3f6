"""What swarm does, one operation at a time, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable

from swarm_core.errors import SwarmError
from swarm_core.models import Wanted
from swarm_core.swarm import Swarm
from tests.survival.moments import Outcome
from tests.survival.world import World

Operation = Callable[[Swarm, World, str], object]


def perform(world: World, name: str, who: int) -> Outcome:
    """Open swarm and carry out the operation on an instance; a refusal is an outcome too."""
    row = world.row(who)
    try:
        with world.open() as swarm:
            if row is None and name in NEEDS_INSTANCE:
                return Outcome("refused", "NO_INSTANCE")
            OPERATIONS[name](swarm, world, row.id if row else "")
    except SwarmError as error:
        return Outcome("refused", f"{error.code}: {error.message}")
    return Outcome("done")


def spawn(swarm: Swarm, world: World, _: str) -> object:
    return swarm.work("work", repo=str(world.repo), agent="scripted")


def attempts(swarm: Swarm, world: World, _: str) -> object:
    return swarm.work("work", repo=str(world.repo), agent="scripted", count=2)


def fork(swarm: Swarm, world: World, who: str) -> object:
    return swarm.fork(who, "work")


def review(swarm: Swarm, world: World, who: str) -> object:
    return swarm.request_review(who)


def stop(swarm: Swarm, world: World, who: str) -> object:
    return swarm.stop(who)


def restart(swarm: Swarm, world: World, who: str) -> object:
    return swarm.restart(who)


def clean(swarm: Swarm, world: World, who: str) -> object:
    """A person stops first; that it is refused otherwise is tested elsewhere."""
    if swarm.find(who).wanted == Wanted.RUNNING:
        swarm.stop(who)
    return swarm.clean(who)


def restore(swarm: Swarm, world: World, who: str) -> object:
    return swarm.restore(who)


def abandon(swarm: Swarm, world: World, who: str) -> object:
    return swarm.abandon(who)


def pick(swarm: Swarm, world: World, who: str) -> object:
    return swarm.attempts.pick(who)


def merge(swarm: Swarm, world: World, who: str) -> object:
    swarm.open_pull(who, title="Make it", description="It was not made.")
    return swarm.pulls.merge(who)


def squash(swarm: Swarm, world: World, who: str) -> object:
    swarm.open_pull(who, title="Make it", description="It was not made.")
    return swarm.pulls.merge(who, method="squash")


def enqueue(swarm: Swarm, world: World, who: str) -> object:
    swarm.open_pull(who, title="Make it", description="It was not made.")
    return swarm.pulls.enqueue(who)


def run_queue(swarm: Swarm, world: World, _: str) -> object:
    return swarm.pulls.run_queue()


def fill_pool(swarm: Swarm, world: World, _: str) -> object:
    return swarm.fill_pool(str(world.repo))


def drain_pool(swarm: Swarm, world: World, _: str) -> object:
    return swarm.drain_pools()


def reconcile(swarm: Swarm, world: World, _: str) -> object:
    return swarm.reconcile()


def doctor(swarm: Swarm, world: World, _: str) -> object:
    return swarm.doctor(fix=True)


NEEDS_INSTANCE: dict[str, Operation] = {
    function.__name__: function
    for function in (fork, review, stop, restart, clean, restore, abandon, pick, merge, squash, enqueue)
}
OPERATIONS: dict[str, Operation] = NEEDS_INSTANCE | {
    function.__name__: function
    for function in (spawn, attempts, run_queue, fill_pool, drain_pool, reconcile, doctor)
}
