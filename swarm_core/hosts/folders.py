"""Folders that nobody else can look into, and what the file system's failures mean."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from swarm_core.errors import ExternalFailure


@contextlib.contextmanager
def file_errors() -> Iterator[None]:
    """The file system's failures as ours."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        where = f": {str(error.filename)[:500]}" if error.filename else ""
        raise ExternalFailure(
            f"{error.strerror}{where}",
            code="DISK_FULL" if full else None,
            hint="free space, then run the command again" if full else None,
        ) from error


def make_private(path: Path) -> None:
    """Make a folder and those above it that are missing, all closed to others; twice is safe."""
    if not path.is_dir():
        make_private(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file in one step, readable by its owner alone; what could not be written whole leaves nothing."""
    make_private(path.parent)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def check_own(path: Path) -> None:
    """Refuse a folder that somebody else made or can write to, as anybody can in /tmp."""
    facts = path.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise ExternalFailure(
            f"{path} belongs to somebody else or can be written by others",
            hint="remove it, or use a shorter SWARM_HOME, which then holds the socket itself",
        )


def stamp(folder: str, name: str) -> str:
    """When a file was last written and how large it is; empty when it is not there."""
    with contextlib.suppress(OSError):
        facts = os.lstat(os.path.join(folder, name))  # noqa: PTH118
        return f"{facts.st_mtime_ns} {facts.st_size}"
    return ""
