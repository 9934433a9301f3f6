"""A repository whose git hangs keeps the coordinator's chores from no other repository."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm_core import proc
from swarm_core.errors import TimedOut
from swarm_core.models import Instance
from swarm_core.ops import clean, supervise
from swarm_core.ops.hanging import Hanging
from swarm_core.ops.supervise import Supervisor
from swarm_core.store import messages
from swarm_core.swarm import Swarm
from tests.support import git_run, wait_until
from tests.world import World


@pytest.fixture
def other(tmp_path: Path) -> Path:
    made = tmp_path / "other"
    made.mkdir()
    git_run(made, "init", "-q", "-b", "main")
    git_run(made, "commit", "-q", "--allow-empty", "-m", "first")
    return made


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TICK", "_PAUSE_PER_COST", "_PATIENCE"):
        monkeypatch.setattr(supervise, name, 0.0)


@contextlib.contextmanager
def hanging(folder: Path, *places: str) -> Iterator[Path]:
    """A git on PATH that hangs when it is asked about one of the places; yields a file that it makes then."""
    real, began, program = shutil.which("git"), folder / "began", folder / "bin" / "git"
    program.parent.mkdir()
    patterns = "|".join(f"*{shlex.quote(place)}*" for place in places)
    lines = ["#!/bin/sh", 'case "$PWD $*" in', f"{patterns}) touch {shlex.quote(str(began))}; exec sleep 300;;"]
    program.write_text("\n".join([*lines, "esac", f'exec {real} "$@"', ""]))
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        yield began


def two_in(swarm: Swarm, world: World, repo: Path) -> list[Instance]:
    made = [swarm.work(f"write shared.txt by {n}\nsay ready", repo=str(repo), agent="scripted")[0] for n in (1, 2)]
    return [world.wait_idle(swarm, one.id) for one in made]


def do_chores(supervisor: Supervisor) -> None:
    began = time.monotonic()
    supervisor.do_chores()
    assert time.monotonic() - began < 20


def test_changes_and_overlaps_of_others_are_found_while_git_hangs_in_one_repository(
    world: World, other: Path, tmp_path: Path
) -> None:
    with world.open() as swarm:
        stuck, fine = two_in(swarm, world, world.repo), two_in(swarm, world, other)
        supervisor = Supervisor(swarm.context)
        with hanging(tmp_path, str(world.repo), *(i.worktree_path for i in stuck)) as began:

            def all_told() -> bool:
                do_chores(supervisor)
                said = [messages.of(swarm.context.db, i.id, limit=10) for i in fine]
                return all(any("shared.txt" in m.body for m in told) for told in said)

            wait_until(all_told, timeout=90, what="the overlap in the other repository is told")
            assert began.exists()
            assert [swarm.find(i.id).files_changed for i in fine] == [1, 1]
        supervisor.stop()


def test_what_was_interrupted_elsewhere_is_finished_while_git_hangs_in_one_repository(
    world: World, other: Path, tmp_path: Path
) -> None:
    with world.open() as swarm:
        stuck, fine = two_in(swarm, world, world.repo)[0], two_in(swarm, world, other)[0]
        for one in (stuck, fine):
            swarm.stop(one.id)
            with swarm.context.db.write():
                clean.request(swarm.context, swarm.find(one.id), actor="operator")
        supervisor = Supervisor(swarm.context)
        with hanging(tmp_path, str(world.repo), stuck.worktree_path) as began:

            def is_cleaned() -> bool:
                do_chores(supervisor)
                return swarm.find(fine.id).cleaned

            wait_until(is_cleaned, timeout=60, what="the other is cleaned")
            wait_until(began.exists, what="git hangs")
            assert not swarm.find(stuck.id).cleaned


def test_a_repository_that_hung_is_left_alone_for_a_while() -> None:
    hangs = Hanging(seconds=0.2, rest=60)
    with pytest.raises(TimedOut), hangs.asking("one"):
        proc.run(["sleep", "600"])
    with pytest.raises(TimedOut), hangs.asking("one"):
        pytest.fail("it is asked again at once")
    with hangs.asking("another"):
        assert proc.run(["true"]).returncode == 0
