"""Copies of the database: taken while it is in use, verified, and put in its place."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from swarm_core import cancel, files
from swarm_core.errors import Conflict, ExternalFailure, InvalidInput, SwarmError
from swarm_core.store.database import (
    Database,
    check_log,
    connect,
    log_files,
    migration_held,
    migration_lock,
    open_database,
    translated,
)
from swarm_core.store.schema import VERSION

_PAGES = 1000  # copied at a time, 4 MB
_WAIT = 5.0
_UNREADABLE = ("DATABASE_CORRUPT", "DATABASE_ERROR", "DATABASE_READ_ONLY")
_COUNTED = ("instances", "relationships", "messages", "feedback", "pulls", "tokens", "preserved", "mcp_events")
# The same id may be another instance's when an earlier backup was restored before.
_SAME_INSTANCE = "SELECT i.id FROM instances i JOIN old.instances f ON f.id = i.id AND f.created_at = i.created_at"
_BELOW_A_HEAD = f""",
                (SELECT p.instance_id FROM old.pull_commits c JOIN old.pulls p ON p.id = c.pull_id
                    WHERE c."commit" = o."commit" AND p.instance_id IN ({_SAME_INSTANCE}) LIMIT 1)"""
# What a former database before schema 9 does not have, and what is asked in its place.
_NEW_IN_9 = {_BELOW_A_HEAD: "", "o.tree": "''"}
# What happened since the backup cannot be undone by restoring it.
_CARRIED = {
    "tokens": """UPDATE tokens SET revoked_at = o.revoked_at FROM old.tokens o
        WHERE o.hash = tokens.hash AND tokens.revoked_at IS NULL AND o.revoked_at IS NOT NULL""",
    "links": """UPDATE links SET used_at = o.used_at, ended_at = o.ended_at FROM old.links o
        WHERE o.id = links.id AND (o.used_at IS NOT links.used_at OR o.ended_at IS NOT links.ended_at)""",
    "visits": """UPDATE visits SET ended_at = o.ended_at FROM old.visits o
        WHERE o.id = visits.id AND visits.ended_at IS NULL AND o.ended_at IS NOT NULL""",
    "messages": """UPDATE messages SET state = o.state, updated_at = o.updated_at, attempts = o.attempts,
            error = o.error, injected_at = o.injected_at, seen_at = o.seen_at,
            acknowledged_at = o.acknowledged_at, how = o.how
        FROM old.messages o WHERE o.id = messages.id AND o.state <> messages.state
            AND messages.state IN ('accepted', 'held', 'injected')""",
    # A verdict on work that the backup does not know counts for other work at, or on top of, the same commit.
    "verdicts": f"""INSERT INTO verdicts (instance_id, "commit", verdict, by, at)
        SELECT coalesce(
                (SELECT id FROM ({_SAME_INSTANCE}) WHERE id = o.instance_id),
                (SELECT p.instance_id FROM old.pulls p WHERE p.head_commit = o."commit"
                    AND p.instance_id IN ({_SAME_INSTANCE}) LIMIT 1){_BELOW_A_HEAD}
            ) AS owner, o."commit", o.verdict, o.by, o.at
        FROM old.verdicts o WHERE owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM verdicts v
            WHERE v."commit" = o."commit" AND v.verdict = o.verdict AND v.by = o.by AND v.at = o.at)
        ORDER BY o.id""",
    "check_runs": """INSERT OR REPLACE INTO check_runs
            (pull_id, head_commit, base_commit, command, ok, output, at)
        SELECT o.pull_id, o.head_commit, o.base_commit, o.command, o.ok, o.output, o.at
        FROM old.check_runs o JOIN old.pulls f ON f.id = o.pull_id
        JOIN pulls p ON p.id = f.id AND p.instance_id = f.instance_id AND p.created_at = f.created_at
        LEFT JOIN check_runs c ON c.pull_id = o.pull_id WHERE c.pull_id IS NULL OR c.at < o.at""",
    "checked_commits": """INSERT OR REPLACE INTO checked_commits
            (repo_path, "commit", command, ok, output, seconds, at, tree)
        SELECT o.repo_path, o."commit", o.command, o.ok, o.output, o.seconds, o.at, o.tree
        FROM old.checked_commits o
        LEFT JOIN checked_commits c ON c.repo_path = o.repo_path AND c."commit" = o."commit"
            AND c.command = o.command WHERE c.at IS NULL OR c.at < o.at""",
    "preserved": f"""INSERT INTO preserved
            (instance_id, repo_path, ref, "commit", files, bytes, why, created_at, restored_at)
        SELECT instance_id, repo_path, ref, "commit", files, bytes, why, created_at, restored_at
        FROM old.preserved WHERE instance_id IN ({_SAME_INSTANCE}) ORDER BY id
        ON CONFLICT (ref) DO UPDATE SET restored_at = excluded.restored_at
            WHERE preserved.restored_at IS NULL AND excluded.restored_at IS NOT NULL""",
}

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Content:
    """What a copy holds: the schema's version and how many rows."""

    schema: int
    rows: dict[str, int]


@dataclass(frozen=True, slots=True)
class Restored:
    """`replaced` is where the former database is, `carried` what was taken over from it; None if it has none."""

    content: Content
    replaced: Path | None
    carried: dict[str, int] | None


def take(db: Database, target: Path, *, progress: Progress) -> Content:
    """Copy the database as it is now to a new private file; raise FILE_EXISTS, or BACKUP_INVALID if it differs.

    `progress` hears the percentage. Writers go on meanwhile: the copy is of one moment.
    """
    if os.path.lexists(target):
        raise Conflict(f"{target} exists", code="FILE_EXISTS", hint="name another file, or move this one away")
    fresh = target.with_name(f".{target.name}.new")
    try:
        with translated(db.path), contextlib.closing(connect(db.path, "ro", timeout=_WAIT)) as source:
            db.check_file()
            source.execute("BEGIN")
            expected = _content(source)
            _copy(source, fresh, progress)
        db.check_file()
        if verify(fresh) != expected:
            raise _invalid(target, "the copy has other rows than the database")
        _place(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
    return expected


def verify(path: Path) -> Content:
    """What a backup holds, after SQLite's full checks; raise BACKUP_INVALID or DATABASE_TOO_NEW."""
    if not path.is_file():
        raise InvalidInput(
            f"there is no file {path}", code="BACKUP_INVALID", hint="name a backup made by `swarm backup`"
        )
    try:
        with contextlib.closing(connect(path, "ro", timeout=_WAIT)) as connection:
            connection.set_progress_handler(cancel.is_pending, 100_000)
            content = _content(connection)
            problems = [str(r[0]) for r in connection.execute("PRAGMA integrity_check(5)") if r[0] != "ok"]
            problems += [
                f"a row of {r[0]} refers to nothing" for r in connection.execute("PRAGMA foreign_key_check")
            ]
    except sqlite3.Error as error:
        cancel.check()
        raise _invalid(path, str(error)) from error
    if problems:
        raise _invalid(path, "; ".join(problems[:3]))
    if content.schema > VERSION:
        raise Conflict(
            f"{path} was written by a newer swarm (schema {content.schema}, this one knows {VERSION})",
            code="DATABASE_TOO_NEW",
            hint="upgrade swarm, then restore it",
        )
    return content


def restore(path: Path, source: Path, *, kept_as: Path, progress: Progress) -> Restored:
    """Put a verified copy of the backup in the database's place and keep the former one.

    The caller holds the coordinator's lock. Raises DATABASE_LOCKED while another process has the database open.
    """
    verify(source)
    check_log(path)
    fresh = path.with_name(f".{path.name}.restoring")
    try:
        with contextlib.closing(connect(source, "ro", timeout=_WAIT)) as connection, translated(source):
            _copy(connection, fresh, progress)
        with migration_held(path, timeout=_WAIT):  # nobody can open the new file before it is read back
            with _nobody_writes(path):
                carried = _bring_up_to_date(fresh, path)
                content = verify(fresh)
                replaced = _set_aside(path, kept_as)
                _place(fresh, path, replace=True)
            if verify(path) != content:
                raise _invalid(path, "it reads back differently")
    finally:
        for left in (fresh, *log_files(fresh), migration_lock(fresh)):
            left.unlink(missing_ok=True)
    return Restored(content, replaced, carried)


def _copy(source: sqlite3.Connection, fresh: Path, progress: Progress) -> None:
    def step(_: int, left: int, total: int) -> None:
        cancel.check()
        progress(100 * (total - left) // max(total, 1))

    files.make_private(fresh.parent)
    fresh.unlink(missing_ok=True)
    os.close(files.open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    with contextlib.closing(connect(fresh, "rw", timeout=0)) as sink:
        source.backup(sink, pages=_PAGES, progress=step)
        sink.execute("PRAGMA journal_mode = DELETE")  # one file, complete without a log


def _content(connection: sqlite3.Connection) -> Content:
    schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
    there = {str(r[0]) for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if schema == 0 or "instances" not in there:
        raise sqlite3.DatabaseError("it is not a database of swarm")
    counted = [table for table in _COUNTED if table in there]
    rows = {table: int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in counted}
    return Content(schema, rows)


def _place(fresh: Path, target: Path, *, replace: bool = False) -> None:
    """Give a file that is on the disk its name, in one step."""
    fd = files.open_private(fresh, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    if replace:
        fresh.replace(target)
    else:
        try:
            target.hardlink_to(fresh)
        except FileExistsError:
            raise Conflict(f"{target} exists", code="FILE_EXISTS", hint="name another file") from None
        fresh.unlink()
    files.sync_folder(target.parent)


@contextlib.contextmanager
def _nobody_writes(path: Path) -> Iterator[None]:
    """Lock the database, its log moved into it, or raise DATABASE_LOCKED; leave one that cannot be read.

    The caller holds the migration lock, without which no other process of swarm can begin a log.
    """
    if not path.exists():
        yield
        return
    with contextlib.closing(connect(path, "rw", timeout=0)) as connection:
        try:
            with translated(path):
                connection.execute("PRAGMA journal_mode = DELETE")
                connection.execute("BEGIN IMMEDIATE")
        except SwarmError as error:
            if error.code == "DATABASE_LOCKED":
                raise ExternalFailure(
                    f"{path} is in use by another process",
                    code="DATABASE_LOCKED",
                    hint="`swarm down`, end other swarm commands, and try again",
                ) from error
            if error.code not in _UNREADABLE:
                raise
        yield


def _bring_up_to_date(fresh: Path, former: Path) -> dict[str, int] | None:
    """Migrate the copy, and take over from the former database what restoring must not undo."""
    with contextlib.closing(open_database(fresh)) as db:
        if not former.is_file():
            return None
        try:
            with translated(former), _attached(db, former):
                return _carry(db)
        except SwarmError as error:
            if error.code not in _UNREADABLE:
                raise
            return None


@contextlib.contextmanager
def _attached(db: Database, former: Path) -> Iterator[None]:
    db.attach(former, "old")
    try:
        yield
    finally:
        db.detach("old")


def _carry(db: Database) -> dict[str, int]:
    """Of a former database with an older schema, what it has."""
    there = {str(row[0]) for row in db.rows("SELECT name FROM old.sqlite_master WHERE type = 'table'")}
    missing = {} if "pull_commits" in there else _NEW_IN_9
    with db.write():
        return {
            table: db.execute(_without(missing, sql)).rowcount for table, sql in _CARRIED.items() if table in there
        }


def _without(missing: Mapping[str, str], sql: str) -> str:
    for text, instead in missing.items():
        sql = sql.replace(text, instead)
    return sql


def _set_aside(path: Path, kept_as: Path) -> Path | None:
    """Give the former database a second name. Its log is in it, unless it is damaged: then that goes along."""
    there = path.exists()
    if there:
        kept_as.hardlink_to(path)
    for log, kept_log in zip(log_files(path), log_files(kept_as), strict=True):
        if log.exists():
            log.rename(kept_log)
    return kept_as if there else None


def _invalid(path: Path, why: str) -> ExternalFailure:
    return ExternalFailure(
        f"{path} is not a complete database of swarm: {why}",
        code="BACKUP_INVALID",
        hint="use another backup; nothing was changed",
    )
