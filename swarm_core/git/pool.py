"""Warm worktrees: checked out beforehand on no branch, so that an agent's worktree is a rename and a ref."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swarm_core import locks
from swarm_core.errors import CommandFailed, Conflict
from swarm_core.git import admin
from swarm_core.git.adoption import switch_adopted
from swarm_core.git.command import check_branch_name, check_commit_id
from swarm_core.git.refs import git_dirs, ref_commit
from swarm_core.git.worktrees import real, relocate


def adopt_pooled(
    repo: str | Path,
    pooled_path: str | Path,
    path: str | Path,
    *,
    branch: str,
    base_commit: str,
    lock: Path,
    keep_open: Sequence[int] = (),
) -> None:
    """Turn a pooled worktree into the one at `path` on the new branch `branch`; twice is safe.

    Raises Conflict when the pooled worktree cannot be used (never finished, edited, or already on a branch)
    or the branch exists at another commit; nothing is at `path` then, and the caller adds a worktree the
    ordinary way.
    """
    check_branch_name(branch)
    check_commit_id(base_commit)
    pooled, place = real(pooled_path), real(path)
    common_dir = git_dirs(repo)[1]
    with locks.hold(lock) as fd:
        entry = admin.find(common_dir, place)
        if entry is None:
            _check_usable(admin.find(common_dir, pooled), pooled, branch)
            _check_branch(Path(repo), place, branch, base_commit)
            waiting = admin.find(common_dir, pooled)
            resumed = waiting is not None and waiting.mark_adopting()
            relocate(Path(repo), pooled, place, keep_open=(fd, *keep_open))
            entry = admin.find(common_dir, place)
        else:
            resumed = entry.is_adopting
            if not resumed and entry.head != f"ref: refs/heads/{branch}":
                raise admin.taken(place, "a worktree is there that is not being adopted")
        _check_usable(entry, place, branch)
        assert entry is not None
    try:
        switch_adopted(entry, branch, base_commit, resumed=resumed, keep_open=keep_open)
    except CommandFailed as error:
        entry.drop_adopting()
        with locks.hold(lock) as fd:
            relocate(Path(repo), place, pooled, keep_open=(fd, *keep_open))
        raise _unusable(pooled, error.message) from error


def is_ready(path: Path) -> bool:
    """Whether the pooled worktree was checked out to the end."""
    folder = admin.linked_folder(path)
    return folder is not None and admin.Admin(folder, path).is_ready


def _check_usable(entry: admin.Admin | None, path: Path, branch: str) -> None:
    if entry is None or not entry.is_ready:
        raise _unusable(path, "it was never checked out to the end")
    if entry.head.startswith("ref: ") and entry.head != f"ref: refs/heads/{branch}":
        raise _unusable(path, "it is on a branch already")


def _check_branch(repo: Path, path: Path, branch: str, commit: str) -> None:
    if ref_commit(repo, f"refs/heads/{branch}") not in {None, commit}:
        raise admin.taken(path, f"branch {branch} exists at another commit")


def _unusable(path: Path, why: str) -> Conflict:
    return Conflict(f"the pooled worktree {path} cannot be used: {why}", details={"path": str(path)})
