"""One look at the database for all who watch: taken when something has changed, and told to everybody.

A thread looks, the event loop tells. Without viewers nobody looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

from swarm_core.config import Settings
from swarm_core.errors import SwarmError
from swarm_core.models import Event
from swarm_core.process import Card
from swarm_core.store import events
from swarm_core.swarm import Swarm
from swarm_ui.web import rows
from swarm_ui.web.endpoint import Visitor
from swarm_ui.web.frames import Change, frame
from swarm_ui.web.look import BATCH, Look, Reads
from swarm_ui.web.state import State
from swarm_ui.web.threads import for_streams

# Whoever has missed more gets a snapshot instead.
REPLAYED = 10_000
QUEUE_FRAMES, QUEUE_BYTES = 256, 1_000_000
_LET_GO_AFTER = 10.0
_BYE_WITHIN = 1.0


class Client:
    """What one viewer has still to be sent. It is bounded: whoever does not read is let go, and comes again.

    Only for the event loop. One that does not want rows hears events alone, as messages of the WebSocket.
    """

    def __init__(self, visitor: Visitor, *, since: int | None, rev: str | None = None, rows: bool = True) -> None:
        self.visitor = visitor
        self.since = since
        self.rev = rev
        self.rows = rows
        self.state = State()
        self.uncertain = False
        self.over = False
        self._waiting: list[bytes | str] = []
        self._size = self._frames = 0
        self._news = asyncio.Event()
        self._task = asyncio.current_task()

    def hear(self, change: Change) -> None:
        if self.rows:
            self.put(change.sse)
        elif change.messages:
            self.put(*change.messages)

    def put(self, *items: bytes | str) -> None:
        if self.over:
            return
        self._waiting += items
        self._size += sum(map(len, items))
        self._frames += 1
        if self._frames > QUEUE_FRAMES or self._size > QUEUE_BYTES:
            self._waiting = []
            self.end(_LET_GO_AFTER)
        self._news.set()

    def ring(self) -> None:
        """There is something to be sent that is kept elsewhere, as the screen of a terminal is."""
        self._news.set()

    async def wait(self, seconds: float) -> list[bytes | str]:
        """What has arrived; nothing when the time is up or somebody rang."""
        if not self._news.is_set() and not self.over:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), seconds)
        self._news.clear()
        found, self._waiting, self._size, self._frames = self._waiting, [], 0, 0
        return found

    def end(self, within: float) -> None:
        """Let it send what is left and no more; a task that cannot do that in time is cancelled."""
        if self.over:
            return
        self.over = True
        self._news.set()
        asyncio.get_running_loop().call_later(within, self._cancel)

    def close(self) -> None:
        """Nothing is sent any more."""
        self.over, self._task = True, None
        self._waiting = []

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class Hub:
    """`boot` and `publish_action` are for any thread, everything else for the event loop."""

    def __init__(self, swarm: Swarm, settings: Settings, card: Card, reads: Reads = rows) -> None:
        self._swarm = swarm
        self._card = card
        self._reads = reads
        self._clients: set[Client] = set()
        self._state = State()
        self.ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look = Look(swarm, settings, card, reads, self._post)
        self._watched = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hub", daemon=True)

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def say_bye(self) -> None:
        """Tell every viewer that the server ends, and let nobody in any more; that ends their streams."""
        self.ended = True
        for client in list(self._clients):
            self._bid_bye(client)

    async def close(self) -> None:
        await self.say_bye()
        self._stop.set()
        self._watched.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)
        self._look.close()

    @property
    def viewers(self) -> int:
        return len(self._clients)

    def boot(self, visitor: Visitor) -> dict[str, Any]:
        """Everything a page shows at first, as it is now. Raises what keeps it from being read."""
        return self._snapshot(visitor, self._look.now())

    def publish_action(self, action: dict[str, Any]) -> None:
        """Tell all viewers how far an action is."""
        self._post(Change("action", action))

    async def enter(self, client: Client) -> None:
        """Let a viewer in. From now on it hears everything; `missed` and `news` tell it what was before."""
        try:
            await for_streams(self._look.now)
        except SwarmError:
            client.uncertain = True
        client.state = self._state
        self._clients.add(client)
        self._count()
        if self.ended:
            self._bid_bye(client)

    def leave(self, client: Client) -> None:
        client.close()
        self._clients.discard(client)
        self._count()

    def hello(self, client: Client, *, rev: str | None = None) -> dict[str, Any]:
        now, last = self._swarm.context.db.now(), client.state.last
        rev = self._rev(client.state) if rev is None else rev
        return {"rev": rev, "server": self._card.pid, "now": now, "last": last}

    def is_lost(self, client: Client) -> bool:
        """Whether what it has missed cannot be told event by event: too many, or of another database."""
        return client.since is None or not 0 <= client.state.last - client.since <= REPLAYED

    def missed(self, client: Client, cursor: int) -> list[tuple[dict[str, Any], Event]]:
        """The next events after the cursor that came before the viewer did. For a worker thread."""
        last = client.state.last
        if cursor >= last:
            return []
        with self._swarm.context.db.reader() as db:
            found = events.after(db, cursor, limit=BATCH)
        return [(self._reads.event(e), e) for e in found if e.id <= last]

    def news(self, client: Client) -> bytes:
        """The rows and parts that it does not know: what has changed if that can be told, else all."""
        state = client.state
        if client.uncertain:
            return frame("health", state.parts.get("health"))
        process, _, version = (client.rev or "").partition(".")
        ours = process == str(self._card.pid) and version.isascii() and version.isdigit() and len(version) < 16
        if self.is_lost(client) or not ours or int(version) > state.version:
            return frame("snapshot", self._snapshot(client.visitor, state))
        return b"".join(frame(name, data) for name, data in state.since(int(version)))

    def _snapshot(self, visitor: Visitor, state: State) -> dict[str, Any]:
        me = {"name": visitor.name, "may_write": visitor.may_write}
        return {"rev": self._rev(state), "now": self._swarm.context.db.now(), "me": me, **state.snapshot()}

    def _rev(self, state: State) -> str:
        return f"{self._card.pid}.{state.version}"

    def _bid_bye(self, client: Client) -> None:
        if client.rows:
            client.put(frame("bye", {}))
        client.end(_BYE_WITHIN)

    def _count(self) -> None:
        self._look.viewers = len(self._clients)
        self._look.rows_wanted = any(c.rows for c in self._clients)
        if self._clients:
            self._watched.set()
        else:
            self._watched.clear()

    def _run(self) -> None:
        """The thread that looks as long as anybody watches, and once at first, so that the first page is quick."""
        with contextlib.suppress(SwarmError):
            self._look.now()
        while not self._stop.is_set():
            self._watched.wait()
            if not self._stop.is_set():
                time.sleep(self._look.step())  # at half the cost of a wait, many times a second

    def _post(self, change: Change) -> None:
        if self._loop is None:
            self._hear(change)
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it everybody who listened
            self._loop.call_soon_threadsafe(self._hear, change)

    def _hear(self, change: Change) -> None:
        if change.state is not None:
            self._state = change.state
        for client in self._clients:
            if client.uncertain and change.state is not None and not change.trouble:
                client.end(_BYE_WITHIN)  # it comes again and asks for what it has missed
            elif change.name:
                client.hear(change)
