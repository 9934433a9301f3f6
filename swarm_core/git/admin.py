"""The entries under `.git/worktrees` that register linked worktrees, read and dropped one at a time.

`git worktree prune` is never used: it would drop the entries of other people's worktrees on unmounted disks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm_core.errors import Conflict

_READY = "swarm-ready"
_ADOPTING = "swarm-adopting"
_INITIALIZING = b"initializing"


@dataclass(frozen=True, slots=True)
class Admin:
    """One registered worktree: its folder under .git/worktrees and the place it belongs to."""

    folder: Path
    path: Path

    @property
    def head(self) -> str:
        """HEAD's own text: `ref: refs/heads/x` or an object id; empty when it was never written."""
        return _text(self.folder / "HEAD")

    @property
    def is_whole(self) -> bool:
        """Whether git finished making it and the worktree's `.git` file points back at it."""
        begun = _bytes(self.folder / "locked").strip() == _INITIALIZING
        return not begun and self.head != "" and linked_folder(self.path) == self.folder

    @property
    def is_locked(self) -> bool:
        return _bytes(self.folder / "locked").strip() not in {b"", _INITIALIZING}

    @property
    def is_ready(self) -> bool:
        """Whether its files were once checked out to the end."""
        return (self.folder / _READY).exists()

    @property
    def is_adopting(self) -> bool:
        """Whether its adoption from the pool was begun and not completed."""
        return (self.folder / _ADOPTING).exists()

    def mark_ready(self) -> None:
        (self.folder / _READY).touch()

    def mark_adopting(self) -> bool:
        """Say that an adoption begins; returns whether an earlier one had begun."""
        begun = self.is_adopting
        (self.folder / _ADOPTING).touch()
        return begun

    def drop_adopting(self) -> None:
        (self.folder / _ADOPTING).unlink(missing_ok=True)

    def drop_stale_locks(self) -> None:
        """Remove the locks of a git that was killed; only when no other git can be at work here."""
        for name in ("index.lock", "HEAD.lock", "ORIG_HEAD.lock"):
            (self.folder / name).unlink(missing_ok=True)


def all_entries(common_dir: Path) -> Iterator[Admin]:
    worktrees = common_dir / "worktrees"
    for folder in sorted(worktrees.iterdir()) if worktrees.is_dir() else ():
        gitdir = _text(folder / "gitdir")
        if gitdir:
            yield Admin(folder, Path(os.path.normpath(folder / gitdir)).parent)


def find(common_dir: Path, path: Path) -> Admin | None:
    """The entry that registers `path`, whether or not the folder exists."""
    return next((entry for entry in all_entries(common_dir) if entry.path == path), None)


def linked_folder(path: Path) -> Path | None:
    """Where a worktree's `.git` file points; None when there is no such file."""
    dot_git = path / ".git"
    if not dot_git.is_file():
        return None
    target = _text(dot_git).removeprefix("gitdir: ")
    return Path(os.path.realpath(path / target))


def forget(entry: Admin) -> None:
    """Drop one entry and the index and submodule clones in it; the worktree's own files stay."""
    remove_tree(entry.folder)
    with contextlib.suppress(OSError):  # not empty: other worktrees are registered
        entry.folder.parent.rmdir()


def drop_stale_branch_lock(common_dir: Path, branch: str) -> None:
    """Remove the lock of a git that was killed while it wrote a branch of ours."""
    with contextlib.suppress(NotADirectoryError):
        (common_dir / "refs" / "heads" / f"{branch}.lock").unlink(missing_ok=True)


def clear_leftovers(common_dir: Path, path: Path) -> None:
    """Make room at `path`: remove what a killed attempt of ours left there, refuse anything else.

    Raises Conflict (WORKTREE_EXISTS).
    """
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        raise taken(path, "a file is in the way")
    content = {item.name for item in path.iterdir()}
    target = linked_folder(path)
    ours = target is not None and target.parent == common_dir / "worktrees"
    if content - {".git"} or (content and not ours):
        raise taken(path, "the folder is not empty")
    (path / ".git").unlink(missing_ok=True)


def taken(path: Path, why: str) -> Conflict:
    return Conflict(
        f"{path} cannot be used for a worktree: {why}",
        code="WORKTREE_EXISTS",
        hint="move it away or choose another name",
        details={"path": str(path)},
    )


def holders(common_dir: Path, branch: str) -> list[Path]:
    """The git folders in which `branch` is checked out, being rebased or being bisected."""
    folders = [common_dir, *(entry.folder for entry in all_entries(common_dir))]
    return [folder for folder in folders if _holds(folder, branch)]


def remove_tree(path: Path) -> None:
    """Delete a folder with everything in it, read-only folders included; missing is fine."""
    shutil.rmtree(path, onerror=_open_up_and_retry)


def _open_up_and_retry(function: Any, path: str, failure: Any) -> None:
    if isinstance(failure[1], FileNotFoundError):
        return
    parent = Path(path).parent
    parent.chmod(parent.stat().st_mode | stat.S_IRWXU)
    target = Path(path)
    if target.is_dir() and not target.is_symlink():
        target.chmod(target.stat().st_mode | stat.S_IRWXU)
        shutil.rmtree(path)
    else:
        target.unlink(missing_ok=True)


def _holds(folder: Path, branch: str) -> bool:
    if _text(folder / "HEAD") == f"ref: refs/heads/{branch}":
        return True
    busy = [_text(folder / name / "head-name") for name in ("rebase-merge", "rebase-apply")]
    return f"refs/heads/{branch}" in busy or _text(folder / "BISECT_START") == branch


def _text(path: Path) -> str:
    return os.fsdecode(_bytes(path)).rstrip("\n")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
