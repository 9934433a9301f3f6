"""Folders of the agents: private files, sockets outside the home, and stamps of files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from swarm_core import files
from swarm_core.files import errors as file_errors
from swarm_core.files import make_private, write_private

__all__ = ["check_own", "file_errors", "make_private", "stamp", "write_private"]


def check_own(path: Path) -> None:
    """Refuse a folder for sockets that another user made or can write to, or a link: /tmp is open to anybody."""
    files.check_own_folder(path, hint="remove it, or use a shorter SWARM_HOME, which then holds the socket itself")


def stamp(folder: str, name: str) -> str:
    """When a file was last written and how large it is; empty when it is not there."""
    with contextlib.suppress(OSError):
        facts = os.lstat(os.path.join(folder, name))  # noqa: PTH118
        return f"{facts.st_mtime_ns} {facts.st_size}"
    return ""
