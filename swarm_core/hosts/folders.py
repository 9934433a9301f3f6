"""Folders that nobody else can look into."""

from __future__ import annotations

import os
from pathlib import Path

from swarm_core.errors import ExternalFailure


def make_private(path: Path) -> None:
    """Make a folder and those above it that are missing, all closed to others; twice is safe."""
    if not path.is_dir():
        make_private(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def check_own(path: Path) -> None:
    """Refuse a folder that somebody else made or can write to, as anybody can in /tmp."""
    facts = path.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise ExternalFailure(
            f"{path} belongs to somebody else or can be written by others",
            hint="remove it, or use a shorter SWARM_HOME, which then holds the socket itself",
        )
