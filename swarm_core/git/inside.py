"""What lies inside a worktree and its own git does not store: repositories, worktrees, odd `.git` files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from swarm_core import files
from swarm_core.errors import CommandFailed, Conflict
from swarm_core.git import admin
from swarm_core.git.checkout import Checkout, find_checkout, git_dir_of
from swarm_core.git.command import nul_list
from swarm_core.git.snapshot import not_stored
from swarm_core.models import KEPT

# What git wants of a git folder, with whether it is a folder.
_GIT_FOLDER = {("HEAD", False), ("objects", True), ("refs", True)}
_LONG = 255
_GIT_NAMES = {name for name, _ in _GIT_FOLDER}


@dataclass(frozen=True, order=True, slots=True)
class DotGit:
    """A file, folder or link named `.git` (in any case), or a bare repository.

    `folder`, in which it is, is relative to the worktree.
    """

    folder: str
    name: str


@dataclass(frozen=True, slots=True)
class Found:
    """Everything named `.git`, what looks like a bare repository, and folders that cannot be read.

    `buried` is what is named `.git` inside a folder named `.git`; no tree of git can hold it.
    """

    dot_gits: list[DotGit] = field(default_factory=list)
    bare: list[DotGit] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    buried: list[str] = field(default_factory=list)


def search(root: Path) -> Found:
    """Look for repositories below the worktree, whose own `.git` does not count.

    Folders that git ignores are searched too: git lists no repository in them.
    """
    found = Found()
    _search(str(root), found)
    return Found(sorted(found.dot_gits), sorted(found.bare), found.closed, sorted(found.buried))


def buried_in(git_dir: Path) -> list[str]:
    """The paths of everything named `.git` in a git folder."""
    below = search(git_dir)
    own = [".git"] if os.path.lexists(git_dir / ".git") else []  # `search` takes it for that of a worktree
    return [str(git_dir / name) for name in (*own, *(f"{one.folder}/{one.name}" for one in below.dot_gits))]


def linked_worktrees_below(path: str | Path) -> list[admin.Admin]:
    """Worktrees of the same repository inside this one, with where they are now; deepest last.

    Found by their registration and by their `.git` files, because a renamed worktree takes along what is inside it
    while the registrations keep the old path. Removing the worktree must drop these registrations too.
    """
    at = find_checkout(Path(path))
    return find_linked(at, search(at.path).dot_gits) if at is not None else []


def find_linked(at: Checkout, found: Iterable[DotGit]) -> list[admin.Admin]:
    """Worktrees of the same repository below a checkout in which everything named `.git` was found."""
    entries = {entry.folder: entry for entry in admin.all_entries(at.common_dir) if entry.folder != at.git_dir}
    places = {folder: _now(at, entry) for folder, entry in entries.items()}
    for dot_git in found:
        place = at.path / dot_git.folder
        git_dir = git_dir_of(place) if dot_git.name == ".git" else None
        if git_dir in entries and places[git_dir] is None:
            places[git_dir] = place
    below = [admin.Admin(folder, place) for folder, place in places.items() if place is not None]
    return sorted(below, key=lambda entry: entry.path)


def ignored(at: Checkout, names: Iterable[str]) -> set[str]:
    """Of the paths those that git ignores; none when it cannot say."""
    asked = [name for name in names if name]
    if not asked:
        return set()
    told = b"".join(os.fsencode(name) + b"\0" for name in asked)
    return set(nul_list(at.run("check-ignore", "-z", "--stdin", stdin=told, ok_codes=(0, 1, 128))))


def ignored_below(at: Checkout, folder: str) -> bool:
    """Whether git ignores any file in the folder, or cannot say.

    `ls-files` with a path would not find the rules of a `.gitignore` that a sparse checkout left out.
    """
    below = [Path(above, name) for above, _, names in os.walk(at.path / folder) for name in names]
    told = b"".join(os.fsencode(file.relative_to(at.path)) + b"\0" for file in below)
    try:
        return bool(at.run("check-ignore", "-z", "--stdin", stdin=told, ok_codes=(0, 1)))
    except CommandFailed:
        return True


def refuse_closed(at: Checkout, closed: Iterable[str]) -> None:
    """Raise Conflict (WORK_NOT_STORED) for folders that cannot be read, unless git ignores them."""
    names = list(closed)
    kept = sorted(set(names) - ignored(at, names))
    if kept:
        raise not_stored("folders cannot be read", kept)


def unstorable(reason: str, names: Iterable[str]) -> Conflict:
    """Say WORK_NOT_STORED of something that keeps the folder for a reason of KEPT."""
    named = sorted(set(names))
    return Conflict(
        f"the folder stays: {KEPT[reason]}: {', '.join(named[:5])}",
        code="WORK_NOT_STORED",
        details={"files": named, "reason": reason},
    )


def goes_with_entry(inner: Checkout) -> bool:
    """Whether it is a linked worktree whose entry belongs to no other folder, as that of a copy does."""
    if inner.git_dir == inner.common_dir:
        return False
    other = Path(os.path.realpath(_registered(inner.git_dir) or inner.path))
    return other == inner.path or git_dir_of(other) != inner.git_dir


def _now(at: Checkout, entry: admin.Admin) -> Path | None:
    """Where a registered worktree is now, if that is below the checkout."""
    own = admin.Admin(at.git_dir, _registered(at.git_dir) or at.path)
    for base in (at.path, own.path):
        if entry.path.is_relative_to(base) and entry.path != base:
            place = at.path / entry.path.relative_to(base)
            return place if place.is_dir() and git_dir_of(place) in {None, entry.folder} else None
    return None


def _registered(git_dir: Path) -> Path | None:
    try:
        return Path(
            os.path.normpath(git_dir / os.fsdecode(files.read_small(git_dir / "gitdir")).rstrip("\n"))
        ).parent
    except OSError:
        return None


def _short(folder: str) -> str:
    """The folder, or the nearest one above it whose path a person can read."""
    while len(folder) > _LONG and "/" in folder:
        folder = folder.rpartition("/")[0]
    return folder


def _search(root: str, found: Found) -> None:
    waiting = [("", False)]
    while waiting:
        folder, in_git = waiting.pop()
        try:
            with os.scandir(f"{root}/{folder}" if folder else root) as listed:
                entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listed]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # closed, or deeper than a path can be long
            found.closed.append(_short(folder))
            continue
        if (
            folder
            and not in_git
            and {(name, is_folder) for name, is_folder in entries if name in _GIT_NAMES} >= _GIT_FOLDER
        ):
            above, _, name = folder.rpartition("/")
            found.bare.append(DotGit(above, name))
        for name, is_folder in entries:
            place = f"{folder}/{name}" if folder else name
            is_git = name.lower() == ".git"
            if is_git and in_git:
                found.buried.append(place)
            elif is_git and place != ".git":
                found.dot_gits.append(DotGit(folder, name))
            if is_folder and place != ".git" and not (is_git and in_git):
                waiting.append((place, in_git or is_git))
