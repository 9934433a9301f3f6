"""What is done on the event loop itself: reads that never wait, and events of small calls, written together."""

from __future__ import annotations

import asyncio

from swarm_core.config import Settings
from swarm_core.errors import SwarmError
from swarm_core.store import tokens
from swarm_core.store.database import Database, open_database
from swarm_mcp.backlog import Backlog, Telling
from swarm_mcp.log_sync import LogSync

_REMEMBERED = 4096
_LONELY = 16
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02
_WRITTEN_WITHIN = 2.0

_Waiting = tuple[Telling, asyncio.Future[None] | None]


class LoopStore:
    """A connection of the event loop's own. It waits a few milliseconds for a lock and never for the disk.

    `threads` is the connection that the other threads of this process write with.
    """

    def __init__(self, settings: Settings, threads: Database) -> None:
        self.db: Database = open_database(
            settings.database_path, busy_timeout=0, synced=False, in_use=[threads.files], turn=threads.turn
        )
        self.backlog = Backlog(threads)
        self._notes: list[Telling] = []
        self._in_this_turn = 0
        self._crowded = False
        self._log = LogSync(threads.sync_log)
        self._known: dict[str, tokens.Lookup] = {}
        self._version = -1
        self._waiting: list[_Waiting] = []
        self._in_a_row = 0

    def find(self, token: str) -> tokens.Lookup:
        """Who the token speaks for. What was found is kept until anybody else writes to the database."""
        version = self.db.data_version()
        if version != self._version or len(self._known) > _REMEMBERED:
            self._known.clear()
            self._version = version
        found = self._known.get(token)
        if found is None:
            found = tokens.lookup(self.db, token)
            if found.principal is not None:
                self._known[token] = found
        return found

    async def synced(self) -> None:
        """Return when everything that was committed before this call is on the disk."""
        await self._log.synced()

    def note(self, tell: Telling) -> None:
        """Have `tell` written without waiting: now, at the end of this turn of the loop, or by the backlog.

        Notes are written in the order they came; those of one turn share a transaction.
        """
        if self.backlog:
            self.backlog.add(tell)
            return
        self._notes.append(tell)
        self._in_this_turn += 1
        if self._in_this_turn == 1:
            asyncio.get_running_loop().call_soon(self._end_turn)
            if not self._crowded:
                self._write_notes()

    def _end_turn(self) -> None:
        self._crowded, self._in_this_turn = self._in_this_turn > 1, 0
        self._write_notes()

    def _write_notes(self) -> None:
        notes, self._notes = self._notes, []
        if notes and self._try([(tell, None) for tell in notes]) is not None:
            for tell in notes:
                self.backlog.add(tell)

    async def write(self, tell: Telling, *, within: float = 0.0) -> None:
        """Have `tell` write in the next transaction, which all calls of this turn of the loop share.

        While another has the database locked it is tried again, for so many seconds. Cancelling raises only as
        long as nothing is written; what is written returns, and the caller's next wait is cancelled instead.
        """
        if self._alone() and self._try([(tell, None)]) is None:
            return
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + within, _FIRST_PAUSE
        while True:
            done: asyncio.Future[None] = loop.create_future()
            if not self._waiting:
                loop.call_soon(self._flush)
            self._waiting.append((tell, done))
            try:
                await done
            except asyncio.CancelledError:
                if not _is_written(done):
                    raise
                _cancel_at_the_next_wait()
                return
            except SwarmError as error:
                if error.code != "DATABASE_LOCKED" or loop.time() >= deadline:
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                return

    def _alone(self) -> bool:
        """Whether nobody shared the last transactions; at times somebody is waited for all the same."""
        self._in_a_row += 1
        return not self._waiting and self._in_a_row > _LONELY and self._in_a_row % _LONELY != 0

    def _flush(self) -> None:
        waiting, self._waiting = [one for one in self._waiting if not _is_given_up(one)], []
        if not waiting:
            return
        if len(waiting) > 1:
            self._in_a_row = 0
        failure = self._try(waiting)
        if failure is None or failure.code == "DATABASE_LOCKED" or len(waiting) == 1:
            _settle(waiting, failure)
            return
        for one in waiting:  # what is wrong with one is not the others' fault
            _settle([one], self._try([one]))

    def _try(self, waiting: list[_Waiting]) -> SwarmError | None:
        try:
            with self.db.write():
                for tell, _ in waiting:
                    tell(self.db)
        except SwarmError as error:
            return error
        except BaseException as error:
            _settle(waiting, error)
            raise
        return None

    def close(self) -> None:
        self._log.close()
        self._write_notes()
        self.backlog.close(_WRITTEN_WITHIN)
        self.db.close()


def _is_given_up(waiting: _Waiting) -> bool:
    """The caller is cancelled, and will say so; it hears of that later than the next transaction begins."""
    _, done = waiting
    return done is not None and done.cancelled()


def _is_written(done: asyncio.Future[None]) -> bool:
    return done.done() and not done.cancelled() and done.exception() is None


def _cancel_at_the_next_wait() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()  # or it would count as asked for twice
    task.cancel()


def _settle(waiting: list[_Waiting], failure: BaseException | None) -> None:
    for _, done in waiting:
        if done is None or done.done():
            continue
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)
