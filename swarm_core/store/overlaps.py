"""Overlaps: which two instances change the same places, and how bad each of them was told it is."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from swarm_core.models import Overlap
from swarm_core.store.database import Database

_SELECT = "SELECT one, other, files, conflicts, seen_at, told_at FROM overlaps"


def listed(db: Database) -> list[Overlap]:
    return [_overlap(row) for row in db.rows(f"{_SELECT} ORDER BY one, other")]


def of(db: Database, instance_id: str) -> list[Overlap]:
    """Those of one instance, whichever of the two it is."""
    rows = db.rows(f"{_SELECT} WHERE one = ? OR other = ? ORDER BY one, other", (instance_id, instance_id))
    return [_overlap(row) for row in rows]


def find(db: Database, one: str, other: str) -> Overlap | None:
    row = db.row(f"{_SELECT} WHERE one = ? AND other = ?", (one, other))
    return _overlap(row) if row else None


def put(db: Database, overlap: Overlap) -> None:
    """Store what is true of the two now; whom was told of what stays."""
    told = _told(db, overlap.one, overlap.other)
    db.execute(
        "INSERT INTO overlaps (one, other, files, conflicts, seen_at, told_at) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET files = excluded.files, conflicts = excluded.conflicts,"
        " seen_at = excluded.seen_at",
        (
            overlap.one,
            overlap.other,
            json.dumps(overlap.files),
            json.dumps({"files": overlap.conflicts, "told": told}),
            overlap.seen_at,
            overlap.told_at,
        ),
    )


def remove(db: Database, overlap: Overlap) -> None:
    db.execute("DELETE FROM overlaps WHERE one = ? AND other = ?", (overlap.one, overlap.other))


def told(db: Database) -> dict[tuple[str, str], dict[str, str]]:
    """By pair, who of the two was told, and of what."""
    rows = db.rows("SELECT one, other, conflicts FROM overlaps WHERE told_at IS NOT NULL")
    return {(str(row["one"]), str(row["other"])): json.loads(row["conflicts"])["told"] for row in rows}


def note_told(db: Database, overlap: Overlap, whom: Mapping[str, str]) -> None:
    """These of the two know of it now; what the other knows stays."""
    known = _told(db, overlap.one, overlap.other) | dict(whom)
    db.execute(
        "UPDATE overlaps SET conflicts = ?, told_at = ? WHERE one = ? AND other = ?",
        (json.dumps({"files": overlap.conflicts, "told": known}), db.now(), overlap.one, overlap.other),
    )


def _told(db: Database, one: str, other: str) -> dict[str, str]:
    row = db.row("SELECT conflicts FROM overlaps WHERE one = ? AND other = ?", (one, other))
    known: dict[str, str] = json.loads(row["conflicts"])["told"] if row else {}
    return known


def _overlap(row: sqlite3.Row) -> Overlap:
    files, conflicts = json.loads(row["files"]), json.loads(row["conflicts"])["files"]
    return Overlap(row["one"], row["other"], files, conflicts, row["seen_at"], row["told_at"])
