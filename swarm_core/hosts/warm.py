"""A pool of checked-out worktrees that wait for an instance, so that a start need not check out anything.

Two locks: taking a worktree is short and excludes other takers; filling is long and excludes only other fillers.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from pathlib import Path

from swarm_core import git, ids, locks
from swarm_core.config import Settings
from swarm_core.errors import Conflict, InvalidInput, NotFound
from swarm_core.git import pool, removal
from swarm_core.hosts.base import Place
from swarm_core.hosts.folders import make_private

_FOLDER = ".pool"

log = logging.getLogger(__name__)


def adopt(settings: Settings, place: Place, *, keep_open: int) -> bool:
    """Turn a waiting worktree into this instance's; False when none can be had."""
    if settings.integer("pool") == 0 or Path(place["worktree_path"]).exists():
        return False
    with locks.hold(_lock(settings, place["repo_path"], "take")):
        return any(_try(settings, place, waiting, keep_open) for waiting in _waiting(settings, place["repo_path"]))


def fill(settings: Settings, repo_path: str, size: int) -> int:
    """Add worktrees at the current commit until `size` wait, or take away those beyond; returns how many wait.

    Does nothing while another process fills.
    """
    info = git.inspect(repo_path)
    folder = _folder(settings, repo_path)
    try:
        with locks.hold(_lock(settings, repo_path, "fill"), timeout=0):
            _discard_beyond(settings, repo_path, size)
            make_private(folder)
            while info.head_commit and len(_waiting(settings, repo_path)) < size:
                # A name is never used twice: git may still know the earlier worktree by it after a kill.
                path = folder / secrets.token_hex(4)
                git.add_pooled(repo_path, str(path), commit=info.head_commit, lock=settings.repo_lock(repo_path))
    except Conflict as error:
        if error.code != "INSTANCE_BUSY":
            raise
    return len(_waiting(settings, repo_path))


def drain(settings: Settings) -> int:
    """Take away every waiting worktree of every repository; returns how many there were."""
    drained = 0
    for path in sorted(settings.worktrees.glob(f"*/{_FOLDER}/*")):
        try:
            repo_path = git.inspect(path).path
        except (NotFound, InvalidInput):
            continue  # its repository is gone; the folder is no worktree any more
        with locks.hold(_lock(settings, repo_path, "take")):
            _discard(settings, repo_path, removal.place_of(path))
        drained += 1
    return drained


def _try(settings: Settings, place: Place, waiting: Path, keep_open: int) -> bool:
    """Adopt one waiting worktree; one that cannot be used is taken away."""
    try:
        git.adopt_pooled(
            place["repo_path"],
            str(waiting),
            place["worktree_path"],
            branch=place["branch"],
            base_commit=str(place["base_commit"]),
            lock=settings.repo_lock(place["repo_path"]),
            keep_open=(keep_open,),
        )
    except Conflict as error:
        if error.code == "WORKTREE_EXISTS":
            raise  # the place is taken, whatever would be moved there
        _discard(settings, place["repo_path"], waiting)
        return False
    return True


def _discard_beyond(settings: Settings, repo_path: str, size: int) -> None:
    """Take away what is too much, and what a killed filler left half made."""
    waiting = _waiting(settings, repo_path)
    with locks.hold(_lock(settings, repo_path, "take")):
        for path in [*_present(settings, repo_path), *removal.places_aside(_folder(settings, repo_path))]:
            if path not in waiting[:size]:
                _discard(settings, repo_path, path)


def _discard(settings: Settings, repo_path: str, waiting: Path) -> None:
    """Take one away; what somebody has changed in it is stored first, and one that must be kept stays."""
    ref = f"refs/swarm/preserved/pool/{waiting.name}-{secrets.token_hex(4)}"
    try:
        message = f"found in the pooled worktree {waiting.name}"
        git.remove_worktree(repo_path, waiting, lock=settings.repo_lock(repo_path), ref=ref, message=message)
    except Conflict as error:
        if error.code != "WORKTREE_KEPT":
            raise
        log.warning("%s", error.message)


def _waiting(settings: Settings, repo_path: str) -> list[Path]:
    return [path for path in _present(settings, repo_path) if pool.is_ready(path)]


def _present(settings: Settings, repo_path: str) -> list[Path]:
    folder = _folder(settings, repo_path)
    return sorted(_folders(folder)) if folder.is_dir() else []


def _folders(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if not path.name.startswith("."))


def _folder(settings: Settings, repo_path: str) -> Path:
    return settings.worktrees / ids.repo_folder(repo_path) / _FOLDER


def _lock(settings: Settings, repo_path: str, what: str) -> Path:
    return settings.locks / f"pool-{what}-{ids.repo_folder(repo_path)}.lock"
