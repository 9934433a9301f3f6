"""Where uncommitted work was stored, newest last by id and never by clock."""

from __future__ import annotations

import json
import sqlite3

from swarm_core.models import Preserved
from swarm_core.store import events
from swarm_core.store.database import Database


def add(
    db: Database, instance_id: str, *, repo_path: str, ref: str, commit: str, files: int, size: int, why: str
) -> None:
    """Record a ref; recording the same ref again is no change."""
    cursor = db.execute(
        'INSERT OR IGNORE INTO preserved (instance_id, repo_path, ref, "commit", files, bytes, why, created_at)'
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (instance_id, repo_path, ref, commit, files, size, why, db.now()),
    )
    if cursor.rowcount:
        events.add(
            db,
            "work:preserved",
            instance_id=instance_id,
            actor="supervisor",
            metadata={"ref": ref, "commit": commit, "files": files, "bytes": size, "why": why},
        )


def mark_restored(db: Database, instance_id: str) -> None:
    """Nothing of the instance waits to be brought back any more; every ref can still be named."""
    db.execute(
        "UPDATE preserved SET restored_at = ? WHERE instance_id = ? AND restored_at IS NULL",
        (db.now(), instance_id),
    )


def of(db: Database, instance_id: str) -> list[Preserved]:
    rows = db.rows("SELECT * FROM preserved WHERE instance_id = ? ORDER BY id", (instance_id,))
    return [read(r) for r in rows]


def unknown(db: Database, refs: list[str]) -> list[str]:
    """Those of the refs that are not recorded."""
    known = "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT ref FROM preserved)"
    return [str(row[0]) for row in db.rows(known, (json.dumps(refs),))]


def read(row: sqlite3.Row) -> Preserved:
    return Preserved(**dict(row))
