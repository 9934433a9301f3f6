"""One connection to the SQLite file: how it is opened, how it is written, what its failures mean."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from swarm_core import cancel, files, locks
from swarm_core.errors import Cancelled, Conflict, ExternalFailure, InvalidInput, SwarmError
from swarm_core.models import iso
from swarm_core.store.schema import VERSION

Clock = Callable[[], datetime]
_T = TypeVar("_T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
_READERS_KEPT = 16
_SHORTLY = 0.01  # how long an event loop waits for another thread of its process
_MOMENT = 0.004  # how long it waits for another process
_LOOK_EVERY = 0.25  # seconds between two looks at the file by one that only reads
_BESIDE = ("-wal", "-shm", "-journal", "-wal.left")  # what SQLite, or `check_log`, reads beside the database
_STEPS = 20_000  # of SQLite's machine, a few milliseconds, between two questions whether to go on


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Opened:
    """Which files a connection has open: the database and its log. While they are open, no other file can get
    their numbers, and SQLite keeps them."""

    paths: tuple[Path, ...]
    numbers: tuple[tuple[int, int], ...]

    @classmethod
    def at(cls, path: Path) -> Opened:
        paths = (path, *log_files(path))
        return cls(paths, tuple(_number(one) for one in paths))

    def __str__(self) -> str:
        return " ".join(f"{device}:{inode}" for device, inode in self.numbers)

    def mark_log(self) -> None:
        """Record whose log is left at the path when another file has taken the database's place."""
        try:
            left = _number(self.paths[1]) == self.numbers[1] and _number(self.paths[0]) != self.numbers[0]
        except OSError:
            return
        if left:
            with contextlib.suppress(OSError, SwarmError):
                files.write_private(_log_mark(self.paths[0]), str(self).encode())

    def is_there(self) -> bool:
        try:
            return all(_number(one) == number for one, number in zip(self.paths, self.numbers, strict=True))
        except OSError:
            return False


class Database:
    """Reads at any time; writes only inside `with db.write():`, which is one BEGIN IMMEDIATE transaction.

    Many threads may share it. A read never waits for another thread's transaction, and waiting for another process
    to release the file keeps nobody else waiting. Connections that share a `turn` queue for it before they write.
    A file that was moved, replaced or deleted while it is open is noticed: no write to it succeeds, and reads
    fail within a quarter of a second. When the same file comes back, the connection goes on.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        clock: Clock,
        busy_timeout: float,
        opened: Opened,
        turn: threading.Lock | None = None,
        *,
        synced: bool = False,
    ) -> None:
        self._connection = connection
        self._synced = synced
        self._opened = opened
        self._look_due = 0.0
        self._lock = threading.RLock()
        self.turn = turn or threading.Lock()
        self._syncing = threading.Lock()
        self._syncs = itertools.count(1)
        self._sync_asked = self._sync_done = 0
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._hopes = True
        self._readers: list[Database] = []
        self._closed = False
        self.path = path

    @property
    def files(self) -> str:
        """Device and inode of the database, its log and the log's index, as other processes compare them."""
        return str(self._opened)

    def now(self) -> str:
        return iso(self._clock())

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """All or nothing: committed at the end, rolled back on any exception. May be nested.

        Others may write while a commit waits for the disk.
        """
        with translated(self.path):
            self.check_file()
            begun = self._patiently(self._begin)
            try:
                yield
                if begun:
                    self._connection.execute("COMMIT")
                    self.check_file()
            except BaseException:
                if begun and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                if begun:
                    self.turn.release()
                self._lock.release()
        if begun and self._synced:
            self.sync_log()

    def execute(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> sqlite3.Cursor:
        """Run a statement that changes something; only inside `write()`."""
        if not self._connection.in_transaction:
            raise AssertionError("a change outside `with db.write():`")
        return self._connection.execute(sql, values)

    def rows(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[sqlite3.Row]:
        self._check_now_and_then()
        if not self._lock.acquire(blocking=False):
            with self.reader() as reader:
                return reader.rows(sql, values)
        try:
            return self._connection.execute(sql, values).fetchall()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            return self._again(error, lambda: self._connection.execute(sql, values).fetchall())
        finally:
            self._lock.release()

    def row(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> sqlite3.Row | None:
        result: sqlite3.Row | None
        self._check_now_and_then()
        if not self._lock.acquire(blocking=False):
            with self.reader() as reader:
                return reader.row(sql, values)
        try:
            result = self._connection.execute(sql, values).fetchone()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            result = self._again(error, lambda: self._connection.execute(sql, values).fetchone())
        finally:
            self._lock.release()
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
            reader = self._open_reader()
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

    def check_file(self) -> None:
        """Raise NO_INDEX or DATABASE_REPLACED unless the files at our path are the ones we have open."""
        if not self._opened.is_there():
            raise _taken_away(self.path)
        self._look_due = time.monotonic() + _LOOK_EVERY

    def attach(self, path: Path, name: str) -> None:
        """Let queries read another database, as `name`."""
        _check_beside(path)
        with self._lock:
            self._connection.execute(f"ATTACH ? AS {name}", (f"{path.absolute().as_uri()}?mode=ro",))

    def detach(self, name: str) -> None:
        with self._lock:
            self._connection.execute(f"DETACH {name}")

    def checkpoint(self) -> None:
        """Move what is in the log into the file, as far as nobody reads it; the next write begins the log anew.

        Most of it is moved while others write. They wait for the rest, or a log that is written all the time
        would never be all in the file.
        """
        with translated(self.path):
            self.check_file()
            self._patiently(lambda: self._move("PASSIVE"))
            self._patiently(self._move_rest)

    def sync_log(self) -> None:
        """Put everything committed so far on the disk. Calls that come while a sync runs share the next one."""
        number = self._sync_asked = next(self._syncs)
        with self._syncing:
            if self._sync_done >= number:
                return
            covered = self._sync_asked
            self.check_file()
            _sync(self.path)
            self._sync_done = covered

    def check(self) -> list[str]:
        """What SQLite's own integrity check finds; empty when all is well."""
        return [str(r[0]) for r in self.rows("PRAGMA quick_check(20)") if r[0] != "ok"]

    def close(self) -> None:
        self._closed = True
        self._close_readers()
        with self._lock:
            self._connection.close()
        self._opened.mark_log()

    def _check_now_and_then(self) -> None:
        if time.monotonic() >= self._look_due:
            self.check_file()

    def _open_reader(self) -> Database:
        """Closing it is SQLite's business, which keeps the locks that other connections have on the file."""
        self.check_file()
        with translated(self.path):
            connection = connect(self.path, "ro", timeout=0)
        connection.execute("PRAGMA cache_size = -256")  # there are many, and the system has the pages anyway
        # `interrupt` from another thread would miss a query about to begin, and could hit the next one's.
        connection.set_progress_handler(cancel.is_pending, _STEPS)
        return Database(connection, self.path, self._clock, self._busy_timeout, self._opened)

    def _close_readers(self, keep: int = 0) -> None:
        while len(self._readers) > keep:
            with contextlib.suppress(IndexError):  # another thread took it
                self._readers.pop().close()

    def _move(self, mode: str) -> None:
        self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    def _move_rest(self) -> None:
        """While another process writes or reads old rows, FULL moves what PASSIVE would."""
        self._take_turn()
        try:
            self._move("FULL")
        finally:
            self.turn.release()

    def _take_turn(self) -> None:
        # Waiting lets the thread that has the turn go on; polling would keep the interpreter from it.
        if not self.turn.acquire(timeout=self._busy_timeout or _SHORTLY):
            raise _locked(self.path)

    def _begin(self) -> bool:
        """Take the connection until `write` releases it; False when this thread has begun already."""
        begun = not self._connection.in_transaction
        if begun:
            self._take_turn()
            try:
                self._begin_immediate()
            except BaseException:
                self.turn.release()
                raise
        self._lock.acquire()
        return begun

    def _begin_immediate(self) -> None:
        """Begin to write; an event loop waits a moment for another process, unless that was in vain the last time.

        Coming back to a call costs a busy loop more than that moment.
        """
        deadline = time.monotonic() + _MOMENT if self._hopes and not self._busy_timeout else 0.0
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    self._hopes = False
                    raise
                time.sleep(_FIRST_PAUSE / 10)
            else:
                self._hopes = True
                return

    def _again(self, error: sqlite3.Error | UnicodeEncodeError, work: Callable[[], _T]) -> _T:
        """What to do when a read failed: try again if another process was in the way, else say what it means."""
        try:
            if isinstance(error, sqlite3.OperationalError) and is_busy(error):
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
                if left <= 0 or not is_busy(error):
                    raise
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE)


def open_database(
    path: Path,
    *,
    busy_timeout: float = 5.0,
    clock: Clock = utc_now,
    synced: bool = True,
    create: bool = True,
    in_use: Sequence[str] = (),
    turn: threading.Lock | None = None,
) -> Database:
    """Open the file, creating or migrating it first. A file that cannot be used is left as it is.

    A commit is on the disk when `write` returns. One that is not `synced` never waits for the disk: it survives
    every crash but that of the machine, unless `sync_log` follows, and another connection has to move the log into
    the file. Without `create` a missing file is NO_INDEX. `in_use` has the `files` of each server that
    has the database open, or "" for one that is about to open it: a missing file is then NO_INDEX, and another one
    DATABASE_REPLACED. With the `turn` of another connection of this process, the two never find the file locked by
    one another.
    """
    with translated(path):
        make_folder(path.parent)
        _check_file(path, create=create and not in_use)
        connection = connect(path, "rw", timeout=busy_timeout)
        try:
            before = _number(path)
            # SQLite opens the log at the first read, and would apply the log of another database to this file.
            if any(known and known != str(Opened.at(path)) for known in in_use):
                raise _taken_away(path)
            check_log(path)
            with _log_held(path, busy_timeout):
                # A backup put in place by hand has no log; asking for its mode would read the whole schema.
                if _version(connection, path) < VERSION or not log_files(path)[0].exists():
                    _migrate(connection, path, before, busy_timeout)
            # FULL would sync inside the transaction, and nobody else could write meanwhile; `write` does it after.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            if not synced:
                connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA busy_timeout = 0")  # from here on we wait ourselves
            opened = Opened.at(path)
            if opened.numbers[0] != before:
                raise _taken_away(path)
            _check_beside(path)
        except _RestoredError:
            connection.close()
            return open_database(
                path,
                busy_timeout=busy_timeout,
                clock=clock,
                synced=synced,
                create=create,
                in_use=in_use,
                turn=turn,
            )
        except OSError:
            connection.close()
            raise _taken_away(path) from None
        except BaseException:
            connection.close()
            raise
    return Database(connection, path, clock, busy_timeout, opened, turn, synced=synced)


def connect(path: Path, mode: str, *, timeout: float) -> sqlite3.Connection:
    """Open what is there and make nothing; raise NOT_PRIVATE when another user could have made its log."""
    _check_beside(path)
    address = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection


def _check_beside(path: Path) -> None:
    """Raise NOT_PRIVATE for a log or journal that belongs neither to us nor to the owner of the database file.

    In a folder like /tmp anybody can make one before we do; whether the kernel refuses to open it is a setting.
    """
    real = Path(os.path.realpath(path))
    owner = real.stat().st_uid if real.exists() else None
    for ending in _BESIDE:
        files.check_own_file(real.with_name(real.name + ending), owner=owner)


@contextlib.contextmanager
def _log_held(path: Path, timeout: float) -> Iterator[None]:
    """Where other users can make files, keep the log open with a reader, so that it stays the one we checked.

    While a reader has it open, nobody deletes the log, and no journal is played back. One that may write would do
    that, or move a planted log into the database, before the check could come.
    """
    if not files.is_shared(Path(os.path.realpath(path)).parent):
        yield
        return
    with contextlib.closing(connect(path, "ro", timeout=timeout)) as reader:
        try:
            has_log = reader.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
            reader.execute("PRAGMA user_version").fetchall()
        finally:
            _check_beside(path)
        if has_log and not all(one.exists() for one in log_files(path)):  # it read one that is gone again
            raise _taken_away(path)
        yield


def log_files(path: Path) -> tuple[Path, Path]:
    """Where SQLite keeps what is not in the file yet, and its index: beside the real file."""
    real = Path(os.path.realpath(path))
    return real.with_name(real.name + "-wal"), real.with_name(real.name + "-shm")


def _sync(path: Path) -> None:
    try:
        fd = os.open(log_files(path)[0], os.O_RDONLY | os.O_CLOEXEC)
        try:
            getattr(os, "fdatasync", os.fsync)(fd)  # macOS has no fdatasync
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(path) from error
        raise ExternalFailure(f"cannot sync {path}: {error.strerror}", code="DATABASE_READ_ONLY") from error


def check_log(path: Path) -> None:
    """Raise DATABASE_REPLACED when the log at the path was left by another database than the one that is there."""
    mark = _log_mark(path)
    if not mark.exists():
        return
    database, log = [*mark.read_text().split(), "", ""][:2]
    with contextlib.suppress(FileNotFoundError):
        there = [f"{device}:{inode}" for device, inode in map(_number, (path, log_files(path)[0]))]
        if there[1] == log and there[0] != database:
            raise _taken_away(path)
    mark.unlink(missing_ok=True)


def _log_mark(path: Path) -> Path:
    log = log_files(path)[0]
    return log.with_name(log.name + ".left")


def _number(path: Path) -> tuple[int, int]:
    facts = os.stat(path)  # noqa: PTH116  twice as fast, and done at every write
    return facts.st_dev, facts.st_ino


def _taken_away(path: Path) -> Conflict:
    if not path.exists():
        return no_index(path)
    return Conflict(
        f"{path} or its log is another file than the one that was opened; nothing was written",
        code="DATABASE_REPLACED",
        hint="put the old file back; to use the other one, then run `swarm down` and `swarm backup restore FILE`",
    )


def no_index(path: Path) -> Conflict:
    """The database was taken away while it was open, or must not be created now."""
    log, index = log_files(path)
    left = _has_content(log)
    anew = f"move {log.name} and {index.name} away and run `swarm up`" if left else "`swarm up`"
    return Conflict(
        f"there is no database {path}" + (f", but its log {log.name} is there" if left else ""),
        code="NO_INDEX",
        hint=f"put the file back, or run `swarm down`, then `swarm backup restore FILE` or, to start anew, {anew}",
    )


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def make_folder(path: Path) -> None:
    """Make a private folder, unless it is there; one that cannot be made is DATABASE_READ_ONLY."""
    try:
        files.make_private(path)
    except OSError as error:
        raise ExternalFailure(
            f"cannot create {path}: {error.strerror}",
            code="DATABASE_READ_ONLY",
            hint="set SWARM_HOME to a folder you can write",
        ) from None


def _check_file(path: Path, *, create: bool) -> None:
    """Make the file, or refuse what cannot be used, without opening it.

    Closing any descriptor of the file would drop the locks of this process's other connections to it, and the
    next process to end would delete the log they still write to.
    """
    if not path.exists():
        if not create:
            raise no_index(path)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise _read_only(path)
        _check_place(path)
        if _has_content(log_files(path)[0]):  # SQLite would apply it to the new database
            raise no_index(path)
        try:
            os.close(files.open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            files.sync_folder(path.parent)
        except FileExistsError:
            return  # another process was quicker
        except OSError as error:
            raise (_full(path) if error.errno in (errno.ENOSPC, errno.EDQUOT) else _read_only(path)) from error
        return
    if not path.is_file():
        raise ExternalFailure(f"{path} is not a file", code="DATABASE_CORRUPT", hint="set MCP_DATABASE_PATH")
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK | os.X_OK):
        raise _read_only(path)
    _check_place(path)
    files.check_own(path)


def _check_place(path: Path) -> None:
    """Raise NOT_PRIVATE for a folder, a link to the database or a log of it that another user made."""
    files.check_maker(path)
    for folder in {path.parent, Path(os.path.realpath(path)).parent}:
        files.check_own(folder, shared=True)
    _check_beside(path)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > VERSION:
        raise Conflict(
            f"{path} was written by a newer swarm (schema {version}, this one knows {VERSION})",
            code="DATABASE_TOO_NEW",
            hint="upgrade swarm, or set MCP_DATABASE_PATH to another file",
        )
    return version


def migration_lock(path: Path) -> Path:
    """Held by who changes the schema or puts another file in the database's place."""
    return path.with_name(path.name + ".migrate")


class _RestoredError(Exception):
    """Another file was put in the database's place while we waited to open it."""


@contextlib.contextmanager
def migration_held(path: Path, *, timeout: float) -> Iterator[None]:
    """Hold the migration lock, or raise DATABASE_LOCKED."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locks.hold(migration_lock(path), timeout=timeout))
        except Conflict as error:
            raise _locked(path) from error
        yield


def _migrate(connection: sqlite3.Connection, path: Path, number: tuple[int, int], busy_timeout: float) -> None:
    # Changing the journal mode fails at once when two processes do it together, whatever the busy timeout.
    with migration_held(path, timeout=max(busy_timeout, 30.0)):
        if _number(path) != number:  # a log of the old file would be taken for one of the new
            raise _RestoredError
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


def is_busy(error: sqlite3.Error) -> bool:
    return _name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _translate(error: sqlite3.Error, path: Path) -> SwarmError:
    name = _name(error)
    if name == "SQLITE_INTERRUPT":
        cancel.check()
        return Cancelled("the query was cancelled")
    if is_busy(error):
        return _locked(path)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return _corrupt(path)
    if name.startswith("SQLITE_FULL"):
        return _full(path)
    if name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY_DBMOVED")) and not path.exists():
        return no_index(path)
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return _read_only(path)
    if name.startswith("SQLITE_IOERR") and _is_full(path):  # also SQLITE_IOERR_SHMSIZE
        return _full(path)
    if name.startswith(("SQLITE_PROTOCOL", "SQLITE_IOERR_LOCK", "SQLITE_IOERR_SHM", "SQLITE_NOLFS")):
        return ExternalFailure(
            f"the file system of {path} does not support SQLite's locks ({name})",
            code="DATABASE_ERROR",
            hint="set SWARM_HOME to a folder on a local disk",
        )
    return ExternalFailure(
        f"SQLite failed on {path}: {error} ({name or type(error).__name__})", code="DATABASE_ERROR"
    )


def _locked(path: Path) -> ExternalFailure:
    return ExternalFailure(
        f"{path} is locked by another process", code="DATABASE_LOCKED", hint="try again in a moment"
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
