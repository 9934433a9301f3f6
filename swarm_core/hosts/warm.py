"""A pool of checked-out worktrees that wait for an instance, so that a start need not check out anything."""

from __future__ import annotations

import secrets
from pathlib import Path

from swarm_core import git, ids, locks
from swarm_core.config import Settings
from swarm_core.errors import Conflict
from swarm_core.hosts.base import Place
from swarm_core.hosts.folders import make_private

_FOLDER = ".pool"


def adopt(settings: Settings, place: Place, *, keep_open: int) -> bool:
    """Turn a waiting worktree into this instance's; False when none can be had."""
    if settings.integer("pool") == 0 or Path(place["worktree_path"]).exists():
        return False
    with locks.hold(_lock(settings, place["repo_path"])):
        return any(_try(settings, place, waiting, keep_open) for waiting in _waiting(settings, place["repo_path"]))


def _try(settings: Settings, place: Place, waiting: Path, keep_open: int) -> bool:
    """Adopt one waiting worktree; one that cannot be used is taken away."""
    try:
        git.adopt_pooled(
            place["repo_path"],
            str(waiting),
            place["worktree_path"],
            branch=place["branch"],
            base_commit=str(place["base_commit"]),
            lock=_repo_lock(settings, place["repo_path"]),
            keep_open=(keep_open,),
        )
    except Conflict:
        _discard(settings, place["repo_path"], waiting)
        return False
    return True


def fill(settings: Settings, repo_path: str, size: int) -> int:
    """Add worktrees at the current commit until `size` wait, or take away those beyond; returns how many wait."""
    info = git.inspect(repo_path)
    with locks.hold(_lock(settings, repo_path)):
        waiting = _waiting(settings, repo_path)
        for surplus in waiting[size:]:
            _discard(settings, repo_path, surplus)
        folder = _folder(settings, repo_path)
        missing = size - len(waiting) if info.head_commit else 0
        make_private(folder)
        for _ in range(missing):
            # A name is never used twice: git may still know the earlier worktree by it after a kill.
            path = folder / secrets.token_hex(4)
            git.add_pooled(
                repo_path, str(path), commit=str(info.head_commit), lock=_repo_lock(settings, repo_path)
            )
        return len(_waiting(settings, repo_path))


def _discard(settings: Settings, repo_path: str, waiting: Path) -> None:
    git.remove_worktree(repo_path, str(waiting), lock=_repo_lock(settings, repo_path), force=True)


def _waiting(settings: Settings, repo_path: str) -> list[Path]:
    folder = _folder(settings, repo_path)
    return sorted(p for p in folder.iterdir() if (p / ".git").exists()) if folder.is_dir() else []


def _folder(settings: Settings, repo_path: str) -> Path:
    return settings.worktrees / ids.repo_folder(repo_path) / _FOLDER


def _lock(settings: Settings, repo_path: str) -> Path:
    return settings.locks / f"pool-{ids.repo_folder(repo_path)}.lock"


def _repo_lock(settings: Settings, repo_path: str) -> Path:
    return settings.locks / f"repo-{ids.repo_folder(repo_path)}.lock"
