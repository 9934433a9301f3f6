"""The real `swarm` command in a home of its own, and what it may have left behind."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import git_run, wait_until

ROOT = Path(__file__).resolve().parents[2]
ARGV = (sys.executable, "-m", "swarm_ui.cli")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Cli:
    """Runs `swarm` as a person does: a process of its own, without a terminal."""

    home: Path
    cwd: Path
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        known = {"SWARM_HOME": str(self.home), "SWARM_AGENT": "scripted", "PYTHONPATH": str(ROOT)}
        return dict(os.environ) | known | self.extra

    def __call__(self, *args: str | bytes, stdin: bytes = b"", check: int | None = 0) -> Done:
        ran = subprocess.run(
            [*ARGV, *args],
            cwd=self.cwd,
            env=self.environ,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=90,
        )
        done = Done(ran.returncode, ran.stdout.decode(), ran.stderr.decode())
        assert check is None or done.code == check, f"exit code {done.code}\n{done.out}\n{done.err}"
        return done

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*ARGV, *args],
            cwd=self.cwd,
            env=self.environ | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def work(self, *steps: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
        found: dict[str, Any] = self("work", "\n".join(steps), *options, "--json").json
        return found

    def until(self, instance_id: str, **wanted: object) -> dict[str, Any]:
        """Wait until `ls --json` shows the instance with these fields."""

        def seen() -> dict[str, Any] | None:
            rows = {r["id"]: r for r in self("ls", "--all", "--json").json}
            row: dict[str, Any] = rows[instance_id]
            return row if all(row[k] == v for k, v in wanted.items()) else None

        found = wait_until(seen, timeout=30, what=f"{instance_id} {wanted}")
        assert isinstance(found, dict)
        return found

    def end(self) -> None:
        tmux = ["tmux", "-S", str(self.home / "tmux.sock"), "kill-server"]
        subprocess.run(tmux, capture_output=True, check=False, timeout=30)


def rows(home: Path, sql: str) -> list[tuple[Any, ...]]:
    path = home / "swarm.db"
    if not path.exists():
        return []
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def change(home: Path, sql: str) -> None:
    connection = sqlite3.connect(home / "swarm.db")
    with connection:
        connection.execute(sql)
    connection.close()


def traces(home: Path, repo: Path) -> list[str]:
    """Everything a refused command must not have left."""
    found = [f"row {r}" for r in rows(home, "SELECT id, status FROM instances")]
    found += [f"action {r}" for r in rows(home, "SELECT id, kind FROM actions")]
    found += [f"worktree {p}" for p in (home / "worktrees").rglob("*")] if (home / "worktrees").exists() else []
    found += [f"files {p}" for p in (home / "instances").rglob("*")] if (home / "instances").exists() else []
    registered = git_run(repo, "worktree", "list", "--porcelain").count("worktree ")
    found += [f"{registered} worktrees registered"] if registered != 1 else []
    refs = git_run(repo, "for-each-ref", "--format=%(refname)").split()
    found += [f"ref {r}" for r in refs if r != "refs/heads/main"]
    alive = subprocess.run(
        ["tmux", "-S", str(home / "tmux.sock"), "list-sessions"], capture_output=True, check=False, timeout=30
    )
    return found + ([f"tmux server: {alive.stdout!r}"] if alive.returncode == 0 else [])
