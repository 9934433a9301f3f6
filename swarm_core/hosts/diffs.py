"""What differs, as text for a person: an instance against where it started, or two commits. Nothing is changed."""

from __future__ import annotations

from pathlib import Path

from swarm_core import git
from swarm_core.git import diffs
from swarm_core.hosts.base import Place
from swarm_core.hosts.folders import file_errors


@file_errors()
def of_instance(place: Place, start: str | None, head: str | None, *, max_bytes: int) -> str:
    """What the instance has changed since the commit, uncommitted files included as long as it has a worktree."""
    if Path(place["worktree_path"]).is_dir():
        return git.diff(place["worktree_path"], start, max_bytes=max_bytes)
    return diffs.between(place["repo_path"], start, head, max_bytes=max_bytes) if head else ""


def between(repo_path: str, one: str, other: str, *, max_bytes: int) -> str:
    """What leads from one commit to the other."""
    return diffs.between(repo_path, one, other, max_bytes=max_bytes)
