"""Attempts at one task: which instances are of one group, and which of them a person has picked."""

from __future__ import annotations

from collections.abc import Sequence

from swarm_core.models import Instance
from swarm_core.store import instances
from swarm_core.store.database import Database


def members(db: Database, group: str) -> list[Instance]:
    """The attempts of a group in the order they were started, the ended and cleaned ones too."""
    rows = db.rows("SELECT id FROM instances WHERE attempt_group = ? ORDER BY agent_number, id", (group,))
    return [instances.get(db, row["id"]) for row in rows]


def picked(db: Database, instance_ids: Sequence[str]) -> str | None:
    """The one that was picked last; None when none was."""
    marks = ", ".join("?" for _ in instance_ids)
    row = db.row(
        f"SELECT instance_id FROM mcp_events WHERE name = 'attempt:picked' AND instance_id IN ({marks})"
        " ORDER BY id DESC LIMIT 1",
        list(instance_ids),
    )
    return str(row[0]) if row else None
