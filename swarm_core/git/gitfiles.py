"""What a git folder holds beside objects: files, the objects they name, and operations under way."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from swarm_core import files
from swarm_core.git.checkout import Checkout

_ID = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{40})(?![0-9a-f])")
# Files that say where the folder is, and the index, which is stored as a tree.
_OF_THE_PLACE = frozenset({"commondir", "gitdir", "locked", "index"})
# Of a worktree in which nobody started anything: they matter only for commits that nothing else knows.
_HISTORY = frozenset({"HEAD", "ORIG_HEAD", "FETCH_HEAD", "logs", "COMMIT_EDITMSG"})
_UNDER_WAY = frozenset(
    {
        *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_AUTOSTASH", "rebase-merge", "rebase-apply"),
        *("sequencer", "BISECT_LOG", "BISECT_START", "refs"),
        *("NOTES_MERGE_PARTIAL", "NOTES_MERGE_REF", "NOTES_MERGE_WORKTREE"),
    }
)


@dataclass(frozen=True, slots=True)
class Named:
    """Objects named in files, by type; annotated tags come with their text."""

    commits: list[str]
    others: list[tuple[str, str]]
    tags: dict[str, bytes]


def state_files(git_dir: Path) -> dict[str, Path]:
    """The files of a linked worktree's git folder that say what its user was doing."""
    found = files_below(git_dir, leave_out=("modules", "objects"))
    return {name: place for name, place in found.items() if _is_state(name)}


def files_below(folder: Path, *, leave_out: Iterable[str] = ()) -> dict[str, Path]:
    """Every file and link below a folder by its relative path, except below some of its own folders."""
    skipped = {str(folder / name) for name in leave_out}
    found: dict[str, Path] = {}
    for entry in _walk(str(folder), skipped):
        found[os.path.relpath(entry, folder)] = Path(entry)
    return found


def is_under_way(names: Iterable[str]) -> bool:
    """Whether the files of a git folder show an operation in progress, or refs of the worktree alone."""
    return any(name.split("/")[0] in _UNDER_WAY for name in names)


def is_history(name: str) -> bool:
    return name.split("/")[0] in _HISTORY


def ids_in(places: Iterable[Path]) -> list[str]:
    """Everything in the files that looks like the id of an object."""
    found: dict[bytes, None] = {}
    for place in places:
        if not place.is_symlink():
            found.update(dict.fromkeys(_ID.findall(files.read_regular(place))))
    return [oid.decode() for oid in found if oid.strip(b"0")]


def look_up(at: Checkout, ids: Iterable[str]) -> Named:
    """Sort ids into commits, tags and others; what is no object here is left out."""
    commits: dict[str, None] = {}
    others: dict[tuple[str, str], None] = {}
    tags: dict[str, bytes] = {}
    waiting = list(dict.fromkeys(ids))
    while waiting:
        asked = "".join(f"{oid}\n" for oid in waiting).encode()
        answers = at.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked).decode()
        types = dict(answer.split(" ")[:2] for answer in answers.splitlines())
        commits.update((oid, None) for oid, kind in types.items() if kind == "commit")
        others.update(((oid, kind), None) for oid, kind in types.items() if kind in {"blob", "tree"})
        fresh = [oid for oid, kind in types.items() if kind == "tag" and oid not in tags]
        tags.update((oid, at.run("cat-file", "tag", oid)) for oid in fresh)
        waiting = [tags[oid].split(b"\n", 1)[0].removeprefix(b"object ").decode() for oid in fresh]
    return Named(list(commits), list(others), tags)


def _is_state(name: str) -> bool:
    if name in _OF_THE_PLACE or name.startswith(("swarm-", "sharedindex.")):
        return False
    return not name.endswith(".lock")


def _walk(folder: str, skipped: set[str]) -> Iterator[str]:
    with os.scandir(folder) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        if entry.path in skipped:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, skipped)
        elif entry.is_symlink() or stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
            yield entry.path
