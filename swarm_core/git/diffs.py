"""What differs between two commits, as text. No worktree is looked at."""

from __future__ import annotations

from pathlib import Path

from swarm_core.git.changes import empty_tree
from swarm_core.git.command import check_commit_id, shown

_PLAIN = ("--no-ext-diff", "--no-textconv", "--find-renames")


def between(repo: str | Path, one: str | None, other: str, *, max_bytes: int) -> str:
    """What leads from one commit to the other, cut after `max_bytes`; without a first one, all of the other."""
    for commit in (one, other):
        if commit is not None:
            check_commit_id(commit)
    return shown(repo, "diff", *_PLAIN, one or empty_tree(repo), other, "--", max_bytes=max_bytes)
