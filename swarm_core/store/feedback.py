"""What was said to instances about their work."""

from __future__ import annotations

import sqlite3

from swarm_core.models import Feedback, MessageState
from swarm_core.store.database import Database

_DELIVERED = frozenset({MessageState.SEEN, MessageState.ACKNOWLEDGED})
_NAMES = (
    "id, sender, to_instance, relationship_id, feedback_type, priority, body, file_path, message_id,"
    " reviewed_commit, head_commit, created_at"
)
_SELECT = (
    f"SELECT {', '.join(f'f.{n.strip()}' for n in _NAMES.split(','))}, m.state"
    " FROM feedback f JOIN messages m ON m.id = f.message_id"
)


def insert(db: Database, said: Feedback) -> Feedback:
    """Store it beside its message and return it as it is read from now on."""
    values = (said.id, said.sender, said.to_instance, said.relationship_id, said.feedback_type, said.priority)
    more = (said.body, said.file_path, said.message_id, said.reviewed_commit, said.head_commit, said.created_at)
    db.execute(f"INSERT INTO feedback ({_NAMES}) VALUES ({', '.join('?' * 12)})", values + more)
    row = db.row(f"{_SELECT} WHERE f.id = ?", (said.id,))
    assert row is not None
    return _feedback(row)


def of(db: Database, instance_id: str) -> list[Feedback]:
    """All feedback to an instance, oldest first."""
    return [_feedback(r) for r in db.rows(f"{_SELECT} WHERE f.to_instance = ? ORDER BY f.seq", (instance_id,))]


def _feedback(row: sqlite3.Row) -> Feedback:
    fields = dict(row)
    status = "delivered" if fields.pop("state") in _DELIVERED else "queued"
    return Feedback(**fields, delivery_status=status)
