"""Which server processes live: each holds a lock named after itself, and the kernel lets go of it when it dies."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from swarm_core import locks
from swarm_core.config import Settings
from swarm_core.errors import Conflict

_PREFIX = "server-"


@contextlib.contextmanager
def present(settings: Settings) -> Iterator[str]:
    """Be known as alive; yields the server's id, which no other will ever have."""
    server = f"{os.getpid()}-{secrets.token_hex(8)}"
    path = settings.locks / f"{_PREFIX}{server}.lock"
    with contextlib.ExitStack() as stack:
        while not _is_at(path, stack.enter_context(locks.hold(path, holder=server))):
            stack.close()  # it was taken for that of a dead one before it was held
        stack.callback(path.unlink, missing_ok=True)
        yield server


def is_alive(settings: Settings, server: str) -> bool:
    return locks.holder(settings.locks / f"{_PREFIX}{server}.lock") is not None


def forget_dead(settings: Settings) -> None:
    """Remove the locks of servers that died."""
    for path in settings.locks.glob(f"{_PREFIX}*.lock"):
        # Shared, so that whoever asks meanwhile is not told that it lives.
        with contextlib.suppress(Conflict), locks.hold(path, timeout=0, shared=True):
            path.unlink(missing_ok=True)


def _is_at(path: Path, fd: int) -> bool:
    """Whether the open file is still the one at the path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False
