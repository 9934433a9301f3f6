"""File locks between processes; the kernel releases them when the last holder of the descriptor ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from swarm_core import cancel, files
from swarm_core.errors import Conflict, ExternalFailure

_POLL = 0.01
_HOLDER_MAX = 1 << 14  # two paths of the longest kind fit


@contextlib.contextmanager
def hold(path: Path, *, timeout: float = 60.0, holder: str = "", shared: bool = False) -> Iterator[int]:
    """Hold the lock on `path` and yield its descriptor; pass it to `proc.run(keep_open=...)` to extend it.

    A timeout of 0 tries once; a `shared` lock is held by many at once, or by one that is not shared. Raises
    Conflict (INSTANCE_BUSY) with what the present holder wrote about itself, Cancelled when told to give up.
    """
    fd = _open(path)
    try:
        _take(fd, path, timeout, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        if holder:
            os.ftruncate(fd, 0)
            os.pwrite(fd, holder.encode(), 0)
        yield fd
    finally:
        os.close(fd)


def claim(fd: int, *, wait: bool = True) -> bool:
    """Lock an open file or folder until its descriptor is closed; False when another process has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def holder(path: Path) -> str | None:
    """What the process that holds `path` wrote about itself; None when nobody holds it."""
    try:
        fd = files.open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, _HOLDER_MAX, 0).decode(errors="replace")
    finally:
        os.close(fd)
    return None


def _open(path: Path) -> int:
    try:
        files.make_private(path.parent)
        return files.open_private(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise ExternalFailure(
            f"cannot write {error.filename}: {error.strerror}",
            code="DISK_FULL" if full else None,
            hint="free space, then try again" if full else "set SWARM_HOME to a folder you can write",
        ) from error


def _take(fd: int, path: Path, timeout: float, mode: int) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(fd, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                held_by = os.pread(fd, _HOLDER_MAX, 0).decode(errors="replace")
                raise Conflict(
                    f"{path.stem} is being worked on by another process",
                    code="INSTANCE_BUSY",
                    hint="try again in a moment",
                    details={"lock": str(path), "holder": held_by},
                ) from None
            cancel.check()
            time.sleep(_POLL)
        else:
            return
