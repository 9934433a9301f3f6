"""Notices that processes ended: through pidfds on Linux, by asking four times a second elsewhere."""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Iterable, Mapping
from types import TracebackType

from swarm_core import proc

_ASK_EVERY = 0.25


class DeathWatch:
    """Watches named processes that are not our children. Idle it costs nothing on Linux. Not thread-safe."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self._fds: dict[str, int] = {}
        self._gone: set[str] = set()

    def set(self, pids: Mapping[str, int]) -> None:
        """Watch exactly these; one that already ended is reported by the next `wait`."""
        for name in [name for name, pid in self._pids.items() if pids.get(name) != pid]:
            self._forget(name)
        for name, pid in pids.items():
            if name not in self._pids:
                self._add(name, pid)

    def wait(self, timeout: float | None, *, wake: Iterable[int] = ()) -> frozenset[str]:
        """Names whose process ended, each once; empty after `timeout` s or when one of `wake` is readable.

        A reported name is forgotten: a later `set` with the same pid reports it again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        poll = select.poll()
        names = {fd: name for name, fd in self._fds.items()}
        for fd in (*names, *wake):
            poll.register(fd, select.POLLIN)
        while True:
            ended = self._gone | {name for name in self._asked() if not proc.is_alive(self._pids[name])}
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = poll.poll(0 if ended else self._poll_ms(left))
            ended |= {names[fd] for fd, _ in ready if fd in names}
            if ended or ready or (left is not None and left <= 0):
                for name in ended:
                    self._forget(name)
                return frozenset(ended)

    def close(self) -> None:
        for name in list(self._pids):
            self._forget(name)

    def __enter__(self) -> DeathWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, name: str, pid: int) -> None:
        self._pids[name] = pid
        if pid <= 0:
            self._gone.add(name)
        elif hasattr(os, "pidfd_open"):
            try:
                self._fds[name] = os.pidfd_open(pid)
            except ProcessLookupError:
                self._gone.add(name)
            except OSError as error:  # out of descriptors, or a kernel without pidfds: ask instead
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOSYS, errno.EPERM):
                    raise

    def _asked(self) -> list[str]:
        return [name for name in self._pids if name not in self._fds and name not in self._gone]

    def _poll_ms(self, left: float | None) -> float | None:
        if self._asked():
            left = _ASK_EVERY if left is None else min(left, _ASK_EVERY)
        return None if left is None else left * 1000

    def _forget(self, name: str) -> None:
        del self._pids[name]
        self._gone.discard(name)
        fd = self._fds.pop(name, None)
        if fd is not None:
            os.close(fd)
