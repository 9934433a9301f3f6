"""Scratch worktrees that a killed process left behind: found, and removed if no living one uses them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from swarm_core import git, locks
from swarm_core.config import Settings
from swarm_core.errors import Conflict
from swarm_core.git import admin, removal
from swarm_core.git.removal import place_of as place_of
from swarm_core.hosts.folders import file_errors


@file_errors()
def leftovers(settings: Settings) -> list[Path]:
    """Folders of merges and checks that nobody works on."""
    root = settings.home.resolve() / "scratch"
    found = [path for path in sorted(root.glob("*/*")) if path.is_dir() and not path.is_symlink()]
    return [path for path in found if locks.holder(_lock(settings, path)) is None]


@file_errors()
def remove(settings: Settings, folder: Path) -> bool:
    """Remove one and its registration; False when it is in use after all. Nobody's work is in it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locks.hold(_lock(settings, folder), timeout=0))
        except Conflict:
            return False
        registered = admin.linked_folder(folder)
        if registered is not None and registered.exists():
            repo = git.inspect(folder).path
            removal.remove_scratch(repo, folder, lock=settings.repo_lock(repo))
        admin.remove_tree(folder)
    return True


def _lock(settings: Settings, folder: Path) -> Path:
    return settings.locks / f"scratch-{folder.parent.name}-{folder.name}.lock"
