"""kill -9 at every step of a review: afterwards work and review tell the same story, and there is one review."""

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
from swarm_core.store import actions, feedback, relationships
from swarm_core.swarm import Swarm
from tests.integration.review_fixture import finished_work, head, link, named, needs_work
from tests.support import wait_until
from tests.world import World, assert_agreement

_ROOT = str(Path(__file__).parents[2])
_STEPS = [f"spawn:{s.name}:{m}" for s in OPERATIONS["spawn"].steps for m in ("before", "between", "after")]


def crash(world: World, checkpoint: str, operation: str, *arguments: str) -> None:
    """Run the operation in a process that dies at the checkpoint; fails if it never got there."""
    argv = [sys.executable, "-m", "tests.fakes.crash", checkpoint, operation, *arguments]
    env = world.environ | {"PYTHONPATH": _ROOT}
    done = subprocess.run(argv, cwd=world.repo, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def prepare(world: World) -> Instance:
    with world.open() as swarm:
        return finished_work(world, swarm)


def assert_one_story(swarm: Swarm, work_id: str) -> None:
    """The work waits exactly while a reviewer runs that has not given its verdict."""
    links = relationships.of(swarm.context.db, work_id)
    live = [r for r in links if r.verdict is None]
    assert len(live) <= 1
    assert all(not swarm.find(r.child_id).ended for r in live)
    assert all(r.verdict is not None for r in links if swarm.find(r.child_id).ended)
    assert swarm.find(work_id).status == ("waiting_review" if live else "running")


@pytest.mark.parametrize("checkpoint", _STEPS)
def test_a_review_killed_at_any_step_is_finished_by_the_next_start(world: World, checkpoint: str) -> None:
    work = prepare(world)
    crash(world, checkpoint, "request_review", work.id)
    with world.open() as swarm:
        assert swarm.find(work.id).status == "waiting_review"
        swarm.reconcile()
        assert_agreement(world, swarm)
        assert_one_story(swarm, work.id)
        review = swarm.find("review-a1")
        assert (review.status, head(review)) == ("running", head(work))
        # a retry after the crash finds the same review, and there is no other
        assert swarm.finish_spawn("review-a1").id == "review-a1"
        assert len(swarm.instances(include_cleaned=True)) == 2
        needs_work(swarm, review)
        assert_one_story(swarm, work.id)


@pytest.mark.parametrize("checkpoint", ["spawn:session:undo", "spawn:worktree:undo", "spawn:worktree:stored"])
def test_a_review_killed_while_it_undoes_itself_returns_the_work(world: World, checkpoint: str) -> None:
    work = prepare(world)
    crash(world, checkpoint, "failing-review", work.id)
    with world.open() as swarm:
        swarm.reconcile()
        assert_agreement(world, swarm)
        assert_one_story(swarm, work.id)
        assert swarm.find("review-a1").status == "failed"
        assert link(swarm, swarm.find("review-a1")).verdict == "none"
        assert len(named(swarm, "review:ended", work.id)) == 1
        assert world.branches() == {"main", work.branch}
        assert link(swarm, swarm.request_review(work.id)).round == 1


def test_the_supervisor_of_another_process_finishes_a_review_whose_starter_was_killed_twice(world: World) -> None:
    work = prepare(world)
    crash(world, "spawn:worktree:between", "request_review", work.id)
    crash(world, "spawn:session:before", "reconcile")
    with world.open() as swarm:
        swarm.reconcile()
        assert_agreement(world, swarm)
        assert_one_story(swarm, work.id)
        assert swarm.find("review-a1").status == "running"


def test_feedback_killed_before_it_is_recorded_has_happened_not_at_all(world: World) -> None:
    work = prepare(world)
    with world.open() as swarm:
        review = swarm.request_review(work.id)
    crash(world, "feedback:file:after", "needs-work", review.id)
    with world.open() as swarm:
        swarm.reconcile()
        assert_one_story(swarm, work.id)
        assert feedback.of(swarm.context.db, work.id) == []
        assert link(swarm, review).verdict is None
        needs_work(swarm, review)
        assert len(feedback.of(swarm.context.db, work.id)) == 1
        assert_one_story(swarm, work.id)


def test_killed_at_random_moments_a_request_leaves_one_review_at_most(world: World) -> None:
    seeded = random.Random(20270101)
    work = prepare(world)
    argv = [sys.executable, "-m", "tests.fakes.crash", "never", "request_review", work.id]
    for _ in range(8):
        process = subprocess.Popen(
            argv,
            cwd=world.repo,
            env=world.environ | {"PYTHONPATH": _ROOT},
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(seeded.uniform(0.2, 0.9))
        process.kill()
        process.wait(timeout=20)
        with world.open() as swarm:
            wait_until(lambda swarm=swarm: settled(swarm), what="the orphaned git to end")
            assert_agreement(world, swarm)
            assert_one_story(swarm, work.id)
            for review in [i for i in swarm.instances() if i.kind == "review" and not i.ended]:
                swarm.stop(review.id)
            assert_one_story(swarm, work.id)


def settled(swarm: Swarm) -> bool:
    swarm.reconcile()
    return not actions.all_open(swarm.context.db)
