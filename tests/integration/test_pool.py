"""The pool of warm worktrees: never in anybody's way, never half made, never left behind."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm_core import ids
from swarm_core.models import Instance
from swarm_core.store import actions
from tests.support import git_run, make_repo, wait_until
from tests.world import World

_ROOT = str(Path(__file__).parents[2])
_FILL = """
import os
from swarm_core import config
from swarm_core.swarm import Swarm

with Swarm.open(config.load(os.environ), os.environ) as swarm:
    swarm.fill_pool(".")
"""


@pytest.fixture
def pooled(world: World) -> World:
    """A world that keeps two warm worktrees."""
    world.home.mkdir()
    set_size(world, 2)
    return world


def set_size(world: World, size: int) -> None:
    (world.home / "config.toml").write_text(f"pool = {size}\n")


def fill(world: World, repo: Path | None = None) -> set[Path]:
    """Fill the pool of a repository; the worktrees that wait."""
    with world.open() as swarm:
        assert swarm.fill_pool(str(repo or world.repo)) == world.settings.integer("pool")
    return waiting(world, repo)


def waiting(world: World, repo: Path | None = None) -> set[Path]:
    folder = world.settings.worktrees / ids.repo_folder(str(repo or world.repo)) / ".pool"
    return set(folder.iterdir()) if folder.exists() else set()


def registered(repo: Path) -> set[str]:
    """The folders that git knows as worktrees of the repository, without the main checkout."""
    lines = git_run(repo, "worktree", "list", "--porcelain").splitlines()
    return {line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")} - {str(repo)}


def entry(path: Path | str) -> str:
    """The name under which git registered a worktree first; a move does not change it."""
    return Path(git_run(Path(path), "rev-parse", "--absolute-git-dir")).name


def assert_right(world: World, instance: Instance, commit: str) -> None:
    """The instance has the worktree it should: branch, commit, files, nothing else, and git knows it there."""
    root = Path(instance.worktree_path)
    assert git_run(root, "symbolic-ref", "--short", "HEAD") == instance.branch
    assert git_run(root, "rev-parse", "HEAD") == commit
    assert git_run(root, "status", "--porcelain", "--ignored") == ""
    tracked = git_run(world.repo, "ls-tree", "-r", "--name-only", commit).splitlines()
    on_disk = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.name != ".git"}
    assert on_disk == set(tracked)
    assert instance.worktree_path in registered(world.repo)


def head(repo: Path) -> str:
    return git_run(repo, "rev-parse", "HEAD")


def commit(repo: Path, name: str, text: str) -> str:
    (repo / name).write_text(text)
    git_run(repo, "add", "-A")
    git_run(repo, "commit", "-q", "-m", name)
    return head(repo)


def python(world: World, *argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *argv],
        cwd=world.repo,
        env=world.environ | {"PYTHONPATH": _ROOT},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill(world: World, child: subprocess.Popen[bytes]) -> None:
    """Kill the process and the git it has at work in a worktree, which would outlive it and finish."""
    child.kill()
    child.wait(20)
    for pid in at_work(world):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not at_work(world), what="its git is dead")


def at_work(world: World) -> list[int]:
    """The processes whose folder is in a worktree."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cwd").readlink().is_relative_to(world.settings.worktrees):
                found.append(int(folder.name))
    return found


class Gate:
    """Where a program of git's waits, in some worktrees only, until it is opened; `reached` says that one does."""

    def __init__(self, folder: Path, places: str) -> None:
        self.reached, pipe = folder / "reached", folder / "pipe"
        os.mkfifo(pipe)
        self._held: int | None = os.open(pipe, os.O_RDWR)
        stop = f": > {shlex.quote(str(self.reached))}; cat {shlex.quote(str(pipe))} >&2"
        self.script = folder / "gate.sh"
        self.script.write_text(f'#!/bin/sh\ncase "$PWD" in {places}) {stop};; esac\n[ -t 0 ] || exec cat\n')
        self.script.chmod(0o755)

    def open(self) -> None:
        if self._held is not None:
            self.script.write_text("#!/bin/sh\n[ -t 0 ] || exec cat\n")
            os.close(self._held)
            self._held = None


@contextmanager
def hook_waits(world: World, folder: Path, places: str) -> Iterator[Gate]:
    """After a checkout has written its files, in worktrees whose path matches."""
    gate = Gate(folder, places)
    hook = world.repo / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\nexec {shlex.quote(str(gate.script))} < /dev/null\n")
    hook.chmod(0o755)
    try:
        yield gate
    finally:
        hook.unlink()
        gate.open()


@contextmanager
def checkout_waits(world: World, folder: Path, places: str, name: str) -> Iterator[Gate]:
    """In the middle of a checkout, before it writes the file `name`, in worktrees whose path matches."""
    gate = Gate(folder, places)
    git_run(world.repo, "config", "filter.gate.smudge", shlex.quote(str(gate.script)))
    (world.repo / ".git" / "info").mkdir(exist_ok=True)
    attributes = world.repo / ".git" / "info" / "attributes"
    attributes.write_text(f"{name} filter=gate\n")
    try:
        yield gate
    finally:
        attributes.unlink()
        gate.open()


# Adopting


def test_an_adopted_worktree_has_its_branch_its_commit_and_nothing_else(pooled: World) -> None:
    ready = {entry(path) for path in fill(pooled)}
    with pooled.open() as swarm:
        instance = pooled.work(swarm)
        assert entry(instance.worktree_path) in ready
        assert_right(pooled, instance, head(pooled.repo))
        assert len(waiting(pooled)) == 1
        pooled.wait_idle(swarm, instance.id)
        swarm.stop(instance.id)
        (Path(instance.worktree_path) / "draft.txt").write_text("kept\n")
        swarm.clean(instance.id)
        assert instance.worktree_path not in registered(pooled.repo)
        swarm.restore(instance.id)
        assert (Path(instance.worktree_path) / "draft.txt").read_text() == "kept\n"


@pytest.mark.parametrize("base", [None, "main", "side"])
def test_a_pool_at_an_older_commit_still_gives_the_right_one(pooled: World, base: str | None) -> None:
    ready = {entry(path) for path in fill(pooled)}
    git_run(pooled.repo, "switch", "-q", "-c", "side")
    commit(pooled.repo, "side.txt", "of the side\n")
    git_run(pooled.repo, "switch", "-q", "main")
    (pooled.repo / "src" / "app.py").unlink()
    commit(pooled.repo, "README.md", "newer\n")
    wanted = git_run(pooled.repo, "rev-parse", base or "HEAD")
    with pooled.open() as swarm:
        instance = pooled.work(swarm, base=base)
        assert entry(instance.worktree_path) in ready
        assert_right(pooled, instance, wanted)


def test_more_starts_than_worktrees_wait_for_them_all_get_the_right_one(pooled: World) -> None:
    ready = {entry(path) for path in fill(pooled)}
    with pooled.open() as swarm:
        made = swarm.work("say ready", repo=str(pooled.repo), agent="scripted", count=4)
        for instance in made:
            assert_right(pooled, instance, head(pooled.repo))
        assert ready <= {entry(i.worktree_path) for i in made}
        assert waiting(pooled) == set()


def test_a_spawn_while_another_process_fills_the_pool_neither_waits_nor_fails(
    pooled: World, short_tmp: Path
) -> None:
    with hook_waits(pooled, short_tmp, "*/.pool/*") as gate:
        filler = python(pooled, "-c", _FILL)
        try:
            wait_until(gate.reached.exists, what="the pool is being filled")
            [half_made] = waiting(pooled)
            name = entry(half_made)
            began = time.monotonic()
            with pooled.open() as swarm:
                first, second = pooled.work(swarm), pooled.work(swarm)
                assert time.monotonic() - began < 10
                for instance in (first, second):
                    assert instance.status == "running"
                    assert entry(instance.worktree_path) != name
                    assert_right(pooled, instance, head(pooled.repo))
            assert waiting(pooled) == {half_made}
            gate.open()
            assert filler.wait(20) == 0
        finally:
            kill(pooled, filler)
    assert len(waiting(pooled)) == 2
    assert half_made in waiting(pooled)


def test_a_second_filler_leaves_the_first_alone(pooled: World, short_tmp: Path) -> None:
    with hook_waits(pooled, short_tmp, "*/.pool/*") as gate:
        filler = python(pooled, "-c", _FILL)
        try:
            wait_until(gate.reached.exists, what="the pool is being filled")
            before = waiting(pooled)
            began = time.monotonic()
            with pooled.open() as swarm:
                assert swarm.fill_pool(str(pooled.repo)) == 0
            assert time.monotonic() - began < 5
            assert waiting(pooled) == before
            gate.open()
            assert filler.wait(20) == 0
        finally:
            kill(pooled, filler)
    assert len(waiting(pooled)) == 2


def test_a_worktree_whose_filler_was_killed_is_never_adopted_and_goes_with_the_next_filling(
    pooled: World, short_tmp: Path
) -> None:
    with checkout_waits(pooled, short_tmp, "*/.pool/*", "src/app.py") as gate:
        filler = python(pooled, "-c", _FILL)
        try:
            wait_until(gate.reached.exists, what="the pool is being filled")
        finally:
            kill(pooled, filler)
    [half_made] = waiting(pooled)
    assert not (half_made / "src" / "app.py").exists()
    name = entry(half_made)
    with pooled.open() as swarm:
        instance = pooled.work(swarm)
        assert entry(instance.worktree_path) != name
        assert_right(pooled, instance, head(pooled.repo))
    ready = fill(pooled)
    assert len(ready) == 2
    for path in ready:
        assert git_run(path, "status", "--porcelain") == ""
    assert registered(pooled.repo) == {str(p) for p in ready} | {instance.worktree_path}


# Killed while adopting


def assert_finished(world: World, ready: set[str], wanted: str) -> None:
    """The next start brings the killed spawn to its end, in the worktree that was being adopted."""
    with world.open() as swarm:
        wait_until(lambda: swarm.reconcile() is not None and not actions.all_open(swarm.context.db))
        instance = swarm.find("work-a1")
        assert (instance.status, instance.reason) == ("running", "")
        world.wait_idle(swarm, instance.id)
        root = Path(instance.worktree_path)
        assert (root / "made.txt").read_text() == "by the agent\n"
        (root / "made.txt").unlink()
        assert entry(root) in ready
        assert_right(world, instance, wanted)
        left = waiting(world)
        assert registered(world.repo) == {str(p) for p in left} | {instance.worktree_path}
        assert len(left) == 1
        assert world.branches() == {"main", instance.branch}


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_a_spawn_from_the_pool_killed_at_its_worktree_is_finished_by_the_next_start(
    pooled: World, moment: str
) -> None:
    ready = {entry(path) for path in fill(pooled)}
    child = python(pooled, "-m", "tests.fakes.crash", f"spawn:worktree:{moment}", "spawn")
    assert child.wait(30) == -signal.SIGKILL
    assert_finished(pooled, ready, head(pooled.repo))


def test_an_adoption_killed_in_its_hook_is_finished_by_the_next_start(pooled: World, short_tmp: Path) -> None:
    ready = {entry(path) for path in fill(pooled)}
    with hook_waits(pooled, short_tmp, "*/work-a1") as gate:
        child = python(pooled, "-m", "tests.fakes.crash", "never", "spawn")
        try:
            wait_until(gate.reached.exists, what="the worktree is being adopted")
        finally:
            kill(pooled, child)
    assert_finished(pooled, ready, head(pooled.repo))


def test_an_adoption_killed_among_its_files_is_finished_by_the_next_start(pooled: World, short_tmp: Path) -> None:
    ready = {entry(path) for path in fill(pooled)}
    commit(pooled.repo, "README.md", "newer\n")
    commit(pooled.repo, "added.txt", "newer\n")
    wanted = commit(pooled.repo, "src/app.py", "print('newer')\n")
    with checkout_waits(pooled, short_tmp, "*/work-a1", "src/app.py") as gate:
        child = python(pooled, "-m", "tests.fakes.crash", "never", "spawn")
        try:
            wait_until(gate.reached.exists, what="the worktree is being adopted")
        finally:
            kill(pooled, child)
    assert_finished(pooled, ready, wanted)


# Draining


def test_draining_takes_away_every_waiting_worktree_of_every_repository_and_no_other(
    pooled: World, short_tmp: Path
) -> None:
    other = make_repo(short_tmp / "other")
    fill(pooled)
    fill(pooled, other)
    with pooled.open() as swarm:
        instance = pooled.work(swarm)
        (Path(instance.worktree_path) / "draft.txt").write_text("kept\n")
        assert swarm.drain_pools() == 3
        assert swarm.drain_pools() == 0
        assert (waiting(pooled), waiting(pooled, other)) == (set(), set())
        assert registered(other) == set()
        assert registered(pooled.repo) == {instance.worktree_path}
        assert (Path(instance.worktree_path) / "draft.txt").read_text() == "kept\n"
        assert swarm.find(instance.id).status == "running"


def test_setting_the_pool_to_nothing_from_anywhere_takes_every_waiting_worktree_away(
    pooled: World, short_tmp: Path
) -> None:
    other = make_repo(short_tmp / "other")
    fill(pooled)
    fill(pooled, other)
    argv = [sys.executable, "-m", "swarm_ui.cli", "config", "pool", "0"]
    env = pooled.environ | {"PYTHONPATH": _ROOT}
    done = subprocess.run(argv, cwd=short_tmp, env=env, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert (waiting(pooled), waiting(pooled, other)) == (set(), set())
    assert (registered(pooled.repo), registered(other)) == (set(), set())


def test_draining_goes_on_past_a_repository_that_is_gone(pooled: World, short_tmp: Path) -> None:
    other = make_repo(short_tmp / "a-other")
    fill(pooled)
    fill(pooled, other)
    other.rename(short_tmp / "moved")
    with pooled.open() as swarm:
        assert swarm.drain_pools() >= 2
    assert waiting(pooled) == set()
    assert registered(pooled.repo) == set()


def test_a_smaller_pool_takes_the_surplus_away(pooled: World) -> None:
    fill(pooled)
    set_size(pooled, 1)
    assert len(fill(pooled)) == 1
    assert registered(pooled.repo) == {str(p) for p in waiting(pooled)}
