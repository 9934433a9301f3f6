"""Work with something to review, and what a review is asked of, for the tests of the review loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from swarm_core.errors import SwarmError
from swarm_core.models import Event, Instance, Relationship
from swarm_core.swarm import Swarm
from tests.support import git_run
from tests.world import World

_T = TypeVar("_T")


@pytest.fixture
def rounds(world: World) -> Callable[[int], None]:
    """Set how many review rounds are allowed."""

    def allow(count: int) -> None:
        world.home.mkdir(exist_ok=True)
        (world.home / "config.toml").write_text(f"review_rounds = {count}\n")

    return allow


def all_at_once(world: World, asks: Sequence[Callable[[Swarm], _T]]) -> list[_T]:
    """The answers to what is asked at the same moment, each time of another Swarm of the world."""
    barrier = threading.Barrier(len(asks))

    def answer(ask: Callable[[Swarm], _T]) -> _T:
        with world.open() as mine:
            barrier.wait(timeout=30)
            return ask(mine)

    with ThreadPoolExecutor(len(asks)) as threads:
        return list(threads.map(answer, asks, timeout=60))


def commit(instance: Instance, name: str = "made.txt", text: str = "made\n") -> str:
    """Commit one file in the instance's worktree; returns the commit."""
    path = Path(instance.worktree_path)
    (path / name).write_text(text)
    git_run(path, "add", "-A")
    # Named, or two instances that commit in the same second have the same commit.
    git_run(path, "commit", "-q", "-m", f"add {name}", "-m", instance.id)
    return git_run(path, "rev-parse", "HEAD")


def finished_work(world: World, swarm: Swarm, prompt: str = "say ready", **options: Any) -> Instance:
    """A running agent whose work is committed."""
    work = world.work(swarm, prompt, **options)
    commit(work)
    return work


def head(instance: Instance) -> str:
    return git_run(Path(instance.worktree_path), "rev-parse", "HEAD")


def code_of(call: Any, *args: Any, **options: Any) -> str:
    """The code of the failure; "" when there is none."""
    try:
        call(*args, **options)
    except SwarmError as error:
        return error.code
    return ""


def refusal(call: Any, *args: Any, **options: Any) -> SwarmError:
    try:
        call(*args, **options)
    except SwarmError as error:
        return error
    raise AssertionError("it was not refused")


def needs_work(swarm: Swarm, review: Instance, body: str = "fix it", **options: Any) -> Any:
    link = swarm.review_link(review.id)
    return swarm.send_feedback(
        link.parent_id, body, feedback_type="needs_work", actor=review.id, review_id=review.id, **options
    )


def approve(swarm: Swarm, review: Instance, **options: Any) -> Instance:
    return swarm.set_status(review.id, "approved", actor=review.id, **options)


def link(swarm: Swarm, review: Instance) -> Relationship:
    return swarm.review_link(review.id)


def named(swarm: Swarm, name: str, instance_id: str | None = None) -> list[Event]:
    """The events of one name, oldest first."""
    return [e for e in swarm.events(after=0, instance_id=instance_id, limit=10_000) if e.name == name]
