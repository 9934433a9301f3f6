"""Pull requests without agents, a check command that counts, and what a merge may have left behind."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from swarm_core.models import Instance, Message, Pull, Queued
from swarm_core.ops import merging
from swarm_core.ops.follow import Follower
from swarm_core.store import messages, queue
from swarm_core.swarm import Swarm
from tests.rows import add_instance
from tests.support import git_run, wait_until
from tests.world import World

ROOT = Path(__file__).parents[2]
Files = Mapping[str, str]


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self._now = datetime(2026, 11, 16, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self._now += timedelta(milliseconds=1)
        return self._now

    def pass_by(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


@dataclass
class Check:
    """A check command that notes every run, fails on a tree with a file `bad*`, and may do something before."""

    folder: Path

    def use(self, world: World, *first: str) -> None:
        """Make it the setting; `first` are lines of shell that run before it looks, as often as it runs."""
        lines = [f"cd {shlex.quote(str(self.folder))} && echo run >>runs && cd - >/dev/null", *first]
        lines += ["ls", "for f in bad*; do [ -e $f ] && { echo $f is bad; exit 1; }; done", "exit 0"]
        self.script.write_text("\n".join(lines) + "\n")
        configure(world, check_command=f"sh {self.script}")

    @property
    def script(self) -> Path:
        return self.folder / "check.sh"

    @property
    def runs(self) -> int:
        path = self.folder / "runs"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def once(self, *lines: str) -> str:
        """A line of shell that does these only the first time."""
        mark = shlex.quote(str(self.folder / "done"))
        return f"[ -e {mark} ] || {{ touch {mark}; {'; '.join(lines)}; }}"

    def held(self) -> str:
        """A line of shell that waits until `let_go`."""
        os.mkfifo(self.folder / "gate")
        return f"touch {self.folder}/held; read x <{self.folder}/gate"

    def wait_held(self) -> None:
        wait_until((self.folder / "held").exists, timeout=60, what="the check runs")

    def let_go(self) -> None:
        def passed() -> bool:
            try:
                gate = os.open(self.folder / "gate", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                return False
            os.write(gate, b"go\n")
            os.close(gate)
            return True

        wait_until(passed, timeout=60, what="the check waits at the gate")


@pytest.fixture
def check(tmp_path: Path) -> Check:
    folder = tmp_path / "check"
    folder.mkdir()
    return Check(folder)


def configure(world: World, **settings: str) -> None:
    world.home.mkdir(exist_ok=True, mode=0o700)
    text = "".join(f"{name} = {value!r}\n" for name, value in settings.items())
    (world.home / "config.toml").write_text(text)


def put(repo: Path, branch: str, files: Files, *, start: str | None = None) -> str:
    """One more commit of these files on a branch, without a checkout; returns it."""
    stream = [f"commit refs/heads/{branch}", "committer Kim <kim@example.invalid> now", "data 4", "work"]
    stream += [f"from {start or f'refs/heads/{branch}^0'}"]
    for path, content in files.items():
        stream += [f"M 100644 inline {path}", f"data {len(content.encode())}", content]
    git_run(repo, "fast-import", "--quiet", "--date-format=now", stdin=("\n".join(stream) + "\n").encode())
    return rev(repo, branch)


def rev(repo: Path, name: str) -> str:
    return git_run(repo, "rev-parse", name)


def proposed(world: World, swarm: Swarm, number: int, files: Files | None = None, **wish: Any) -> Instance:
    """An instance without an agent whose pull request is open."""
    name = f"work-{number}-a1"
    start = rev(world.repo, "main")
    put(world.repo, f"work/{name}", files or {f"{number}.txt": f"{number}\n"}, start="refs/heads/main")
    work = add_instance(swarm.context.db, name, repo_path=str(world.repo), base_commit=start)
    swarm.open_pull(work.id, title=f"Make {number}", description="It was not made.", **wish)
    return work


def commit_main(repo: Path, files: Files) -> str:
    """A commit by a person in the main checkout."""
    for path, content in files.items():
        (repo / path).parent.mkdir(exist_ok=True)
        (repo / path).write_text(content)
    git_run(repo, "add", "-A")
    git_run(repo, "commit", "-q", "-m", "by a person")
    return rev(repo, "main")


def pull_of(swarm: Swarm, work: Instance) -> Pull:
    return swarm.pulls.of(work.id).pull


def told(swarm: Swarm, work: Instance) -> list[Message]:
    return messages.of(swarm.context.db, work.id)


def entries(swarm: Swarm) -> dict[str, Queued]:
    """Every entry the queue has had, by instance; the newest of each."""
    db = swarm.context.db
    return {e.instance_id: e for e in [*reversed(queue.newest(db, limit=100)), *queue.waiting(db)]}


def states(swarm: Swarm) -> list[tuple[str, str]]:
    """Instance number and state, in the order of the numbers."""
    return sorted((name.split("-")[1], entry.state) for name, entry in entries(swarm).items())


def look(swarm: Swarm) -> int:
    """Follow everything that is due, and merge what was asked for."""
    looked = Follower(swarm.context).look()
    merging.merge_asked(swarm.context)
    return looked


def die_at(world: World, checkpoint: str, *what: str) -> int:
    """Merge in a process that kills itself at the checkpoint; its exit code."""
    argv = [sys.executable, "-m", "tests.fakes.crash_merge", checkpoint, *what]
    env = world.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, cwd=world.repo, env=env, capture_output=True, timeout=60, check=False).returncode


def left_over(world: World) -> list[str]:
    """What a merge must not leave: scratch folders, registered worktrees, changed files.

    The log of a check that was ended goes with the next one.
    """
    scratch = world.home / "scratch"
    found = [str(p) for p in scratch.rglob("*") if p.is_file() and p.suffix != ".log"]
    found += [path for path in world.worktrees() if "scratch" in path]
    return found + git_run(world.repo, "status", "--porcelain").splitlines()
