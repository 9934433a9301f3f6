"""A worktree's files as they are on disk, turned into trees byte for byte.

git's filters (line ends, LFS, ident) would change content on the way in, so files are hashed without them into
a copy of the index; starting from the index keeps files that are tracked and ignored at the same time.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm_core.errors import CommandFailed
from swarm_core.git.changes import scratch_index, untracked_files
from swarm_core.git.command import LONG_TIMEOUT, _git, in_chunks, nul_list, text

GITLINK = "160000"
LINK = "120000"
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """One index entry: `flag` is the letter of `git ls-files -v`."""

    mode: str
    oid: str
    stage: str
    flag: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The trees of the files and of the index (None while it has unmerged entries), and what they leave out."""

    tree: str
    index_tree: str | None
    submodules: dict[str, str]
    nested: list[str]


def take(path: Path, *, gitlinks: Mapping[str, str] | None = None) -> Snapshot:
    """Write the worktree's content as objects; repeated when files vanish while it reads.

    `gitlinks` are the commits to record for submodules. The worktree, its index and all refs stay as they are.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _take(path, gitlinks or {})
        except CommandFailed:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def hash_files(path: Path, names: Sequence[str], *, write: bool, filters: bool = False) -> dict[str, str]:
    """The blob ids of files and links as they are on disk (or as git would store them: `filters`)."""
    plain = [name for name in names if not (path / name).is_symlink()]
    links = [name for name in names if (path / name).is_symlink()]
    how = [*(["-w"] if write else []), *([] if filters else ["--no-filters"])]
    found: dict[str, str] = {}
    by_line = [name for name in plain if not _needs_argument(name)]
    if by_line:
        asked = b"".join(os.fsencode(name) + b"\n" for name in by_line)
        answer = _git(path, "hash-object", *how, "--stdin-paths", stdin=asked, timeout=LONG_TIMEOUT)
        found.update(zip(by_line, answer.decode().split(), strict=True))
    for some in in_chunks([name for name in plain if _needs_argument(name)]):
        found.update(zip(some, text(path, "hash-object", *how, "--", *some).split(), strict=True))
    found.update(_hash_links(path, links, write=write))
    return found


def on_disk(path: Path, name: str) -> str | None:
    """The mode git would see at `name`: None when nothing, a folder, or something behind a link is there."""
    place = path / name
    for parent in place.relative_to(path).parents:
        if (path / parent).is_symlink() and parent != Path():
            return None
    try:
        facts = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(facts.st_mode):
        return LINK
    if stat.S_ISREG(facts.st_mode):
        return "100755" if facts.st_mode & stat.S_IXUSR else "100644"
    return None


def index_entries(path: Path) -> dict[str, list[Entry]]:
    """Every entry of the index by path; unmerged paths have several."""
    found: dict[str, list[Entry]] = {}
    for line in nul_list(_git(path, "ls-files", "--stage", "-v", "-z")):
        facts, _, name = line.partition("\t")
        flag, mode, oid, stage = facts.split(" ")
        found.setdefault(name, []).append(Entry(mode, oid, stage, flag))
    return found


def _take(path: Path, gitlinks: Mapping[str, str]) -> Snapshot:
    entries = index_entries(path)
    modes, intended = _changed_modes(path)
    fresh = untracked_files(path)
    suspects = {*modes, *_hidden(entries, path), *_unmerged(entries)}
    tracked = [name for name in suspects if not _is_gitlink(entries.get(name, []))]
    present = _present(path, [*tracked, *(name for name in fresh if not name.endswith("/"))], modes)
    oids = hash_files(path, list(present), write=True)
    gone = [name for name in tracked if name not in present]
    changed = [
        name
        for name, mode in present.items()
        if name in intended or not _same(entries.get(name, []), mode, oids[name])
    ]
    with scratch_index(path) as env:
        index_tree = _write_tree(path, env) if not _unmerged(entries) else None
        lines = [("0", "0" * len(entries[name][0].oid), name) for name in (*gone, *_unmerged(entries))]
        lines += [(present[name], oids[name], name) for name in changed]
        lines += [(GITLINK, oid, name) for name, oid in gitlinks.items() if name in entries]
        _update(path, env, lines)
        tree = _write_tree(path, env)
    return Snapshot(
        tree=tree,
        index_tree=index_tree,
        submodules=initialised_submodules(path, entries),
        nested=[name.rstrip("/") for name in fresh if name.endswith("/")],
    )


def _changed_modes(path: Path) -> tuple[dict[str, str], set[str]]:
    """Files whose stat data differ from the index, with the mode git sees; content is compared later.

    The second result are the files only promised to the index (`git add --intent-to-add`).
    """
    listed = nul_list(_git(path, "diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all"))
    raw = [(name, facts.split(" ")) for facts, name in zip(listed[::2], listed[1::2], strict=True)]
    return {name: facts[1] for name, facts in raw}, {name for name, facts in raw if facts[4] == "A"}


def _hidden(entries: Mapping[str, list[Entry]], path: Path) -> list[str]:
    """Entries git does not compare with the disk: assume-unchanged (lower case) and skip-worktree."""
    flagged = [name for name, found in entries.items() if found[0].flag.islower() or found[0].flag == "S"]
    return [name for name in flagged if os.path.lexists(path / name) and on_disk(path, name) is not None]


def _unmerged(entries: Mapping[str, list[Entry]]) -> list[str]:
    return [name for name, found in entries.items() if any(entry.stage != "0" for entry in found)]


def _is_gitlink(found: Iterable[Entry]) -> bool:
    return any(entry.mode == GITLINK for entry in found)


def _present(path: Path, names: Iterable[str], modes: Mapping[str, str]) -> dict[str, str]:
    present: dict[str, str] = {}
    for name in names:
        there = on_disk(path, name)
        if there is not None:
            trusted = modes.get(name, "000000")
            usable = trusted in {"100644", "100755"} and there != LINK
            present[name] = trusted if usable else there
    return present


def _same(found: Sequence[Entry], mode: str, oid: str) -> bool:
    return len(found) == 1 and (found[0].stage, found[0].mode, found[0].oid) == ("0", mode, oid)


def _update(path: Path, env: Mapping[str, str], lines: Iterable[tuple[str, str, str]]) -> None:
    told = "".join(f"{mode} {oid}\t{name}\0" for mode, oid, name in lines)
    _git(path, "update-index", "-z", "--index-info", env=env, stdin=os.fsencode(told))


def _write_tree(path: Path, env: Mapping[str, str]) -> str:
    return text(path, "write-tree", env=env)


def initialised_submodules(path: Path, entries: Mapping[str, list[Entry]]) -> dict[str, str]:
    """Submodules that have a repository in the worktree, with the commit the index records."""
    links = {name: found[0].oid for name, found in entries.items() if _is_gitlink(found)}
    return {name: oid for name, oid in links.items() if (path / name / ".git").exists()}


def _needs_argument(name: str) -> bool:
    """`hash-object --stdin-paths` reads lines: it strips a carriage return and unquotes a leading quote."""
    return "\n" in name or name.startswith('"') or name.endswith("\r")


def _hash_links(path: Path, links: Sequence[str], *, write: bool) -> dict[str, str]:
    if not links:
        return {}
    with tempfile.TemporaryDirectory(prefix="swarm-links-") as folder:
        copies = [Path(folder) / str(number) for number in range(len(links))]
        for copy, name in zip(copies, links, strict=True):
            copy.write_bytes(os.fsencode((path / name).readlink()))
        asked = "".join(f"{copy}\n" for copy in copies).encode()
        how = ("hash-object", *(("-w",) if write else ()), "--no-filters", "--stdin-paths")
        return dict(zip(links, _git(path, *how, stdin=asked).decode().split(), strict=True))
