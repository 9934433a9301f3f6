"""Which lines of their common base two pieces of work change, and where they come close to one another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from swarm_core.git.changes import _start, untracked_files
from swarm_core.git.command import _git, check_commit_id, without_own_filters

Range = tuple[int, int]
Touched = dict[str, list[Range]]
Hunk = tuple[int, int, int, int]  # first line and number of lines, before and after

WHOLE: Range = (0, 2**31 - 1)
NEAR = 3
_CHUNK = 500
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_AS_A_WHOLE = (b"new file mode ", b"deleted file mode ", b"Binary files ")
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
# As git's merge sees changes: other algorithms line the same edit up elsewhere.
_DIFF = (
    *("-c", "core.quotePath=true", "diff", "-U0", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--diff-algorithm=histogram", "--no-indent-heuristic", "--ignore-submodules=dirty"),
)


def touched(repo: str | Path, start: str | None, commit: str) -> Touched:
    """The lines of `start` (None: nothing) that the commit changes, by path.

    A file that is new, gone, renamed (under both names), binary or of another kind counts as WHOLE. An insertion
    stands for the lines on both its sides.
    """
    check_commit_id(commit)
    return _parse(_git(repo, *_DIFF, _start(repo, start), commit, "--"))


def touched_in(worktree: str | Path, start: str | None) -> Touched:
    """The same for everything by which a worktree differs, committed or not, untracked files included."""
    env = without_own_filters(worktree)
    found = _parse(_git(worktree, *_DIFF, _start(worktree, start), "--", env=env))
    return found | {name: [WHOLE] for name in untracked_files(worktree)}


def overlaps(one: Mapping[str, Sequence[Range]], other: Mapping[str, Sequence[Range]]) -> Touched:
    """Where both change the same lines or lines at most NEAR apart: the first one's ranges, by path."""
    found = {path: _close(one[path], other[path]) for path in sorted(one.keys() & other.keys())}
    return {path: ranges for path, ranges in found.items() if ranges}


def carried_back(repo: str | Path, found: Touched, start: str, older: str) -> Touched:
    """The same changes in lines of an older commit than the `start` they were told in."""
    check_commit_id(older)
    if start == older or not found:
        return found
    paths = ["--", *found] if len(found) <= _CHUNK else ["--"]
    between = _hunks(_git(repo, "--literal-pathspecs", *_DIFF, older, _start(repo, start), *paths))
    return {path: _carried(ranges, between.get(path, [])) for path, ranges in found.items()}


def common_start(repo: str | Path, commits: Iterable[str]) -> str | None:
    """The last commit that all of them contain."""
    known = sorted(set(commits))
    if len(known) < 2:
        return next(iter(known), None)
    for commit in known:
        check_commit_id(commit)
    shared = _git(repo, "merge-base", "--octopus", *known, ok_codes=(0, 1)).decode().split()
    return shared[0] if shared else None


def _carried(ranges: list[Range], hunks: Sequence[Hunk] | None) -> list[Range]:
    if hunks is None or ranges == [WHOLE]:
        return [WHOLE]
    return [(_before(low, hunks)[0], _before(high, hunks)[1]) for low, high in ranges]


def _before(line: int, hunks: Sequence[Hunk]) -> Range:
    """Where a line was before the hunks; one that they brought stands for all that it replaced."""
    shift = 0
    for low, count, new_low, new_count in hunks:
        if line < new_low + (new_count == 0):
            break
        if line < new_low + new_count:
            return _lines(low, count)
        shift = low + max(count, 1) - new_low - max(new_count, 1)
    return (line + shift, line + shift)


def _close(one: Sequence[Range], other: Sequence[Range]) -> list[Range]:
    """Both lists are in order, so each is walked once. A whole file meets also what changes no line."""
    if WHOLE in map(tuple, [*one, *other]):
        return [WHOLE]
    found, at = list[Range](), 0
    for low, high in one:
        while at < len(other) and other[at][1] + NEAR < low:
            at += 1
        if at < len(other) and other[at][0] <= high + NEAR:
            found.append((low, high))
    return found


def _parse(patch: bytes) -> Touched:
    return {path: _old_lines(hunks) for path, hunks in _hunks(patch).items()}


def _old_lines(hunks: Sequence[Hunk] | None) -> list[Range]:
    return [WHOLE] if hunks is None else [_lines(low, count) for low, count, _, _ in hunks]


def _lines(low: int, count: int) -> Range:
    """The lines of one side of a hunk, where none are: those on both sides."""
    return (low, low + (count or 2) - 1)


def _hunks(patch: bytes) -> dict[str, list[Hunk] | None]:
    """Read a patch without context: each line of a file begins with a sign in it, none is taken for a header."""
    found: dict[str, list[Hunk] | None] = {}
    path = ""
    for line in patch.split(b"\n"):
        if line.startswith(b"diff --git "):
            path = _path(line.removeprefix(b"diff --git "))
            found.setdefault(path, [])
        elif line.startswith(b"* Unmerged path "):
            found[os.fsdecode(line.removeprefix(b"* Unmerged path "))] = None
        elif line.startswith(_AS_A_WHOLE):
            found[path] = None
        elif (hunk := _HUNK.match(line)) and (known := found[path]) is not None:
            low, count, new_low, new_count = (1 if part is None else int(part) for part in hunk.groups())
            known.append((low, count, new_low, new_count))
    return found


def _path(names: bytes) -> str:
    """The path in `a/path b/path`; without renames both are the same."""
    if not names.startswith(b'"'):
        return os.fsdecode(names[2 : (len(names) - 1) // 2])
    quoted = names[1 : (len(names) - 1) // 2 - 1]
    plain = re.sub(rb"\\([0-7]{3}|.)", lambda found: bytes([_byte(found[1])]), quoted)
    return os.fsdecode(plain[2:])


def _byte(escape: bytes) -> int:
    return _ESCAPES[escape] if escape in _ESCAPES else int(escape, 8)
