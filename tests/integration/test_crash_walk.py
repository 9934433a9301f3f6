"""kill -9 at every step of every operation; the next start finishes or undoes it and nothing is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swarm_core.models import Instance
from swarm_core.ops.operations import OPERATIONS
from swarm_core.store import actions
from swarm_core.swarm import Swarm
from tests.support import git_run, wait_until
from tests.world import World, assert_agreement

_MOMENTS = ("before", "between", "after")
# Opening a pull request needs a GitHub: test_pulls_github walks through its steps.
_HERE = [o for o in OPERATIONS.values() if o.kind != "pull"]
_FORWARD = [f"{o.kind}:{s.name}:{m}" for o in _HERE for s in o.steps for m in _MOMENTS]
_FORWARD.append("clean:worktree:stored")
_DIRTY = {"untracked.bin": bytes(range(256)), "src/app.py": b"print('changed')\r\n"}


def crash(world: World, checkpoint: str, operation: str, *arguments: str) -> None:
    """Run the operation in a process that dies at the checkpoint; fails if it never got there."""
    argv = [sys.executable, "-m", "tests.fakes.crash", checkpoint, operation, *arguments]
    env = world.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(argv, cwd=world.repo, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def prepare(world: World, operation: str) -> str:
    """An instance in the state the operation starts from, with uncommitted work in it."""
    with world.open() as swarm:
        instance = world.work(swarm, "say ready")
        world.wait_idle(swarm, instance.id)
        make_dirty(instance)
        if operation in ("clean", "restore"):
            swarm.stop(instance.id)
        if operation == "restore":
            swarm.clean(instance.id)
        return instance.id


def make_dirty(instance: Instance) -> None:
    for name, data in _DIRTY.items():
        (Path(instance.worktree_path) / name).write_bytes(data)


def assert_work_survives(world: World, swarm: Swarm, instance_id: str) -> None:
    """The dirty files are in the worktree, or come back byte for byte with a restore."""
    instance = swarm.find(instance_id)
    if instance.cleaned:
        instance = swarm.restore(instance_id)
    for name, data in _DIRTY.items():
        assert (Path(instance.worktree_path) / name).read_bytes() == data, name


@pytest.mark.parametrize("checkpoint", [c for c in _FORWARD if not c.startswith("spawn:")])
def test_killed_at_any_step_the_next_start_ends_it_and_loses_nothing(world: World, checkpoint: str) -> None:
    operation = checkpoint.partition(":")[0]
    instance_id = prepare(world, operation)
    crash(world, checkpoint, operation, instance_id)
    with world.open() as swarm:
        swarm.reconcile()
        assert_agreement(world, swarm)
        assert_work_survives(world, swarm, instance_id)
        assert_agreement(world, swarm)
    assert git_run(world.repo, "status", "--porcelain") == ""


@pytest.mark.parametrize("checkpoint", [c for c in _FORWARD if c.startswith("spawn:")])
def test_a_spawn_killed_at_any_step_is_finished_by_the_next_start(world: World, checkpoint: str) -> None:
    crash(world, checkpoint, "spawn")
    with world.open() as swarm:
        swarm.reconcile()
        assert_agreement(world, swarm)
        [instance] = swarm.instances()
        assert instance.status == "running"
        world.wait_idle(swarm, instance.id)
        assert (Path(instance.worktree_path) / "made.txt").read_text() == "by the agent\n"
        # the name of a finished spawn is not given out again
        assert world.work(swarm).id == "work-a2"
    assert git_run(world.repo, "status", "--porcelain") == ""


@pytest.mark.parametrize("checkpoint", ["spawn:session:undo", "spawn:worktree:undo", "spawn:worktree:stored"])
def test_a_spawn_killed_while_it_undoes_itself_is_undone_by_the_next_start(world: World, checkpoint: str) -> None:
    crash(world, checkpoint, "failing-spawn")
    with world.open() as swarm:
        swarm.reconcile()
        assert_agreement(world, swarm)
        assert swarm.instances() == []
        assert swarm.find("work-a1").status == "failed"
        assert world.branches() == {"main"}


@pytest.mark.parametrize("checkpoint", ["restart:session:before", "stop:end:between", "clean:worktree:between"])
def test_a_start_that_is_killed_too_leaves_the_work_to_the_one_after_it(world: World, checkpoint: str) -> None:
    operation = checkpoint.partition(":")[0]
    instance_id = prepare(world, operation)
    crash(world, checkpoint, operation, instance_id)
    crash(world, checkpoint, "reconcile")
    with world.open() as swarm:
        swarm.reconcile()
        assert_agreement(world, swarm)
        assert_work_survives(world, swarm, instance_id)


def test_killed_at_random_moments_a_spawn_leaves_nothing_half_done(world: World) -> None:
    seeded = random.Random(20261116)
    env = world.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, "-m", "tests.fakes.crash", "never", "spawn"]
    for _ in range(12):
        process = subprocess.Popen(
            argv, cwd=world.repo, env=env, start_new_session=True, stderr=subprocess.DEVNULL
        )
        time.sleep(seeded.uniform(0.25, 0.8))
        process.kill()
        process.wait(timeout=20)
        with world.open() as swarm:
            # a git that outlived its parent keeps the instance's lock until it has ended
            wait_until(lambda swarm=swarm: settled(swarm), what="the orphaned git to end")
            assert_agreement(world, swarm)


def settled(swarm: Swarm) -> bool:
    swarm.reconcile()
    return not actions.all_open(swarm.context.db)
