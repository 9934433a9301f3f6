"""The message ledger: a message is a row before anything else happens to it."""

from __future__ import annotations

import secrets
import sqlite3

from swarm_core.models import Message, MessageState
from swarm_core.store import events
from swarm_core.store.database import Database


def accept(db: Database, instance_id: str, *, sender: str, body: str) -> Message:
    message_id = secrets.token_hex(6)
    now = db.now()
    db.execute(
        "INSERT INTO messages (id, instance_id, sender, state, body, created_at, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (message_id, instance_id, sender, str(MessageState.ACCEPTED), body, now, now),
    )
    events.add(
        db,
        "message:accepted",
        instance_id=instance_id,
        actor=sender,
        metadata={"message_id": message_id, "characters": len(body)},
    )
    row = db.row("SELECT * FROM messages WHERE id = ?", (message_id,))
    assert row is not None
    return _message(row)


def of(db: Database, instance_id: str, *, limit: int = 50) -> list[Message]:
    """The last messages to an instance, oldest of them first."""
    rows = db.rows("SELECT * FROM messages WHERE instance_id = ? ORDER BY seq DESC LIMIT ?", (instance_id, limit))
    return [_message(r) for r in reversed(rows)]


def _message(row: sqlite3.Row) -> Message:
    fields = dict(row)
    del fields["seq"]
    return Message(**fields)
