"""Which server processes live: each holds a lock named after itself, and the kernel lets go of it when it dies."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator

from swarm_core import locks
from swarm_core.config import Settings

_PREFIX = "server-"


@contextlib.contextmanager
def present(settings: Settings) -> Iterator[str]:
    """Be known as alive; yields the server's id, which no other will ever have."""
    server = f"{os.getpid()}-{secrets.token_hex(8)}"
    path = settings.locks / f"{_PREFIX}{server}.lock"
    with locks.hold(path, holder=server):
        try:
            yield server
        finally:
            path.unlink(missing_ok=True)


def is_alive(settings: Settings, server: str) -> bool:
    return locks.holder(settings.locks / f"{_PREFIX}{server}.lock") is not None


def forget_dead(settings: Settings) -> None:
    """Remove the locks of servers that died."""
    for path in settings.locks.glob(f"{_PREFIX}*.lock"):
        if locks.holder(path) is None:
            path.unlink(missing_ok=True)
