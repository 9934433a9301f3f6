"""A home with its own tmux server and a repository, and the test that everything about them agrees."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swarm_core import config
from swarm_core.models import Instance, Wanted
from swarm_core.store import actions
from swarm_core.swarm import Swarm
from swarm_core.tmux.panes import list_panes
from tests.support import git_run, wait_until


class World:
    """`world.open()` is a process start: a fresh Swarm on the same home."""

    def __init__(self, home: Path, repo: Path) -> None:
        self.home = home
        self.repo = repo

    @property
    def environ(self) -> dict[str, str]:
        return os.environ | {"SWARM_HOME": str(self.home)}

    @property
    def settings(self) -> config.Settings:
        return config.load(self.environ)

    @contextmanager
    def open(self, **options: Any) -> Iterator[Swarm]:
        with Swarm.open(self.settings, self.environ, **options) as swarm:
            yield swarm

    def work(self, swarm: Swarm, prompt: str = "say ready", **options: Any) -> Instance:
        return swarm.work(prompt, repo=str(self.repo), agent="scripted", **options)[0]

    def wait_idle(self, swarm: Swarm, instance_id: str) -> Instance:
        """Until the scripted agent has done all its steps."""

        def idle() -> Instance | None:
            swarm.reconcile()
            found = swarm.find(instance_id)
            return found if found.activity == "idle" else None

        found = wait_until(idle, what=f"{instance_id} idle")
        assert isinstance(found, Instance)
        return found

    def sessions(self) -> dict[str, bool]:
        """Session name -> alive."""
        return {p.session: not p.dead for p in list_panes(self.settings.tmux_socket)}

    def worktrees(self) -> dict[str, str | None]:
        """Path -> branch of every worktree git knows, without the main checkout."""
        found: dict[str, str | None] = {}
        for block in git_run(self.repo, "worktree", "list", "--porcelain").split("\n\n")[1:]:
            lines = dict(line.partition(" ")[::2] for line in block.splitlines())
            found[lines["worktree"]] = lines.get("branch", "").removeprefix("refs/heads/") or None
        return found

    def branches(self) -> set[str]:
        return set(git_run(self.repo, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines())

    def command(
        self, *args: str, stdin: bytes | None = None, timeout: float = 60, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the installed `swarm` command in the repository."""
        import sys

        argv = [sys.executable, "-m", "swarm_ui.cli", *args]
        return subprocess.run(
            argv,
            cwd=self.repo,
            env=self.environ | (env or {}),
            input=stdin,
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    def kill_tmux(self) -> None:
        socket = str(self.settings.tmux_socket)
        subprocess.run(["tmux", "-S", socket, "kill-server"], capture_output=True, check=False, timeout=20)


def assert_agreement(world: World, swarm: Swarm) -> None:
    """Database, git and tmux tell the same story, and no file is left over from an interrupted step."""
    rows = {i.id: i for i in swarm.instances(include_cleaned=True)}
    assert actions.all_open(swarm.context.db) == []
    present = {i.worktree_path: i.branch for i in rows.values() if not i.cleaned}
    assert world.worktrees() == present
    for path in present:
        assert Path(path).is_dir()
        assert git_run(Path(path), "rev-parse", "--is-inside-work-tree") == "true"
    sessions = world.sessions()
    wanted = {i.id for i in rows.values() if i.wanted == Wanted.RUNNING}
    assert {name for name, alive in sessions.items() if alive} == wanted
    assert sessions.keys() <= {i.id for i in rows.values() if not i.cleaned}
    for instance in rows.values():
        if instance.wanted == Wanted.RUNNING:
            assert instance.status not in ("failed", "terminated", "starting")
        elif instance.status in ("running", "starting"):
            raise AssertionError(f"{instance.id} is {instance.status} but {instance.wanted}")
    kept = {i.branch for i in rows.values() if not i.cleaned}
    for branch in world.branches() - {"main"} - kept:
        assert git_run(world.repo, "rev-list", "--count", f"main..{branch}") != "0", f"orphan branch {branch}"
    folder = world.home / "worktrees"
    on_disk = {str(p) for p in folder.glob("*/*")} if folder.exists() else set()
    assert on_disk == set(present)
    assert swarm.context.db.check() == []
