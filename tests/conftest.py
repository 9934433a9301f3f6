"""What every test stands on: an isolated environment, real repositories, bounded waits."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_KEEP = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "TERM", "PYTHONPATH", "CI")


@pytest.fixture(autouse=True)
def isolated_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the person's home, git configuration, tmux or tokens."""
    for name in list(os.environ):
        if name not in _KEEP and not name.startswith(("PYTEST_", "COV_")):
            monkeypatch.delenv(name)
    user_home = tmp_path / "user-home"
    user_home.mkdir()
    monkeypatch.setenv("HOME", str(user_home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Test Person")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "person@example.invalid")


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder with a path short enough for a unix socket."""
    path = Path(tempfile.mkdtemp(prefix="sw-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def git_run(cwd: Path, *args: str, stdin: bytes | None = None) -> str:
    done = subprocess.run(
        ["git", "-C", str(cwd), *args], input=stdin, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode(errors="surrogateescape").strip()


@pytest.fixture
def git_cmd() -> Callable[..., str]:
    return git_run


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository on branch main with one commit and two files."""
    return make_repo(tmp_path / "repo")


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
