"""The files of a new worktree, written without ever overwriting one that git did not write itself.

A killed checkout is completed: missing files are added, and only files that it left itself are replaced.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core import files
from swarm_core.errors import CommandFailed
from swarm_core.git import admin
from swarm_core.git.checkout import open_checkout
from swarm_core.git.command import _ANY_CODE, LONG_TIMEOUT, _git, nul_list
from swarm_core.git.refs import git_dirs
from swarm_core.git.snapshot import GITLINK, LINK, hash_files, on_disk

_MAX_WORKERS = 4
_NOTHING = "000000"


@dataclass(frozen=True, slots=True)
class _Change:
    """One path between two commits: what was there before and what is to be there now."""

    path: str
    old_mode: str
    mode: str
    old: str
    new: str


def check_out(path: Path, commit: str, *, keep_open: Sequence[int] = ()) -> None:
    """Write the files of the commit that HEAD is at; twice is safe, and files that were made before stay.

    One that somebody makes while git writes for the first time, at a path that it has not come to yet, does not.
    """
    is_empty = not any(item.name != ".git" for item in path.iterdir())
    if is_empty and not (git_dirs(path)[0] / "index").exists():
        # On two cores parallel checkout costs 1.5 times the CPU and gains no time.
        workers = min(_MAX_WORKERS, max(1, (os.cpu_count() or 1) // 2))
        how = ("-c", f"checkout.workers={workers}", "read-tree", "--no-recurse-submodules", "-m", "-u", commit)
        with contextlib.suppress(CommandFailed):  # somebody made a file here meanwhile, which stays
            _git(path, *how, keep_open=keep_open, timeout=LONG_TIMEOUT)
            return
    complete(path, None, commit, keep_open=keep_open)


def complete(path: Path, before: str | None, commit: str, *, keep_open: Sequence[int] = ()) -> None:
    """Bring the files of a killed checkout from one commit (None: no files) to another.

    A file that is neither the old one, the new one nor the beginning of the new one is somebody's edit, and stays.
    Raises Conflict (WORKTREE_EXISTS) when such a thing is where a folder must be.
    """
    all_changes = _changes(path, before, commit)
    changes = [change for change in all_changes if GITLINK not in {change.mode, change.old_mode}]
    modes = {c.path: on_disk(path, c.path) for c in changes}
    there = [name for name, mode in modes.items() if mode is not None]
    stamps = {name: _stamp(path / name) for name in there}
    raw, stored = _hashed(path, there, changes)
    for change in changes:
        mode = modes[change.path]
        if mode is None or change.new in (found := {raw[change.path], stored[change.path]}):
            continue
        ours = change.old in found or _is_begun(path, change, mode)
        if ours and _stamp(path / change.path) == stamps[change.path]:
            (path / change.path).unlink()
            _remove_empty_above(path, change.path)
    staged = _staged(path, all_changes, commit)
    _git(path, "read-tree", "--reset", commit, keep_open=keep_open)
    if staged:
        _git(path, "update-index", "-z", "--index-info", stdin=staged, keep_open=keep_open)
    missing = [c.path for c in all_changes if c.mode != _NOTHING and not os.path.lexists(path / c.path)]
    _write_missing(path, missing, keep_open)
    _git(path, "update-index", "-q", "--refresh", ok_codes=_ANY_CODE, keep_open=keep_open, timeout=LONG_TIMEOUT)


def _changes(path: Path, before: str | None, commit: str) -> list[_Change]:
    if before is None:
        lines = nul_list(_git(path, "ls-tree", "-r", "-z", commit))
        parts = [(line.partition("\t")[0].split(" "), line.partition("\t")[2]) for line in lines]
        found = [_Change(name, _NOTHING, facts[0], "", facts[2]) for facts, name in parts]
    else:
        how = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev")
        listed = nul_list(_git(path, *how, before, commit))
        found = []
        for facts, name in zip(listed[::2], listed[1::2], strict=True):
            old_mode, mode, old, new, _ = facts.removeprefix(":").split(" ")
            found.append(_Change(name, old_mode, mode, old, new))
    return found


def _staged(path: Path, changes: Sequence[_Change], commit: str) -> bytes:
    """What is staged and was in neither commit, as `update-index --index-info` takes it."""
    before = {change.path: change.old for change in changes}
    how = ("diff-index", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", "--diff-filter=AMT", commit)
    listed = nul_list(_git(path, *how))
    lines = []
    for facts, name in zip(listed[::2], listed[1::2], strict=True):
        _, mode, _, oid, _ = facts.split(" ")
        if oid != before.get(name) and oid.strip("0"):
            lines.append(os.fsencode(f"{mode} {oid}\t{name}\0"))
    return b"".join(lines)


def _hashed(
    path: Path, names: Sequence[str], changes: Sequence[_Change]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The blob ids of files as they are and, where those are not known, as git would store them."""
    at = open_checkout(path)
    raw = hash_files(at, names, write=False)
    known = {c.path: {c.old, c.new} for c in changes}
    odd = [name for name in names if raw[name] not in known[name]]
    return raw, raw | hash_files(at, odd, write=False, filters=True)


def _is_begun(path: Path, change: _Change, mode: str) -> bool:
    """Whether the file is the beginning of the one that git was writing."""
    if change.mode in {_NOTHING, LINK} or mode == LINK:
        return False
    whole = _git(path, "cat-file", "--filters", f"--path={change.path}", change.new, timeout=LONG_TIMEOUT)
    return whole.startswith(files.read_regular(path / change.path, len(whole) + 1))


def _stamp(place: Path) -> tuple[int, int, int, int]:
    try:
        facts = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return (0, 0, 0, 0)
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _write_missing(path: Path, names: Sequence[str], keep_open: Sequence[int]) -> None:
    """Add files; git itself refuses to overwrite one that came meanwhile."""
    asked = b"".join(os.fsencode(name) + b"\0" for name in names)
    how = ("checkout-index", "--index", "-q", "-z", "--stdin")
    _git(path, *how, stdin=asked, keep_open=keep_open, timeout=LONG_TIMEOUT, ok_codes=_ANY_CODE)
    absent = [name for name in names if not os.path.lexists(path / name)]
    if absent and not _is_sparse(path, absent):
        raise admin.taken(path, f"{absent[0]} could not be written")


def _is_sparse(path: Path, names: Sequence[str]) -> bool:
    """Whether the index says of all these files that they are not to be in the worktree."""
    skipped = {line[2:] for line in nul_list(_git(path, "ls-files", "-t", "-z")) if line.startswith("S ")}
    return skipped.issuperset(names)


def _remove_empty_above(root: Path, name: str) -> None:
    for parent in Path(name).parents:
        if str(parent) == ".":
            return
        with contextlib.suppress(OSError):  # not empty
            (root / parent).rmdir()
