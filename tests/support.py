"""Plain functions the tests share: git, repositories, bounded waits."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm_core.store import tokens
from swarm_core.store.database import Database

_KEEP = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "TERM", "PYTHONPATH", "CI")


def isolate(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Take the person's home, git configuration, tmux and tokens out of the environment."""
    for name in list(os.environ):
        if name not in _KEEP and not name.startswith(("PYTEST_", "COV_")):
            monkeypatch.delenv(name)
    user_home = folder / "user-home"
    user_home.mkdir()
    monkeypatch.setenv("HOME", str(user_home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Test Person")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "person@example.invalid")


def git_run(cwd: Path, *args: str, stdin: bytes | None = None) -> str:
    done = subprocess.run(
        ["git", "-C", str(cwd), *args], input=stdin, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode(errors="surrogateescape").strip()


def make_repo(path: Path) -> Path:
    path.mkdir(parents=True)
    git_run(path, "init", "-q", "-b", "main")
    (path / "README.md").write_text("# A project\n")
    (path / "src").mkdir()
    (path / "src" / "app.py").write_text("print('hello')\n")
    git_run(path, "add", "-A")
    git_run(path, "commit", "-q", "-m", "first")
    return path


def wait_until(condition: Callable[[], object], *, timeout: float = 15.0, what: str = "") -> object:
    """Poll until the condition is true and return its value; fail after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    pytest.fail(f"not within {timeout:g} s: {what or condition}")


def token_owner(db: Database, token: str) -> str | None:
    """The name a token speaks for; None when it speaks for nobody."""
    principal = tokens.lookup(db, token).principal
    return principal.name if principal else None
