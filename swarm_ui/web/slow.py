"""Requests that run git have a small pool of their own: whatever an agent does to its worktree delays no other."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from swarm_core import cancel
from swarm_core.errors import ExternalFailure, TimedOut

AT_ONCE = 2
WAITING = 6
SECONDS = 10.0

_T = TypeVar("_T")


class Slow:
    """Lives on the event loop."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="git")
        self._seconds = seconds
        self._taken = 0

    async def run(self, work: Callable[[], _T]) -> _T:
        """The result of `work`; its programs are ended when its time is over, counted from when it is asked for.

        Raises QUEUE_OVERLOADED when too many wait already.
        """
        if self._taken >= AT_ONCE + WAITING:
            raise ExternalFailure(
                f"{self._taken} requests that run git are under way",
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
            raise TimedOut(
                f"git did not answer within {self._seconds:g} s",
                hint="look at the worktree itself: `swarm attach` or a shell; a filter of its own may hang",
            )
        return task.result()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, task: asyncio.Future[_T]) -> None:
        self._taken -= 1
        if not task.cancelled():
            task.exception()
