"""A folder read together with its git folder, true to the disk whatever an agent's configuration says."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from swarm_core import files
from swarm_core.errors import NotFound
from swarm_core.git.command import LONG_TIMEOUT, _git

# Settings with which git would overlook files, change its own folder, or refuse names that are valid here.
_SETTINGS = {
    "core.ignoreCase": "false",
    "core.precomposeUnicode": "false",
    "core.protectHFS": "false",
    "core.protectNTFS": "false",
    "core.splitIndex": "false",
    "core.untrackedCache": "false",
    "index.sparse": "false",
}
TRUE_TO_DISK = tuple(part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}"))
_NOTHING_REPLACED = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull}


@dataclass(frozen=True, slots=True)
class Checkout:
    """Files at `path` that belong to `git_dir`; `env` says where objects are read and written."""

    path: Path
    git_dir: Path
    common_dir: Path
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def index(self) -> Path:
        return self.git_dir / "index"

    @property
    def objects(self) -> Path:
        return self.common_dir / "objects"

    def using(self, env: Mapping[str, str]) -> Checkout:
        return replace(self, env=env)

    def run(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        ok_codes: Container[int] = (0,),
    ) -> bytes:
        """Run git here; neither the folder's name nor `core.worktree` matters."""
        here = {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.path)}
        everything = {**here, **_NOTHING_REPLACED, **self.env, **(env or {})}
        return _git(
            self.path, *TRUE_TO_DISK, *args, env=everything, stdin=stdin, ok_codes=ok_codes, timeout=LONG_TIMEOUT
        )

    def line(self, *args: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> str:
        return os.fsdecode(self.run(*args, env=env, stdin=stdin)).strip()


def open_checkout(path: Path) -> Checkout:
    """The checkout at exactly `path`; raises NotFound when its `.git` leads to no git folder."""
    found = find_checkout(path)
    if found is None:
        raise NotFound(
            f"{path} is not a git repository", code="GIT_REPOSITORY_NOT_FOUND", details={"path": str(path)}
        )
    return found


def find_checkout(path: Path) -> Checkout | None:
    """The checkout at exactly `path`, or None."""
    place = Path(os.path.realpath(path))
    git_dir = git_dir_of(place)
    if git_dir is None or not (git_dir / "HEAD").is_file():
        return None
    try:
        shared = os.fsdecode(files.read_small(git_dir / "commondir")).rstrip("\n")
    except OSError:
        shared = "."
    common_dir = Path(os.path.realpath(git_dir / shared))
    if not (common_dir / "objects").is_dir():
        return None
    return Checkout(place, git_dir, common_dir)


def git_dir_of(path: Path) -> Path | None:
    """The git folder that `.git` in `path` is or names, whether or not it is one."""
    dot_git = path / ".git"
    if dot_git.is_dir():
        return Path(os.path.realpath(dot_git))
    try:
        content = os.fsdecode(files.read_small(dot_git)) if dot_git.is_file() else ""
    except OSError:
        return None
    if not content.startswith("gitdir: "):
        return None
    return Path(os.path.realpath(path / content.removeprefix("gitdir: ").rstrip("\r\n")))
