"""The entries under `.git/worktrees` that register linked worktrees, read and dropped one at a time.

`git worktree prune` is never used: it would drop the entries of other people's worktrees on unmounted disks.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm_core import files
from swarm_core.errors import Conflict

_READY = "swarm-ready"
_ADOPTING = "swarm-adopting"
_INITIALIZING = b"initializing"
# What an entry remembers while its worktree is removed. Our lock keeps `git worktree prune` away.
STORED, SUSPECTS, SEEN = "swarm-stored", "swarm-suspects", "swarm-seen"
_LEAVING = b"swarm is removing it"
# What git reads in a store of objects, and how it quotes the name of another one.
_IN_STORE = re.compile(r"pack|info|[0-9a-f]{2}")
_ESCAPE = re.compile(rb'\\([0-7]{3}|[abfnrtv"\\])')
_ESCAPES = dict(zip(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\', strict=True))
_OURS = frozenset({"locked", "gitdir", _READY, _ADOPTING, STORED, SUSPECTS, SEEN})


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
        """Whether a person has locked it, with a reason or without.

        An empty lock beside no HEAD is git's own: it was killed while it made the worktree.
        """
        lock = self.folder / "locked"
        if not os.path.lexists(lock):
            return False
        reason = _bytes(lock).strip()
        return self.head != "" if not reason else reason not in {_INITIALIZING, _LEAVING}

    @property
    def path_now(self) -> Path:
        """The place it registers now; `path` is that of when it was found."""
        return Path(os.path.normpath(self.folder / _text(self.folder / "gitdir"))).parent

    def lock(self) -> None:
        """Lock it while it is removed, in one step: an empty lock would be a person's."""
        _replace(self.folder / "locked", _LEAVING)

    def unlock(self) -> None:
        """Forget a removal that was begun; a person's own lock stays."""
        if _bytes(self.folder / "locked").strip() == _LEAVING:
            (self.folder / "locked").unlink()
        for name in (STORED, SUSPECTS, SEEN):
            (self.folder / name).unlink(missing_ok=True)

    def register(self, path: Path) -> None:
        """Say that the worktree is at `path`, which has the same parent; an address that is relative stays so."""
        before = Path(_text(self.folder / "gitdir"))
        _replace(self.folder / "gitdir", os.fsencode(f"{before.parents[1] / path.name / '.git'}\n"))

    def relocate(self, path: Path) -> None:
        """Say that the worktree is at `path`, wherever that is; a relative address stays relative."""
        address = os.path.join(path, ".git")  # noqa: PTH118
        if not os.path.isabs(_text(self.folder / "gitdir")):  # noqa: PTH117
            address = os.path.relpath(address, self.folder)
        _replace(self.folder / "gitdir", os.fsencode(f"{address}\n"))

    def note(self, name: str, facts: object) -> None:
        _replace(self.folder / name, json.dumps(facts).encode())

    def recall(self, name: str) -> Any:
        """What was noted under the name; None when nothing was."""
        try:
            data = files.read_regular(self.folder / name)  # as large as the worktree has files
        except (FileNotFoundError, NotADirectoryError):
            return None
        return json.loads(data) if data else None

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


def lent(common_dir: Path, folder: Path) -> list[str]:
    """What the repository uses and lies in the folder, relative to it: stores of objects, and where links lead."""
    used = {path for path in _used(common_dir) if path.is_relative_to(folder) and path.exists()}
    return sorted(str(path.relative_to(folder)) for path in used)


def _used(common_dir: Path) -> Iterator[Path]:
    yield from (_real(path) for path in common_dir.iterdir() if path.is_symlink())
    waiting, seen = [_real(common_dir / "objects")], set()
    while waiting:
        store = waiting.pop()
        if store in seen:
            continue
        seen.add(store)
        yield store
        waiting += _alternates(store)
        for path in (one for one in _listed(store) if _IN_STORE.fullmatch(one.name)):
            yield from (_real(link) for link in (path, *_listed(path)) if link.is_symlink())


def _listed(folder: Path) -> list[Path]:
    """What is in a folder; nothing when it is not one, or cannot be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _alternates(store: Path) -> Iterator[Path]:
    """The stores that git reads too when it reads this one."""
    try:
        lines = files.read_small(store / "info/alternates").split(b"\n")
    except OSError:
        return
    for line in lines:
        if line and b"\0" not in line and not line.startswith(b"#"):
            yield _real(store / os.fsdecode(_unquoted(line)))


def _unquoted(line: bytes) -> bytes:
    if not (len(line) > 1 and line.startswith(b'"') and line.endswith(b'"')):
        return line
    return _ESCAPE.sub(_meant, line[1:-1])


def _meant(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    return bytes([int(code, 8) & 0xFF if code.isdigit() else _ESCAPES[code[0]]])


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def forget(entry: Admin) -> None:
    """Drop one entry and the index and submodule clones in it; the worktree's own files stay.

    Its address goes last, so that one whose dropping was killed is found again.
    """
    for item in entry.folder.iterdir() if entry.folder.is_dir() else ():
        if item.is_dir() and not item.is_symlink():
            remove_tree(item)
        elif item.name != "gitdir":
            item.unlink(missing_ok=True)
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
    if content - {".git"} or (content and not _is_leftover(common_dir, path)):
        raise taken(path, "the folder is not empty")
    (path / ".git").unlink(missing_ok=True)


def _is_leftover(common_dir: Path, path: Path) -> bool:
    """Whether `.git` leads to this repository, or is empty: git was killed between making and writing it."""
    dot_git = path / ".git"
    if not dot_git.is_symlink() and dot_git.is_file() and not dot_git.stat().st_size:
        return True
    target = linked_folder(path)
    return target is not None and target.parent == common_dir / "worktrees"


def taken(path: Path, why: str, *, hint: str = "move it away or choose another name") -> Conflict:
    return Conflict(
        f"{path} cannot be used for a worktree: {why}",
        code="WORKTREE_EXISTS",
        hint=hint,
        details={"path": str(path)},
    )


def link_problem(path: Path) -> str:
    """Why the folder's `.git` does not lead to an entry that registers this very folder: one of models.KEPT.

    Empty when it does, and when the repository itself is gone. Runs no git command.
    """
    dot_git = path / ".git"
    if not os.path.lexists(dot_git):
        return "no_link"
    target = None if dot_git.is_symlink() else linked_folder(path)
    if target is None:
        return "bent_link"
    gitdir = _text(target / "gitdir")
    if not gitdir and target.parent.name == "worktrees" and not target.parents[1].exists():
        return ""
    is_linked = gitdir != "" and os.path.realpath(target / gitdir) == os.path.realpath(dot_git)
    return "" if is_linked else "bent_link"


def holders(common_dir: Path, branch: str) -> list[Path]:
    """The git folders in which `branch` is checked out, being rebased or being bisected."""
    folders = [common_dir, *(entry.folder for entry in all_entries(common_dir))]
    return [folder for folder in folders if _holds(folder, branch)]


def checkout_of(common_dir: Path, git_dir: Path) -> Path:
    """The folder whose files belong to a git folder that `holders` returned."""
    linked = next((entry.path for entry in all_entries(common_dir) if entry.folder == git_dir), None)
    return linked or (git_dir.parent if git_dir.name == ".git" else git_dir)


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


def is_ours(name: str) -> bool:
    """Whether swarm itself writes this file of an entry, or git only renews its time while reading."""
    return (
        name in _OURS
        or name.startswith("sharedindex.")
        or (name.startswith("modules/") and name.endswith("/config"))
    )


def _replace(path: Path, data: bytes) -> None:
    """Replace a small file in one step or, on a full disk, in the block that it has."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_bytes(data)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not path.exists():
            raise
        with path.open("r+b") as file:
            file.write(data)
            file.truncate()
    else:
        fresh.replace(path)


def _text(path: Path) -> str:
    return os.fsdecode(_bytes(path)).rstrip("\n")


def _bytes(path: Path) -> bytes:
    try:
        return files.read_small(path)
    except (FileNotFoundError, NotADirectoryError):
        return b""
