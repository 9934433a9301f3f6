"""What a forge says of pull requests: their checks, reviews and comments, as they were at the last look."""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from swarm_core.forge import Check, Comment, Review
from swarm_core.store.database import Database

_CHUNK = 500
_TRUTHS = ("outdated", "trusted", "fault")
_IN_VAIN = "('expired', 'failed')"


def replace_checks(db: Database, pull_id: int, checks: Sequence[Check]) -> None:
    _replace(db, "pull_checks", pull_id, checks)


def replace_reviews(db: Database, pull_id: int, reviews: Sequence[Review]) -> None:
    _replace(db, "pull_reviews", pull_id, reviews)


def replace_comments(db: Database, pull_id: int, comments: Sequence[Comment]) -> None:
    _replace(db, "pull_comments", pull_id, comments)


def checks_of(db: Database, pull_ids: Sequence[int]) -> dict[int, list[Check]]:
    """Of many pull requests at once, as `checks` has them; so are the next two."""
    return {
        key: [Check(**_fields(row)) for row in rows]
        for key, rows in _many(db, "pull_checks", pull_ids, "name, id")
    }


def reviews_of(db: Database, pull_ids: Sequence[int]) -> dict[int, list[Review]]:
    return {
        key: [Review(**_fields(row)) for row in rows]
        for key, rows in _many(db, "pull_reviews", pull_ids, "at, id")
    }


def comments_of(db: Database, pull_ids: Sequence[int]) -> dict[int, list[Comment]]:
    return {
        key: [Comment(**_fields(row)) for row in rows]
        for key, rows in _many(db, "pull_comments", pull_ids, "at, id")
    }


def told(db: Database, pull_id: int) -> dict[str, str | None]:
    """What the agent was told of, and in which message; None is what is known and not told, or told in vain."""
    rows = db.rows(
        f"SELECT n.key, CASE WHEN m.state IN {_IN_VAIN} THEN NULL ELSE m.id END AS message_id"
        " FROM pull_news n LEFT JOIN messages m ON m.id = n.message_id WHERE n.pull_id = ?",
        (pull_id,),
    )
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
    """News that nobody has seen and that is no longer true."""
    for key in keys:
        db.execute(
            "DELETE FROM pull_news WHERE pull_id = ? AND key = ? AND (message_id IS NULL"
            f" OR message_id IN (SELECT id FROM messages WHERE state IN {_IN_VAIN}))",
            (pull_id, key),
        )


def _replace(db: Database, table: str, pull_id: int, records: Sequence[Any]) -> None:
    """What is gone at the forge goes here too."""
    db.execute(f"DELETE FROM {table} WHERE pull_id = ?", (pull_id,))
    for record in records:
        fields = {"pull_id": pull_id, **dataclasses.asdict(record)}
        names = ", ".join(f'"{name}"' for name in fields)
        marks = ", ".join("?" for _ in fields)
        db.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", list(fields.values()))


def _many(
    db: Database, table: str, pull_ids: Sequence[int], order: str
) -> Iterator[tuple[int, list[sqlite3.Row]]]:
    """The rows of each pull request that has some."""
    for some in (pull_ids[start : start + _CHUNK] for start in range(0, len(pull_ids), _CHUNK)):
        marks = ", ".join("?" for _ in some)
        rows = db.rows(f"SELECT * FROM {table} WHERE pull_id IN ({marks}) ORDER BY pull_id, {order}", some)
        for key, found in itertools.groupby(rows, key=lambda row: int(row["pull_id"])):
            yield key, list(found)


def _fields(row: sqlite3.Row) -> dict[str, Any]:
    fields = dict(row)
    del fields["pull_id"]
    return fields | {name: bool(fields[name]) for name in _TRUTHS if name in fields}
