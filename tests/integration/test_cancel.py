"""Work that is told to stop gives up promptly, undoes what it did, and leaves no program behind."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swarm_core import cancel, ids, locks
from swarm_core.errors import Cancelled, Conflict, SwarmError
from swarm_core.swarm import Swarm
from tests.integration.review_fixture import finished_work, link, named, refusal
from tests.support import git_run, wait_until
from tests.world import World, assert_agreement


def children() -> set[int]:
    """Programs this process has started that have not ended."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
            if fields and int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.add(int(entry.name))
    return found


def marked(world: World, instance_id: str) -> set[int]:
    """Programs that run for an instance, whoever started them."""
    mark = f"SWARM_INSTANCE_DIR={world.settings.instance_dir(instance_id)}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
    return found


@contextlib.contextmanager
def cancelled_when(condition: Callable[[], object]) -> Iterator[cancel.Scope]:
    """Run the block in a scope that another thread cancels once the condition holds."""
    scope = cancel.Scope()

    def watch() -> None:
        wait_until(condition, what="the moment to cancel")
        scope.cancel()

    thread = threading.Thread(target=watch)
    with scope.active():
        thread.start()
        yield scope
    thread.join(timeout=20)


def slow_hook(world: World, seconds: int = 60) -> Path:
    """Make every checkout of the repository take its time, and say when it began."""
    began = world.repo.parent / "hook-began"
    hook = world.repo / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch '{began}'\nsleep {seconds}\n")
    hook.chmod(0o755)
    return began


def test_a_spawn_cancelled_while_a_program_runs_is_undone_and_the_program_is_gone(world: World) -> None:
    began, before = slow_hook(world), children()
    with world.open() as swarm:
        started = time.monotonic()
        with cancelled_when(began.exists), pytest.raises(Cancelled):
            world.work(swarm)
        assert time.monotonic() - started < 20
        assert children() == before
        assert swarm.instances() == []
        failed = swarm.find("work-a1")
        assert (failed.status, failed.cleaned) == ("failed", True)
        assert world.branches() == {"main"}
        assert_agreement(world, swarm)
        (world.repo / ".git" / "hooks" / "post-checkout").unlink()
        assert world.work(swarm).id == "work-a2"


def test_a_review_cancelled_in_the_middle_returns_the_work(world: World) -> None:
    with world.open() as swarm:
        work = finished_work(world, swarm)
        began, before = slow_hook(world), children()
        with cancelled_when(began.exists), pytest.raises(Cancelled):
            swarm.request_review(work.id)
        assert children() == before
        assert swarm.find(work.id).status == "running"
        assert link(swarm, swarm.find("review-a1")).verdict == "none"
        assert_agreement(world, swarm)


def test_a_spawn_cancelled_between_its_steps_begins_no_other(world: World) -> None:
    scope = cancel.Scope()
    seen: list[str] = []

    def stop(name: str) -> None:
        seen.append(name)
        if name == "spawn:worktree:after":
            scope.cancel()

    with world.open(checkpoint=stop) as swarm, scope.active():
        with pytest.raises(Cancelled):
            world.work(swarm)
        assert "spawn:session:before" not in seen
        assert swarm.instances() == []
        assert_agreement(world, swarm)


def test_whoever_waits_for_a_lock_gives_up_at_once(world: World) -> None:
    with world.open() as swarm:
        work = world.work(swarm)
        began = time.monotonic()
        lock = locks.hold(world.settings.locks / f"{work.id}.lock")
        with lock, cancelled_when(lambda: time.monotonic() > began + 0.2), pytest.raises(Cancelled):
            swarm.stop(work.id)
        assert time.monotonic() - began < 10
        assert swarm.find(work.id).status == "running"
        assert_agreement(world, swarm)


def test_an_undo_cannot_be_cancelled(world: World) -> None:
    scope = cancel.Scope()

    def disturb(name: str) -> None:
        if name == "spawn:session:before":
            (world.settings.instance_dir("work-a1") / "order" / "in-the-way").mkdir(parents=True)
        if name == "spawn:session:undo":
            scope.cancel()

    with world.open(checkpoint=disturb) as swarm, scope.active():
        with pytest.raises(SwarmError) as failed:
            world.work(swarm)
        assert not isinstance(failed.value, Cancelled)
        assert "undo" not in failed.value.details
        with cancel.Scope().active():
            assert_agreement(world, swarm)


def test_a_program_that_never_says_that_it_runs_is_not_waited_for(world: World) -> None:
    from swarm_core.hosts.launch import _await_exec
    from swarm_core.tmux.sessions import Tmux

    with world.open() as swarm:
        world.work(swarm)
        tmux = Tmux(world.settings.tmux_socket, world.settings.tmux_config)
        pane = tmux.find("work-a1")
        assert pane is not None
        reader, writer = os.pipe()
        began = time.monotonic()
        try:
            with cancelled_when(lambda: time.monotonic() > began + 0.2), pytest.raises(Cancelled):
                _await_exec(tmux, pane, reader, timeout=60)
        finally:
            os.close(reader)
            os.close(writer)
        assert time.monotonic() - began < 10


def test_a_checkout_killed_in_the_middle_is_nobodys_work(world: World) -> None:
    for number in range(400):
        (world.repo / f"file-{number}.txt").write_text(f"{number}\n" * 200)
    git_run(world.repo, "add", "-A")
    git_run(world.repo, "commit", "-q", "-m", "many files")
    slow_hook(world)
    with world.open() as swarm:
        place = world.settings.worktrees / ids.repo_folder(str(world.repo)) / "work-a1"
        with cancelled_when(lambda: (place / "file-7.txt").exists()), pytest.raises(Cancelled):
            world.work(swarm)
        assert named(swarm, "work:preserved") == []
        assert git_run(world.repo, "for-each-ref", "refs/swarm") == ""
        assert_agreement(world, swarm)


def test_a_file_put_into_an_unfinished_checkout_is_kept(world: World) -> None:
    began = slow_hook(world)
    with world.open() as swarm:
        place = world.settings.worktrees / ids.repo_folder(str(world.repo)) / "work-a1"

        def put() -> bool:
            if began.exists():
                (place / "mine.txt").write_text("kept\n")
                (place / "README.md").unlink()
            return began.exists()

        with cancelled_when(put), pytest.raises(Cancelled):
            world.work(swarm)
        [kept] = named(swarm, "work:preserved")
        assert git_run(world.repo, "show", f"{kept.metadata['ref']}:mine.txt") == "kept"
        assert_agreement(world, swarm)


@pytest.mark.parametrize("moment", ["entry", "head"])
def test_a_worktree_that_git_was_killed_while_making_is_taken_back(world: World, moment: str) -> None:
    """git writes its own lock first, then HEAD as zeros, then the rest."""
    admin = world.repo / ".git" / "worktrees" / "work-a1"

    def half(name: str) -> None:
        if name == "spawn:worktree:before":
            place = world.settings.worktrees / ids.repo_folder(str(world.repo)) / "work-a1"
            place.mkdir(parents=True)
            admin.mkdir(parents=True)
            (admin / "locked").write_text("initializing")
            (admin / "gitdir").write_text(f"{place}/.git\n")
            (place / ".git").write_text(f"gitdir: {admin}\n")
            if moment == "head":
                (admin / "HEAD").write_text("0" * 40 + "\n")
                (admin / "commondir").write_text("../..\n")
            raise Conflict("give up here")

    with world.open(checkpoint=half) as swarm:
        assert "undo" not in refusal(world.work, swarm).details
        assert not admin.exists()
        assert_agreement(world, swarm)


def test_cancelled_at_random_moments_a_spawn_runs_or_never_was(world: World) -> None:
    seeded = random.Random(20270202)
    with world.open() as swarm:
        world.work(swarm)  # the first start pays for imports and the tmux server
        before = children()
        outcomes = [attempt(world, swarm, seeded.uniform(0.0, 0.35)) for _ in range(15)]
        assert "cancelled" in outcomes
        assert children() <= before
        assert named(swarm, "work:preserved") == []
        swarm.reconcile()
        assert_agreement(world, swarm)


def attempt(world: World, swarm: Swarm, delay: float) -> str:
    due = time.monotonic() + delay
    known = {i.id for i in swarm.instances(include_cleaned=True)}
    try:
        with cancelled_when(lambda: time.monotonic() >= due):
            swarm.find(world.work(swarm).id)
            outcome = "ran"
    except Cancelled:
        outcome = "cancelled"
    assert_agreement(world, swarm)
    for made in [i for i in swarm.instances(include_cleaned=True) if i.id not in known]:
        assert bool(marked(world, made.id)) == (outcome == "ran"), made.id
        assert made.cleaned == (outcome == "cancelled")
    git_run(world.repo, "fsck")
    return outcome
