"""Which server processes live: each holds a lock named after itself, and the kernel lets go of it when it dies."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from swarm_core import locks
from swarm_core.store import requests

_PREFIX = "server-"
_KEPT = 2 * requests.REPLAYED_WITHIN


class Servers:
    """The servers of one database. The lock of a killed one stays a while: its time tells how long it lived."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def present(self) -> Iterator[str]:
        """Be known as alive; yields the server's id, which no other will ever have.

        A failure leaves the lock's file where it is, as a kill does: who knows what was answered.
        """
        server = f"{os.getpid()}-{secrets.token_hex(8)}"
        path = self._path(server)
        with locks.hold(path, holder=server):
            yield server
            path.unlink(missing_ok=True)

    def beat(self, server: str) -> None:
        """Put down that the server lives now."""
        with contextlib.suppress(OSError):
            os.utime(self._path(server))

    def is_alive(self, server: str) -> bool:
        return locks.holder(self._path(server)) is not None

    def last_seen(self, server: str) -> datetime | None:
        """When a server that was killed put down that it lived; None for one that ended in good order."""
        try:
            return datetime.fromtimestamp(self._path(server).stat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    def forget_dead(self) -> None:
        """Remove the locks of servers that died so long ago that nobody asks for them."""
        old = datetime.now(UTC).timestamp() - _KEPT.total_seconds()
        for path in self._folder.glob(f"{_PREFIX}*.lock"):
            with contextlib.suppress(FileNotFoundError):
                # One that is about to be held is new.
                if path.stat().st_mtime < old and locks.holder(path) is None:
                    path.unlink()

    def _path(self, server: str) -> Path:
        return self._folder / f"{_PREFIX}{server}.lock"
