"""The machines instances live on, and whether they answered last time."""

from __future__ import annotations

from swarm_core.store import events
from swarm_core.store.database import Database


def seen(db: Database, name: str) -> None:
    """Note that a host answered; the first time makes its row, and after a loss it is news."""
    before = state(db, name)
    db.execute(
        "INSERT INTO hosts (name, state, seen_at) VALUES (?, 'up', ?)"
        " ON CONFLICT(name) DO UPDATE SET state = 'up', seen_at = excluded.seen_at",
        (name, db.now()),
    )
    if before == "lost":
        events.add(db, "host:back", actor="supervisor", metadata={"host": name})


def lost(db: Database, name: str, why: str) -> None:
    """Note that a host did not answer; only the first time is news."""
    if state(db, name) == "up":
        db.execute("UPDATE hosts SET state = 'lost' WHERE name = ?", (name,))
        events.add(db, "host:lost", actor="supervisor", metadata={"host": name, "why": why})


def state(db: Database, name: str) -> str | None:
    row = db.row("SELECT state FROM hosts WHERE name = ?", (name,))
    return str(row[0]) if row else None
