"""Which agents have connected since their start: one that never does has to be told to try again."""

from __future__ import annotations

import asyncio
import functools
import logging

from swarm_core.errors import SwarmError
from swarm_core.ops import connection
from swarm_mcp.loop import LoopStore

_TRIED_FOR = 30.0

log = logging.getLogger(__name__)


class Arrivals:
    """Lives on the event loop."""

    def __init__(self, store: LoopStore) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    def note(self, instance_id: str) -> None:
        """Write down that the agent has connected; the first time since its start."""
        if not connection.is_connected(self._store.db, instance_id):
            task = asyncio.create_task(self._write(instance_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write(self, instance_id: str) -> None:
        try:
            await self._store.write(functools.partial(connection.note, instance_id=instance_id), within=_TRIED_FOR)
        except SwarmError as error:
            log.warning("that %s has connected is not written down: %s", instance_id, error.code)
