"""Waiting until an agent has seen a message, on the event loop; one query asks for all who wait."""

from __future__ import annotations

import asyncio

from swarm_core.errors import SwarmError
from swarm_core.store import messages
from swarm_core.store.database import Database

_ASK_EVERY = 0.05


class Receipts:
    """A call that waits here holds no thread and no place in the queue."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: dict[asyncio.Future[bool], str] = {}
        self._asking: asyncio.Task[None] | None = None
        self._closed = False

    async def seen(self, message_id: str, seconds: float) -> bool:
        """Whether the agent has seen the message, once it has or so many seconds have passed."""
        if self._closed or seconds <= 0:
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[done] = message_id
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            await asyncio.wait({done}, timeout=seconds)
            return done.done() and done.result()
        finally:
            del self._waiting[done]

    def close(self) -> None:
        """Nobody waits any longer; what was not seen by now counts as not seen."""
        self._closed = True
        for done in self._waiting:
            if not done.done():
                done.set_result(False)

    async def _ask(self) -> None:
        while self._waiting:
            await asyncio.sleep(_ASK_EVERY)
            try:
                seen = messages.seen_among(self._db, set(self._waiting.values()))
            except SwarmError:
                continue  # the message is recorded; only the receipt waits
            for done, message_id in self._waiting.items():
                if message_id in seen and not done.done():
                    done.set_result(True)
