"""What every test stands on: an isolated environment, real repositories, bounded waits."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import make_repo

_KEEP = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "TERM", "PYTHONPATH", "CI")


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """A shell makes background jobs deaf to Ctrl-C, and children inherit that; programs under test must hear."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository on branch main with one commit and two files."""
    return make_repo(tmp_path / "repo")
