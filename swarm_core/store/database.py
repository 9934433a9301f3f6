"""One connection to the SQLite file: how it is opened, how it is written, what its failures mean."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from swarm_core import cancel, locks
from swarm_core.errors import Cancelled, Conflict, ExternalFailure, InvalidInput, SwarmError
from swarm_core.models import iso
from swarm_core.store.schema import VERSION

Clock = Callable[[], datetime]
_T = TypeVar("_T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
_READERS_KEPT = 4
_STEPS = 20_000  # of SQLite's machine, a few milliseconds, between two questions whether to go on


def utc_now() -> datetime:
    return datetime.now(UTC)


class Database:
    """Reads at any time; writes only inside `with db.write():`, which is one BEGIN IMMEDIATE transaction.

    Many threads may share it. Whoever waits for another process to let go of the file keeps none of them waiting.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, clock: Clock, busy_timeout: float) -> None:
        self._connection = connection
        self._lock = threading.RLock()
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._readers: list[Database] = []
        self._closed = False
        self.path = path

    def now(self) -> str:
        return iso(self._clock())

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """All or nothing: committed at the end, rolled back on any exception. May be nested."""
        with translated(self.path):
            begun = self._patiently(self._begin)
            try:
                yield
                if begun:
                    self._connection.execute("COMMIT")
            except BaseException:
                if begun and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._lock.release()

    def execute(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> sqlite3.Cursor:
        """Run a statement that changes something; only inside `write()`."""
        if not self._connection.in_transaction:
            raise AssertionError("a change outside `with db.write():`")
        return self._connection.execute(sql, values)

    def rows(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[sqlite3.Row]:
        try:
            with self._lock:
                return self._connection.execute(sql, values).fetchall()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            return self._again(error, lambda: self._connection.execute(sql, values).fetchall())

    def row(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> sqlite3.Row | None:
        result: sqlite3.Row | None
        try:
            with self._lock:
                result = self._connection.execute(sql, values).fetchone()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            result = self._again(error, lambda: self._connection.execute(sql, values).fetchone())
        return result

    @contextlib.contextmanager
    def reader(self) -> Iterator[Database]:
        """A read-only connection for queries that may take long.

        It sees what is committed and is nobody else's meanwhile, so that its queries keep nobody waiting.
        Cancelling the work they are part of ends them.
        """
        try:
            reader = self._readers.pop()
        except IndexError:
            reader = _open_reader(self.path, self._clock, self._busy_timeout)
        try:
            yield reader
        finally:
            # Whoever closes meanwhile has said so before it looks for readers, so one of the two closes this one.
            self._readers.append(reader)
            self._close_readers(keep=0 if self._closed else _READERS_KEPT)

    def data_version(self) -> int:
        """A number that changes when another connection has committed."""
        row = self.row("PRAGMA data_version")
        assert row is not None
        return int(row[0])

    def checkpoint(self) -> None:
        """Move what is in the log into the file, as far as nobody reads it."""
        self.rows("PRAGMA wal_checkpoint(PASSIVE)")

    def check(self) -> list[str]:
        """What SQLite's own integrity check finds; empty when all is well."""
        return [str(r[0]) for r in self.rows("PRAGMA quick_check(20)") if r[0] != "ok"]

    def close(self) -> None:
        self._closed = True
        self._close_readers()
        with self._lock:
            self._connection.close()

    def _close_readers(self, keep: int = 0) -> None:
        while len(self._readers) > keep:
            with contextlib.suppress(IndexError):  # another thread took it
                self._readers.pop().close()

    def _begin(self) -> bool:
        """Take the connection until `write` lets go of it; False when this thread has begun already."""
        begun = not self._connection.in_transaction
        if begun:
            self._connection.execute("BEGIN IMMEDIATE")
        self._lock.acquire()
        return begun

    def _again(self, error: sqlite3.Error | UnicodeEncodeError, work: Callable[[], _T]) -> _T:
        """What to do when a read failed: try again if another process was in the way, else say what it means."""
        try:
            if isinstance(error, sqlite3.OperationalError) and _is_busy(error):
                return self._patiently(work)
        except sqlite3.Error as second:
            error = second
        raise _meaning(error, self.path) from error

    def _patiently(self, work: Callable[[], _T]) -> _T:
        """Do it alone with the connection; again, while another process is in the way and there is time."""
        deadline, pause = 0.0, _FIRST_PAUSE
        while True:
            try:
                with self._lock:
                    return work()
            except sqlite3.OperationalError as error:
                deadline = deadline or time.monotonic() + self._busy_timeout
                left = deadline - time.monotonic()
                if left <= 0 or not _is_busy(error):
                    raise
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)


def open_database(
    path: Path, *, busy_timeout: float = 5.0, clock: Clock = utc_now, checkpoints: bool = True
) -> Database:
    """Open the file, creating or migrating it first. A file that cannot be used is left as it is.

    Without `checkpoints` a commit never waits for the disk; another connection has to move the log into the file.
    """
    with translated(path):
        make_folder(path.parent)
        _check_file(path)
        connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        try:
            if _version(connection, path) < VERSION:
                _migrate(connection, path, busy_timeout)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            if not checkpoints:
                connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA busy_timeout = 0")  # from here on we wait ourselves
        except BaseException:
            connection.close()
            raise
    return Database(connection, path, clock, busy_timeout)


def _open_reader(path: Path, clock: Clock, busy_timeout: float) -> Database:
    """Closing it is SQLite's business, which keeps the locks that other connections have on the file."""
    if not path.exists():
        raise no_index(path)
    with translated(path):
        address = f"{path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(address, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA cache_size = -256")  # there are many, and the system has the pages anyway
    # `interrupt` from another thread would miss a query about to begin, and could hit the next one's.
    connection.set_progress_handler(cancel.is_pending, _STEPS)
    return Database(connection, path, clock, busy_timeout)


def no_index(path: Path) -> Conflict:
    """What to say of a database that was taken away while we had it open."""
    return Conflict(
        f"there is no database {path}", code="NO_INDEX", hint="`swarm down`, then `swarm up` makes one"
    )


def make_folder(path: Path) -> None:
    """Make a private folder, unless it is there; one that cannot be made is DATABASE_READ_ONLY."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ExternalFailure(
            f"cannot create {path}: {error.strerror}",
            code="DATABASE_READ_ONLY",
            hint="set SWARM_HOME to a folder you can write",
        ) from None


def _check_file(path: Path) -> None:
    """Refuse what cannot be used, without opening it.

    Closing any descriptor of the file would drop the locks of this process's other connections to it, and the
    next process to end would delete the log they still write to.
    """
    if not path.exists():
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise _read_only(path)
        try:
            path.touch(mode=0o600)
        except OSError as error:
            raise (_full(path) if error.errno in (errno.ENOSPC, errno.EDQUOT) else _read_only(path)) from error
        return
    if not path.is_file():
        raise ExternalFailure(f"{path} is not a file", code="DATABASE_CORRUPT", hint="set MCP_DATABASE_PATH")
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK | os.X_OK):
        raise _read_only(path)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > VERSION:
        raise Conflict(
            f"{path} was written by a newer swarm (schema {version}, this one knows {VERSION})",
            code="DATABASE_TOO_NEW",
            hint="upgrade swarm, or set MCP_DATABASE_PATH to another file",
        )
    return version


def _migrate(connection: sqlite3.Connection, path: Path, busy_timeout: float) -> None:
    # Changing the journal mode fails at once when two processes do it together, whatever the busy timeout.
    with locks.hold(path.with_name(path.name + ".migrate"), timeout=max(busy_timeout, 30.0)):
        connection.execute("PRAGMA journal_mode = WAL")
        if _version(connection, path) < VERSION:
            # sqlite_utils costs 120 ms of CPU to import; it is needed only when the schema is behind.
            from swarm_core.store import migrations  # noqa: PLC0415

            migrations.apply(connection)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's failures as ours, decided by its error codes; text that it cannot hold is InvalidInput."""
    try:
        yield
    except (sqlite3.Error, UnicodeEncodeError) as error:
        raise _meaning(error, path) from error


def _meaning(error: sqlite3.Error | UnicodeEncodeError, path: Path) -> SwarmError:
    if isinstance(error, sqlite3.Error):
        return _translate(error, path)
    return InvalidInput(
        "text must be valid Unicode: it has half a character or bytes that are no UTF-8",
        hint="remove the character and try again",
    )


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


def _is_busy(error: sqlite3.Error) -> bool:
    return _name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _translate(error: sqlite3.Error, path: Path) -> SwarmError:
    name = _name(error)
    if name == "SQLITE_INTERRUPT":
        cancel.check()
        return Cancelled("the query was cancelled")
    if _is_busy(error):
        return ExternalFailure(
            f"{path} is locked by another process", code="DATABASE_LOCKED", hint="try again in a moment"
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return _corrupt(path)
    if name.startswith("SQLITE_FULL"):
        return _full(path)
    if name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY_DBMOVED")) and not path.exists():
        return no_index(path)
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return _read_only(path)
    if name.startswith(("SQLITE_PROTOCOL", "SQLITE_IOERR_LOCK", "SQLITE_IOERR_SHM", "SQLITE_NOLFS")):
        return ExternalFailure(
            f"the file system of {path} does not support SQLite's locks ({name})",
            code="DATABASE_ERROR",
            hint="set SWARM_HOME to a folder on a local disk",
        )
    if name.startswith("SQLITE_IOERR") and _is_full(path):
        return _full(path)
    return ExternalFailure(
        f"SQLite failed on {path}: {error} ({name or type(error).__name__})", code="DATABASE_ERROR"
    )


def _is_full(path: Path) -> bool:
    try:
        stat = os.statvfs(path.parent)
    except OSError:
        return False
    return stat.f_bavail * stat.f_frsize < 1 << 16


def _full(path: Path) -> ExternalFailure:
    return ExternalFailure(
        f"no space is left for {path}", code="DISK_FULL", hint="free space, then run the command again"
    )


def _corrupt(path: Path) -> ExternalFailure:
    return ExternalFailure(
        f"{path} is damaged or is not a database",
        code="DATABASE_CORRUPT",
        hint="move the file away, or restore a copy; worktrees, branches and sessions are not affected",
    )


def _read_only(path: Path) -> ExternalFailure:
    return ExternalFailure(
        f"{path} cannot be written",
        code="DATABASE_READ_ONLY",
        hint="check the permissions of the folder, or set SWARM_HOME to one you can write",
    )
