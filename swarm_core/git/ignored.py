"""What removing a worktree stores, and what goes with it because git ignores it, each with its size."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from swarm_core.git.changes import dirty_files
from swarm_core.git.command import _git, nul_list


@dataclass(frozen=True, slots=True)
class Going:
    """Uncommitted files, and the topmost ignored files and folders, the largest first; each with its size."""

    stored: list[tuple[str, int]]
    ignored: list[tuple[str, int]]


def going(path: Path) -> Going:
    stored = [(name, size_of(path / name)) for name in dirty_files(path)]
    how = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    found = [(name, size_of(path / name)) for name in nul_list(_git(path, *how))]
    return Going(stored, sorted(found, key=lambda one: (-one[1], one[0])))


def size_of(path: Path) -> int:
    """The bytes in a file, or in all files below a folder; nothing for what is gone or cannot be reached."""
    try:
        facts = path.lstat()
    except OSError:
        return 0
    if not stat.S_ISDIR(facts.st_mode):
        return facts.st_size
    total = 0
    for folder, _, names in os.walk(path):
        total += sum(size_of(Path(folder) / name) for name in names)
    return total
