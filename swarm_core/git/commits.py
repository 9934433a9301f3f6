"""What commits hold: what one adds to another, and files as one has them. No worktree is looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from swarm_core.errors import InvalidInput
from swarm_core.git.changes import empty_tree, numstat
from swarm_core.git.command import _git, check_commit_id, text

_PLAIN_FILES = frozenset({"100644", "100755"})


@dataclass(frozen=True, slots=True)
class Comparison:
    """`start` is the commit compared with: the last one that both have, None when they share none."""

    start: str | None
    files: list[str]
    added: int
    deleted: int


def count_beyond(repo: str | Path, commit: str, others: Iterable[str]) -> int:
    """How many commits lead to this one that none of the others has."""
    for one in (commit, *(known := list(others))):
        check_commit_id(one)
    return int(text(repo, "rev-list", "--count", commit, *(f"^{other}" for other in known)))


def compare(repo: str | Path, base: str | None, commit: str) -> Comparison:
    """What has changed since the commit left the base; all of it when there is no base."""
    check_commit_id(commit)
    start = None
    if base is not None:
        check_commit_id(base)
        shared = _git(repo, "merge-base", base, commit, ok_codes=(0, 1)).decode().split()
        start = shared[0] if shared else None
    return Comparison(start, *numstat(repo, start or empty_tree(repo), commit))


def read_file(repo: str | Path, commit: str, path: str, *, max_bytes: int) -> bytes | None:
    """A file as the commit has it; None when it has none. Raises InvalidInput for one too large or no file."""
    check_commit_id(commit)
    how = ("--literal-pathspecs", "ls-tree", "-l", "-z", "--full-tree", commit, "--", path)
    listed = _git(repo, *how).rstrip(b"\0").decode(errors="surrogateescape")
    if not listed:
        return None
    found = re.fullmatch(r"(\d+) (\w+) ([0-9a-f]+) +(\d+|-)\t.*", listed, re.DOTALL)
    if found is None or found[1] not in _PLAIN_FILES:
        raise InvalidInput(f"{path} in commit {commit[:12]} is no plain file")
    if int(found[4]) > max_bytes:
        raise InvalidInput(f"{path} in commit {commit[:12]} has more than {max_bytes} bytes")
    return _git(repo, "cat-file", "blob", found[3])
