"""What a forge says of pull requests: their checks, reviews and comments, as they were at the last look."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from swarm_core.forge import Check, Comment, Review
from swarm_core.store.database import Database

_TRUTHS = ("outdated", "trusted")


def replace_checks(db: Database, pull_id: int, checks: Sequence[Check]) -> None:
    _replace(db, "pull_checks", pull_id, checks)


def replace_reviews(db: Database, pull_id: int, reviews: Sequence[Review]) -> None:
    _replace(db, "pull_reviews", pull_id, reviews)


def replace_comments(db: Database, pull_id: int, comments: Sequence[Comment]) -> None:
    _replace(db, "pull_comments", pull_id, comments)


def checks(db: Database, pull_id: int) -> list[Check]:
    return [Check(**_fields(row)) for row in _rows(db, "pull_checks", pull_id, "name, id")]


def reviews(db: Database, pull_id: int) -> list[Review]:
    """Oldest first."""
    return [Review(**_fields(row)) for row in _rows(db, "pull_reviews", pull_id, "at, id")]


def comments(db: Database, pull_id: int) -> list[Comment]:
    """Oldest first."""
    return [Comment(**_fields(row)) for row in _rows(db, "pull_comments", pull_id, "at, id")]


def told(db: Database, pull_id: int) -> dict[str, str | None]:
    """What the agent was told of, and in which message; None is what is true and was not told yet."""
    rows = db.rows("SELECT key, message_id FROM pull_news WHERE pull_id = ?", (pull_id,))
    return {str(row["key"]): row["message_id"] for row in rows}


def since(db: Database, pull_id: int) -> dict[str, str]:
    """When each piece of news was first known."""
    rows = db.rows("SELECT key, since FROM pull_news WHERE pull_id = ?", (pull_id,))
    return {str(row["key"]): str(row["since"]) for row in rows}


def note(db: Database, pull_id: int, keys: Iterable[str], *, message_id: str | None) -> None:
    """The news is known, and told in that message if there is one."""
    for key in keys:
        db.execute(
            "INSERT INTO pull_news (pull_id, key, message_id, since) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET message_id = coalesce(excluded.message_id, message_id)",
            (pull_id, key, message_id, db.now()),
        )


def forget(db: Database, pull_id: int, keys: Iterable[str]) -> None:
    """News that was never told and is no longer true."""
    for key in keys:
        db.execute("DELETE FROM pull_news WHERE pull_id = ? AND key = ? AND message_id IS NULL", (pull_id, key))


def _replace(db: Database, table: str, pull_id: int, records: Sequence[Any]) -> None:
    """What is gone at the forge goes here too."""
    db.execute(f"DELETE FROM {table} WHERE pull_id = ?", (pull_id,))
    for record in records:
        fields = {"pull_id": pull_id, **dataclasses.asdict(record)}
        names = ", ".join(f'"{name}"' for name in fields)
        marks = ", ".join("?" for _ in fields)
        db.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", list(fields.values()))


def _rows(db: Database, table: str, pull_id: int, order: str) -> list[sqlite3.Row]:
    return db.rows(f"SELECT * FROM {table} WHERE pull_id = ? ORDER BY {order}", (pull_id,))


def _fields(row: sqlite3.Row) -> dict[str, Any]:
    fields = dict(row)
    del fields["pull_id"]
    return fields | {name: bool(fields[name]) for name in _TRUTHS if name in fields}
