"""One sync of the database's log for all the commits that wait for it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from swarm_core.errors import SwarmError

_QUICK = 0.003
_ASIDE = 1.0


class _Waiter(asyncio.Future[None]):
    """A future whose task goes on as soon as it is settled, and not at the loop's next turn, which may be long."""

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._wake: list[tuple[Callable[[Any], object], contextvars.Context]] = []

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: contextvars.Context | None = None
    ) -> None:
        self._wake.append((fn, context or contextvars.copy_context()))

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            for fn, context in self._wake:
                self.get_loop().call_soon(fn, self, context=context)
        return cancelled

    def settle(self, failure: BaseException | None) -> None:
        if self.done():
            return
        if failure is None:
            self.set_result(None)
        else:
            self.set_exception(failure)
        for fn, context in self._wake:
            context.run(fn, self)


_Waiting = list[_Waiter]


class LogSync:
    """Calls of one turn of the event loop share a sync at its end.

    It is done there when the disk is quick, as a thread would answer a turn later. After a slow one a thread does
    it for a second; calls that come while it runs share the next one, which begins without waiting for the loop.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-sync")
        self._lock = threading.Lock()
        self._waiting: _Waiting = []
        self._running = False
        self._aside_until = 0.0

    async def synced(self) -> None:
        """Return when everything that was committed before this call is on the disk; raises when it cannot be."""
        loop = asyncio.get_running_loop()
        done = _Waiter()
        with self._lock:
            self._waiting.append(done)
            idle, self._running = not self._running, True
        if idle:
            loop.call_soon(self._begin, loop)
        await done

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        began = time.monotonic()
        if began < self._aside_until:
            self._thread.submit(self._run, loop)
            return
        failure: BaseException | None = None
        try:
            self._sync()
        except SwarmError as error:
            failure = error
        except BaseException as error:
            failure = error
            raise
        finally:
            ended = time.monotonic()
            if ended - began > _QUICK:
                self._aside_until = ended + _ASIDE
            with self._lock:
                waiting, self._waiting, self._running = self._waiting, [], False
            _settle(waiting, failure)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while waiting := self._take():
            failure: BaseException | None = None
            try:
                self._sync()
            except SwarmError as error:
                failure = error
            except BaseException as error:
                failure = error
                self._thread.submit(self._run, loop)  # who came meanwhile gets a sync of their own
                raise
            finally:
                loop.call_soon_threadsafe(_settle, waiting, failure)

    def _take(self) -> _Waiting:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._running = bool(waiting)
        return waiting

    def close(self) -> None:
        self._thread.shutdown(wait=True)


def _settle(waiting: _Waiting, failure: BaseException | None) -> None:
    for done in waiting:
        done.settle(failure)
