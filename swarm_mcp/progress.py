"""Progress of a call on its way to the client, at a pace that does not drown it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

_EVERY = 0.25

Progress = Callable[[float, str], Awaitable[None]]


@dataclass(slots=True)
class Throttle:
    """At most one notification in a quarter of a second; the newest is never dropped."""

    send: Progress
    sent_at: float = 0.0
    count: int = 0
    waiting: str | None = None
    pending: asyncio.Task[None] | None = field(default=None)
    stopped: bool = False

    def report(self, text: str) -> None:
        if self.stopped:
            return
        self.waiting = text
        if self.pending is None:
            self.pending = asyncio.ensure_future(self._later())

    async def _later(self) -> None:
        await asyncio.sleep(max(0.0, self.sent_at + _EVERY - time.monotonic()))
        self.pending = None
        await self.flush()

    async def flush(self) -> None:
        if self.waiting is None:
            return
        text, self.waiting = self.waiting, None
        self.count += 1
        self.sent_at = time.monotonic()
        await self.send(float(self.count), text)

    def stop(self) -> None:
        """Say nothing more."""
        self.stopped = True
        self.waiting = None
        if self.pending is not None:
            self.pending.cancel()
