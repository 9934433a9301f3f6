"""Pull requests: numbers counted per forge and repository, at most one open for a branch."""

from __future__ import annotations

import dataclasses
import sqlite3
from datetime import timedelta
from typing import Any

from swarm_core.errors import NotFound
from swarm_core.models import Pull, PullState, iso, parse_iso
from swarm_core.store.database import Database

_FIELDS = tuple(f.name for f in dataclasses.fields(Pull))
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM pulls"
_FARTHEST = timedelta(minutes=70)
REOPENED_WITHIN = timedelta(days=30)
_MUTABLE = frozenset(_FIELDS) - {"id", "forge", "repo_path", "number", "created_at", "updated_at"}


def next_number(db: Database, forge: str, repo_path: str) -> int:
    """The number after the highest; call inside the transaction that inserts it."""
    row = db.row(
        "SELECT coalesce(max(number), 0) + 1 FROM pulls WHERE forge = ? AND repo_path = ?", (forge, repo_path)
    )
    assert row is not None
    return int(row[0])


def insert(db: Database, pull: Pull) -> Pull:
    """Store it; its id is given out here."""
    names = _FIELDS[1:]
    values = [getattr(pull, name) for name in names]
    marks = ", ".join("?" for _ in names)
    cursor = db.execute(f"INSERT INTO pulls ({', '.join(names)}) VALUES ({marks})", values)
    assert cursor.lastrowid is not None
    return dataclasses.replace(pull, id=cursor.lastrowid)


def change(db: Database, pull: Pull, **fields: Any) -> Pull:
    """The pull request with other facts; when it was changed is noted."""
    return _set(db, pull, updated_at=db.now(), **fields)


def looked(db: Database, pull: Pull, **fields: Any) -> Pull:
    """What a look has brought that is no change of the pull request itself."""
    return _set(db, pull, **fields)


def get(db: Database, pull_id: int) -> Pull:
    row = db.row(f"{_SELECT} WHERE id = ?", (pull_id,))
    if row is None:
        raise NotFound(f"there is no pull request with id {pull_id}", code="PULL_NOT_FOUND")
    return _pull(row)


def numbered(db: Database, forge: str, repo_path: str, number: int, repository: str = "") -> Pull | None:
    row = db.row(
        f"{_SELECT} WHERE forge = ? AND repo_path = ? AND repository = ? AND number = ?",
        (forge, repo_path, repository, number),
    )
    return _pull(row) if row else None


def newest_of(db: Database, repo_path: str, head_branch: str) -> Pull | None:
    """The last pull request of a branch, in whatever state."""
    row = db.row(
        f"{_SELECT} WHERE repo_path = ? AND head_branch = ? ORDER BY id DESC LIMIT 1", (repo_path, head_branch)
    )
    return _pull(row) if row else None


def open_of(db: Database, repo_path: str, head_branch: str) -> Pull | None:
    """The open pull request of a branch."""
    row = db.row(
        f"{_SELECT} WHERE repo_path = ? AND head_branch = ? AND state = '{PullState.OPEN}'",
        (repo_path, head_branch),
    )
    return _pull(row) if row else None


def listed(db: Database, *, include_over: bool = False, limit: int = 1000) -> list[Pull]:
    """The open ones, or all, newest first."""
    where = "1" if include_over else f"state = '{PullState.OPEN}'"
    return [_pull(row) for row in db.rows(f"{_SELECT} WHERE {where} ORDER BY id DESC LIMIT ?", (limit,))]


def due(db: Database, *, within: float, closed: bool = True) -> list[Pull]:
    """Those that are to be looked at within so many seconds, the longest overdue first.

    With `closed` also those that were closed at GitHub within the last weeks, where they may be opened again; no
    index helps to find them. Nothing is put off for much more than an hour: what seems to be was, before the clock
    was put back.
    """
    now = parse_iso(db.now())
    soon, never = iso(now + timedelta(seconds=within)), iso(now + _FARTHEST)
    is_due = "(next_at IS NULL OR next_at <= ? OR next_at > ?) ORDER BY next_at, id"
    rows = db.rows(f"{_SELECT} WHERE state = '{PullState.OPEN}' AND {is_due}", (soon, never))
    if closed:
        recently = f"state = '{PullState.CLOSED}' AND repository <> '' AND closed_at > ?"
        rows += db.rows(f"{_SELECT} WHERE {recently} AND {is_due}", (iso(now - REOPENED_WITHIN), soon, never))
    return [_pull(row) for row in rows]


def to_be_merged(db: Database) -> list[Pull]:
    """Open ones that are to be merged as soon as nothing hinders it."""
    rows = db.rows(f"{_SELECT} WHERE state = '{PullState.OPEN}' AND auto_merge <> '' ORDER BY id")
    return [_pull(row) for row in rows]


def count_open(db: Database, forge: str, repository: str) -> int:
    row = db.row(
        f"SELECT count(*) FROM pulls WHERE state = '{PullState.OPEN}' AND forge = ? AND repository = ?",
        (forge, repository),
    )
    assert row is not None
    return int(row[0])


def hurry(db: Database, forge: str, repository: str, number: int | None = None) -> int:
    """Look at once at those of a repository that wait for an answer, or at the one with the number; how many."""
    which, values = ("number = ?", [number]) if number is not None else ("failures > 0", [])
    cursor = db.execute(
        f"UPDATE pulls SET next_at = NULL, failures = 0 WHERE state <> '{PullState.MERGED}' AND forge = ?"
        f" AND repository = ? AND {which}",
        [forge, repository, *values],
    )
    return cursor.rowcount


def _set(db: Database, pull: Pull, **fields: Any) -> Pull:
    unknown = fields.keys() - _MUTABLE - {"updated_at"}
    assert not unknown, unknown
    names = ", ".join(f"{name} = ?" for name in fields)
    db.execute(f"UPDATE pulls SET {names} WHERE id = ?", [*fields.values(), pull.id])
    return dataclasses.replace(pull, **fields)


def _pull(row: sqlite3.Row) -> Pull:
    fields = dict(row)
    fields["draft"] = bool(fields["draft"])
    fields["unrelated"] = bool(fields["unrelated"])
    if fields["mergeable"] is not None:
        fields["mergeable"] = bool(fields["mergeable"])
    return Pull(**fields)
