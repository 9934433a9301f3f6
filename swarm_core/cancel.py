"""Giving up: how work in a thread is told to stop, and how the programs it waits for are ended at once."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterator

from swarm_core.errors import Cancelled

_current: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("cancel_scope", default=None)


class Scope:
    """Cancelling raises Cancelled once, where the work next looks; what undoes the work runs undisturbed.

    A scope that has `cpu_seconds` cancels itself when its thread has used about so much processor time, at most
    twice as much; only that thread may use it.
    """

    def __init__(self, cpu_seconds: float | None = None) -> None:
        self._cpu = None if cpu_seconds is None else _Processor(cpu_seconds)
        self._lock = threading.Lock()
        self._asked = False
        self._raised = False
        self._enders: list[Callable[[], None]] = []

    def cancel(self) -> None:
        with self._lock:
            if self._asked:
                return
            self._asked = True
            enders = list(self._enders)
        for end in enders:
            end()

    @property
    def pending(self) -> bool:
        """Whether the work was told to stop and has not heard of it."""
        over = self._cpu is not None and self._cpu.is_used()
        return (self._asked or over) and not self._raised

    def check(self) -> None:
        with self._lock:
            if not self.pending:
                return
            self._raised = True
        raise Cancelled("the work was cancelled")

    @contextlib.contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """While the block waits for a program, cancelling calls `end`."""
        with self._lock:
            self._enders.append(end)
        try:
            self.check()  # after that: a cancel in between would end nothing
            yield
        finally:
            with self._lock:
                self._enders.remove(end)

    @contextlib.contextmanager
    def active(self) -> Iterator[Scope]:
        """Make this the scope that `check` looks at, in this context."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)


class _Processor:
    """So many seconds of processor time of this thread, counted when as much time has passed.

    Asking for processor time is a system call, and most work is over long before.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._not_before = time.monotonic() + seconds
        self._until: float | None = None

    def is_used(self) -> bool:
        if time.monotonic() < self._not_before:
            return False
        now = time.thread_time()
        if self._until is None:
            self._until = now + self._seconds
        return now > self._until


def check() -> None:
    """Raise Cancelled if the work this code is part of was told to stop."""
    scope = _current.get()
    if scope is not None:
        scope.check()


def is_pending() -> bool:
    """Whether `check` would raise."""
    scope = _current.get()
    return scope is not None and scope.pending


@contextlib.contextmanager
def ending(end: Callable[[], None]) -> Iterator[None]:
    scope = _current.get()
    if scope is None:
        yield
        return
    with scope.ending(end):
        yield
    scope.check()
