"""Who was started from whom."""

from __future__ import annotations

from swarm_core.models import Relationship
from swarm_core.store.database import Database


def add(
    db: Database, parent_id: str, child_id: str, type_: str, *, head_commit: str | None, round_: int = 1
) -> None:
    db.execute(
        "INSERT INTO relationships (parent_id, child_id, type, round, head_commit, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (parent_id, child_id, type_, round_, head_commit, db.now()),
    )


def of(db: Database, instance_id: str) -> list[Relationship]:
    rows = db.rows(
        "SELECT * FROM relationships WHERE parent_id = ? OR child_id = ? ORDER BY id",
        (instance_id, instance_id),
    )
    return [Relationship(**dict(r)) for r in rows]
