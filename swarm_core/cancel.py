"""Giving up: how work in a thread is told to stop, and how the programs it waits for are ended at once."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator

from swarm_core.errors import Cancelled

_current: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("cancel_scope", default=None)


class Scope:
    """Cancelling raises Cancelled once, where the work next looks; what undoes the work runs undisturbed."""

    def __init__(self) -> None:
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
        return self._asked and not self._raised

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
