"""Requests that start programs have small pools: what an agent does to its worktree delays no other request."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from swarm_core import cancel
from swarm_core.errors import ExternalFailure, TimedOut

GIT, TMUX, HEALTH = "git", "tmux", "health"
AT_ONCE = 2
WAITING = {GIT: 6, TMUX: 32, HEALTH: 32}
SECONDS = 10.0

_HINTS = {GIT: "look at the worktree itself: `swarm attach` or a shell; a filter of its own may hang"}
_T = TypeVar("_T")


class Slow:
    """The pool for one program, named after it; lives on the event loop."""

    def __init__(self, name: str, *, seconds: float = SECONDS) -> None:
        self._name = name
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix=name)
        self._seconds = seconds
        self._taken = 0

    async def run(self, work: Callable[[], _T]) -> _T:
        """The result of `work`; its programs are ended when its time is over, counted from when it is asked for.

        Raises QUEUE_OVERLOADED when too many wait already.
        """
        if self._taken >= AT_ONCE + WAITING[self._name]:
            raise ExternalFailure(
                f"{self._taken} requests that wait for {self._name} are under way",
                code="QUEUE_OVERLOADED",
                hint="try again in a few seconds",
            )
        scope = cancel.Scope()

        def scoped() -> _T:
            with scope.active():
                cancel.check()
                return work()

        self._taken += 1
        loop = asyncio.get_running_loop()
        task = loop.run_in_executor(self._pool, contextvars.copy_context().run, scoped)
        task.add_done_callback(self._ended)
        done, _ = await asyncio.wait({task}, timeout=self._seconds)
        if not done:
            scope.cancel()
            raise TimedOut(f"{self._name} did not answer within {self._seconds:g} s", hint=_HINTS.get(self._name))
        return task.result()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, task: asyncio.Future[_T]) -> None:
        self._taken -= 1
        if not task.cancelled():
            task.exception()


def pools() -> dict[str, Slow]:
    return {name: Slow(name) for name in WAITING}
