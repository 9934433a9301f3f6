"""Files and folders that no other user can read, change or redirect, and what their failures mean."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from swarm_core.errors import ExternalFailure

_OTHERS_WRITE = 0o022
_OTHERS = 0o077
SMALL = 1 << 20  # more than a file that names another, or a configuration, ever needs


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """Translate the file system's failures."""
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
    """Make a folder and its missing parents with mode 0700, whatever the umask; twice is safe."""
    if not path.is_dir():
        make_private(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, data: bytes, *, synced: bool = False) -> None:
    """Replace a file in one step, readable by its owner alone; what could not be written whole leaves nothing.

    A `synced` file is on the disk, under its name, when this returns.
    """
    missing = [folder for folder in path.parents if not folder.is_dir()] if synced else []
    make_private(path.parent)
    fresh = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    fresh.unlink(missing_ok=True)
    try:
        with os.fdopen(open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(data)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)
        if synced:
            for folder in (path.parent, *(made.parent for made in missing)):
                sync_folder(folder)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def open_private(path: Path, flags: int) -> int:
    """Open a file of our own, made with mode 0600; raise NOT_PRIVATE for a link or another user's file."""
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise not_private(f"{path} is a link", f"look at where it leads, then `rm {path}`") from None
        raise
    facts = os.fstat(fd)
    if facts.st_uid != os.geteuid() or not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(fd)
        raise not_private(f"{path} belongs to another user or has a second name", f"look at it, then `rm {path}`")
    if facts.st_mode & _OTHERS:
        os.fchmod(fd, 0o600)
    return fd


def read_regular(path: str | Path, at_most: int = -1) -> bytes:
    """What a file has; a named pipe or device, which could keep us waiting for ever, raises SPECIAL_FILE."""
    with open_regular(path) as file:
        return file.read(at_most)


def read_small(path: str | Path) -> bytes:
    """The same of a file that has no reason to be large: more than 1 MB raises SPECIAL_FILE too."""
    data = read_regular(path, SMALL + 1)
    if len(data) > SMALL:
        raise too_large(path)
    return data


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file to read; a named pipe or device raises SPECIAL_FILE."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):  # of a folder, `fdopen` says so
        return os.fdopen(fd, "rb")
    os.close(fd)
    raise special(path)


def special(path: str | Path) -> ExternalFailure:
    return _special(path, "is a named pipe or a device, not a file")


def too_large(path: str | Path) -> ExternalFailure:
    return _special(path, "has more than 1 MB, too much for what belongs there")


def _special(path: str | Path, why: str) -> ExternalFailure:
    return ExternalFailure(
        f"{path} {why}",
        code="SPECIAL_FILE",
        hint=f"look at it, then `rm {shlex.quote(str(path))}`, or change the setting that names it",
        details={"path": str(path)},
    )


def append_private(path: Path) -> int:
    """Open a log of our own to append to."""
    return open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_own(path: Path, *, hint: str | None = None, shared: bool = False) -> None:
    """Raise NOT_PRIVATE for what another user made or can write to; what is not there passes.

    Root, who can change everything anyway, is not another user. In a `shared` folder others may make files
    and not touch ours, as in /tmp.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _check(path, path.stat(), hint, shared=shared)


def check_own_folder(path: Path, *, hint: str | None = None) -> None:
    """The same of a folder that must not be a link: the link's owner could lead us elsewhere at any time."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        facts = path.lstat()
        if not stat.S_ISDIR(facts.st_mode):
            raise not_private(f"{path} is a link or a file, not a folder", hint or _look_then_remove(path))
        _check(path, facts, hint)


def check_own_file(path: Path, *, owner: int | None = None) -> None:
    """The same of a plain file with one name, without opening it; what the other user `owner` made passes too."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        facts = path.lstat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
            raise not_private(f"{path} is not a plain file, or has a second name", _look_then_remove(path))
        if facts.st_uid != owner or owner == os.geteuid():
            _check(path, facts, _look_then_remove(path))


def check_maker(path: Path) -> None:
    """Raise NOT_PRIVATE for a file, folder, socket or link that another user made; links are not followed."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _check_owner(path, path.lstat(), _look_then_remove(path))


def is_shared(folder: Path) -> bool:
    """Whether other users can make files in it."""
    return bool(folder.stat().st_mode & _OTHERS_WRITE)


def not_private(message: str, hint: str) -> ExternalFailure:
    return ExternalFailure(message, code="NOT_PRIVATE", hint=hint)


def _check(path: Path, facts: os.stat_result, hint: str | None, *, shared: bool = False) -> None:
    _check_owner(path, facts, hint)
    if facts.st_mode & _OTHERS_WRITE and not (shared and facts.st_mode & stat.S_ISVTX):
        raise not_private(
            f"{path} can be written by other users (mode {stat.S_IMODE(facts.st_mode):o})",
            hint or f"look at what is in it, then `chmod go-w {path}`",
        )


def _check_owner(path: Path, facts: os.stat_result, hint: str | None) -> None:
    if facts.st_uid not in (0, os.geteuid()):
        raise not_private(
            f"{path} belongs to another user (uid {facts.st_uid})",
            hint or f"use a folder of your own, or give it to yourself: `sudo chown -R $(id -un) {path}`",
        )


def _look_then_remove(path: Path) -> str:
    return f"look at it, then `rm {shlex.quote(str(path))}`"
