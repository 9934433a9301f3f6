"""Notices: why a person was called, once for each reason while it lasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swarm_core.store import events
from swarm_core.store.database import Database

_ACTOR = "supervisor"


@dataclass(frozen=True, slots=True)
class Notice:
    id: int
    instance_id: str
    reason: str
    text: str
    raised_at: str
    sent_at: str | None
    over_at: str | None


def raise_(db: Database, instance_id: str, reason: str, text: str) -> bool:
    """Record that a person is needed; False when that is known already and not over."""
    cursor = db.execute(
        "INSERT INTO notices (instance_id, reason, text, raised_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (instance_id, reason, text, db.now()),
    )
    if not cursor.rowcount:
        return False
    told = {"notice": cursor.lastrowid, "reason": reason, "text": text}
    events.add(db, "notice:raised", instance_id=instance_id, actor=_ACTOR, metadata=told)
    return True


def over(db: Database, notice: Notice) -> None:
    """The reason is gone; the same one may be raised again from here on."""
    cursor = db.execute("UPDATE notices SET over_at = ? WHERE id = ? AND over_at IS NULL", (db.now(), notice.id))
    if cursor.rowcount:
        told = {"notice": notice.id, "reason": notice.reason}
        events.add(db, "notice:over", instance_id=notice.instance_id, actor=_ACTOR, metadata=told)


def lasting(db: Database) -> list[Notice]:
    """Those that are not over, oldest first."""
    return [Notice(*r) for r in db.rows("SELECT * FROM notices WHERE over_at IS NULL ORDER BY id")]


def unsent(db: Database) -> list[Notice]:
    """Those that are not over and not through with every channel, oldest first."""
    return [notice for notice in lasting(db) if notice.sent_at is None]


def settled(db: Database, notice: Notice) -> set[str]:
    """The channels that have carried a notice or were given up, in this process or an earlier one."""
    rows = db.rows(
        "SELECT json_extract(metadata, '$.channel') FROM mcp_events"
        " WHERE instance_id = ? AND name = 'notice:sent' AND json_extract(metadata, '$.notice') = ?",
        (notice.instance_id, notice.id),
    )
    return {str(r[0]) for r in rows}


def settle(
    db: Database, notice: Notice, channel: str, *, attempts: int, failure: tuple[str, str] | None = None
) -> None:
    """A channel has carried the notice, or was given up for a failure (code, message)."""
    code, message = failure or (None, None)
    told: dict[str, Any] = {"notice": notice.id, "reason": notice.reason, "channel": channel}
    events.add(
        db,
        "notice:sent",
        instance_id=notice.instance_id,
        actor=_ACTOR,
        error_code=code,
        error_message=message,
        metadata=told | {"attempts": attempts},
    )


def mark_sent(db: Database, notice: Notice) -> None:
    """No channel has anything left to do with it."""
    db.execute("UPDATE notices SET sent_at = ? WHERE id = ? AND sent_at IS NULL", (db.now(), notice.id))


def status_set_by(db: Database, instance_id: str) -> str | None:
    """Who made the last change of an instance's status."""
    row = db.row(
        "SELECT actor FROM mcp_events WHERE instance_id = ? AND name = 'instance:status' ORDER BY id DESC LIMIT 1",
        (instance_id,),
    )
    return str(row[0]) if row else None
