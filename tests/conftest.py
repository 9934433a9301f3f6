"""What every test stands on: an isolated environment, real repositories, bounded waits."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import isolate, make_repo


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """A shell makes background jobs deaf to Ctrl-C, and children inherit that; programs under test must hear."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def isolated_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the person's home, git configuration, tmux or tokens."""
    isolate(monkeypatch, tmp_path)


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
