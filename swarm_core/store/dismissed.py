"""What a person has seen in the inbox and wants to see no more, until it is needed anew."""

from __future__ import annotations

from swarm_core.store.database import Database


def add(db: Database, instance_id: str, key: str, *, by: str) -> None:
    """Twice is once, with the later time."""
    db.execute(
        "INSERT INTO dismissed (instance_id, key, by, at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET by = excluded.by, at = excluded.at",
        (instance_id, key, by, db.now()),
    )


def listed(db: Database) -> dict[tuple[str, str], str]:
    """(instance, key) -> when it was dismissed; a need that began later is a new one."""
    return {(r["instance_id"], r["key"]): r["at"] for r in db.rows("SELECT instance_id, key, at FROM dismissed")}
