"""Questions that several threads ask at the same time, answered together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from swarm_core.errors import Cancelled, SwarmError

T = TypeVar("T")


@dataclass(slots=True)
class _Round(Generic[T]):
    names: list[str] = field(default_factory=list)
    answers: dict[str, T] | None = None
    failure: SwarmError | None = None


class Rounds(Generic[T]):
    """Threads that ask while a round is under way share the next one: every answer is newer than its question."""

    def __init__(self, answer: Callable[[list[str]], dict[str, T]]) -> None:
        self._answer = answer
        self._turn = threading.Lock()
        self._joining = threading.Lock()
        self._next: _Round[T] = _Round()

    def ask(self, name: str) -> T | None:
        """Return the answer for `name`, or None when there is none; a failure is raised to all who share it."""
        with self._joining:
            mine = self._next
            mine.names.append(name)
        with self._turn:
            if mine.answers is None and mine.failure is None:
                self._run(mine)
        if mine.failure is not None:
            raise mine.failure
        assert mine.answers is not None
        return mine.answers.get(name)

    def _run(self, mine: _Round[T]) -> None:
        with self._joining:
            if self._next is mine:
                self._next = _Round()
        try:
            mine.answers = self._answer(list(dict.fromkeys(mine.names)))
        except Cancelled:  # of this caller alone: the next one asks again
            raise
        except SwarmError as error:
            mine.failure = error
