"""A repository, swarm's home and the instances in it, in one folder that is made anew for every sequence."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm_core import config
from swarm_core.hosts.pool import HostPool
from swarm_core.ops.context import Context
from swarm_core.store.database import open_database
from swarm_core.swarm import Swarm
from tests.survival import inventory
from tests.survival.inventory import Inventory
from tests.survival.quiet_host import QuietHost

PERSON = -1
IGNORED = ("*.log", "data", "secrets", "ignored/")
_KEEP = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "TERM", "PYTHONPATH", "CI")
_CONFIG = 'agent = "scripted"\npool = 1\nlock_timeout = 20\n'


@dataclass(frozen=True)
class Row:
    id: str
    path: Path
    branch: str


class World:
    """`root` holds the repository, a library for submodules, the home, and a folder that belongs to nobody."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repo, self.library, self.home = root / "repo", root / "library", root / "home"
        self.elsewhere = root / "elsewhere"
        self.environ = environ(root)
        self._written = 0
        self._held: list[int] = []

    @classmethod
    def fresh(cls, root: Path, template: Path) -> World:
        """A copy of the template in place of whatever the last sequence left."""
        remove(root)
        shutil.copytree(template, root, symlinks=True)
        return cls(root)

    @contextlib.contextmanager
    def open(self) -> Iterator[Swarm]:
        """Swarm on this home, without tmux; as a process start would have it."""
        settings = config.load(self.environ)
        with contextlib.closing(open_database(settings.database_path, busy_timeout=5)) as db:
            hosts = HostPool([QuietHost(settings, self.environ)])
            yield Swarm(Context(db, settings, hosts, environ=self.environ), self.environ)

    def rows(self) -> list[Row]:
        with contextlib.closing(sqlite3.connect(f"file:{self.home}/swarm.db?mode=ro", uri=True)) as db:
            found = db.execute(
                "SELECT id, worktree_path, branch FROM instances ORDER BY created_at, id"
            ).fetchall()
        return [Row(one[0], Path(one[1]), one[2]) for one in found]

    def row(self, who: int) -> Row | None:
        rows = self.rows()
        return rows[who % len(rows)] if rows else None

    def folder(self, who: int, where: str = ".") -> Path | None:
        """A place somebody works in: the person's checkout or an instance's worktree, or a repository inside."""
        if who == PERSON:
            top = self.repo
        else:
            row = self.row(who)
            if row is None or not row.path.is_dir():
                return None
            top = row.path
        inner = top / where
        return inner if (inner / ".git").exists() and not inner.is_symlink() else top

    def hold(self, who: int) -> Path | None:
        """The same worktree as a process sees it that has it as its current folder, wherever it is moved."""
        folder = self.folder(who)
        if folder is None:
            return None
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._held.append(fd)
        return Path(f"/proc/{os.getpid()}/fd/{fd}")

    def let_go(self) -> None:
        for fd in self._held:
            os.close(fd)
        self._held.clear()

    def text(self, what: str) -> str:
        """A content that nobody has written before."""
        self._written += 1
        return f"{ascii(what)[1:-1]} {self._written}\n"

    def git(self, cwd: Path, *args: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """A git command as an agent or a person runs it; it may fail, as theirs do."""
        return subprocess.run(
            ["git", *args],
            cwd=cwd,
            env=self.environ | env,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=inventory.TIMEOUT,
        )

    def inventory(self) -> Inventory:
        found = inventory.take(self.repo, self.home, self.elsewhere)
        found.kept |= self._in_library
        return found

    @functools.cached_property
    def _in_library(self) -> dict[str, str]:
        """Where submodules come from; nobody writes there."""
        return inventory.take(self.library, self.library).kept

    def show(self, oid: str) -> str:
        """The beginning of a content, if git still has it somewhere."""
        return self.git(self.repo, "cat-file", "-p", oid).stdout.replace("\n", " ")[:80] or "no copy left"


def environ(root: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in _KEEP}
    person = {"NAME": "Test Person", "EMAIL": "person@example.invalid"}
    identity = {f"GIT_{role}_{what}": v for role in ("AUTHOR", "COMMITTER") for what, v in person.items()}
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_EDITOR": "true"}
    allowed = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
    home = {"HOME": str(root / "user"), "SWARM_HOME": str(root / "home"), "TMPDIR": str(root / "tmp")}
    return kept | identity | quiet | allowed | home


def make_template(folder: Path) -> Path:
    """A repository whose branch `other` conflicts with main, a library, and an empty home."""
    world = World(folder)
    for path in (world.repo, world.library, world.elsewhere, folder / "user", folder / "tmp"):
        path.mkdir(parents=True)
    for path in (world.repo, world.library):
        world.git(path, "init", "-q", "-b", "main", "--template=")
    _commit(world, world.library, "first", {"lib.py": "print('library')\n"})
    files = {"README.md": "first\n", "src/app.py": "first\n", ".gitignore": "\n".join(IGNORED) + "\n"}
    _commit(world, world.repo, "first", files)
    world.git(world.repo, "checkout", "-q", "-b", "other")
    _commit(world, world.repo, "other", {"README.md": "other\n", "other.txt": "other\n"})
    world.git(world.repo, "checkout", "-q", "main")
    _commit(world, world.repo, "second", {"README.md": "second\n", "src/app.py": "second\n"})
    world.home.mkdir(mode=0o700)
    (world.home / "config.toml").write_text(_CONFIG)
    (world.elsewhere / "theirs.txt").write_text("somebody else's\n")
    with world.open():
        pass
    return folder


def _commit(world: World, repo: Path, message: str, files: dict[str, str]) -> None:
    for name, text in files.items():
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text(text)
    world.git(repo, "add", "-A")
    done = world.git(repo, "commit", "-q", "-m", message)
    assert done.returncode == 0, done.stderr


def remove(folder: Path) -> None:
    """Delete a folder in which somebody may have made things unreadable."""

    def open_up(function: Any, path: str, _: object) -> None:
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(0o700)
            if not Path(path).is_symlink():
                Path(path).chmod(0o700)
            function(path)

    shutil.rmtree(folder, onerror=open_up)


def workplace() -> Path:
    """A folder for all sequences of one run, with a path short enough for a socket; in memory if it can be."""
    memory = "/dev/shm"
    return Path(tempfile.mkdtemp(prefix="sw-survival-", dir=memory if os.access(memory, os.W_OK) else "/tmp"))
