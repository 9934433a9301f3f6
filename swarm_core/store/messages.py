"""The message ledger: a message is a row before anything else happens to it; its state is what is known of it."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any

from swarm_core.errors import NotFound
from swarm_core.models import Message, MessageKind, MessageState, iso, parse_iso
from swarm_core.store import events
from swarm_core.store.database import Database

_S = MessageState
UNDELIVERED = (_S.ACCEPTED, _S.HELD, _S.INJECTED)
# How a message went to a program that keeps no log of its own: nobody will ever know whether it was seen.
UNCONFIRMED = "paste, and this program confirms nothing"
OPEN = f"state IN ({', '.join(repr(str(s)) for s in UNDELIVERED)}) AND how <> '{UNCONFIRMED}'"


def accept(
    db: Database,
    instance_id: str,
    *,
    sender: str,
    body: str,
    kind: MessageKind = MessageKind.MESSAGE,
    document: str | None = None,
    expires_after: timedelta = timedelta(hours=72),
    message_id: str | None = None,
) -> Message:
    """Record a message. Whoever has written its document beforehand has chosen its id as well."""
    message_id = message_id or new_id()
    now = db.now()
    expires_at = iso(parse_iso(now) + expires_after)
    db.execute(
        "INSERT INTO messages (id, instance_id, sender, state, body, kind, document, expires_at, created_at,"
        " updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (message_id, instance_id, sender, str(_S.ACCEPTED), body, str(kind), document, expires_at, now, now),
    )
    events.add(
        db,
        "message:accepted",
        instance_id=instance_id,
        actor=sender,
        metadata={"message_id": message_id, "kind": str(kind), "characters": len(body)},
    )
    return get(db, message_id)


def new_id() -> str:
    return secrets.token_hex(6)


def get(db: Database, message_id: str) -> Message:
    row = db.row("SELECT * FROM messages WHERE id = ?", (message_id,))
    if row is None:
        raise NotFound(f"there is no message {message_id[:40]!r}", hint="`swarm show INSTANCE` lists its messages")
    return _message(row)


def of(db: Database, instance_id: str, *, limit: int = 50) -> list[Message]:
    """The last messages to an instance, oldest of them first."""
    rows = db.rows("SELECT * FROM messages WHERE instance_id = ? ORDER BY seq DESC LIMIT ?", (instance_id, limit))
    return [_message(r) for r in reversed(rows)]


def undelivered(db: Database, instance_id: str, *, limit: int = 50) -> list[Message]:
    """What the agent has not seen yet, in the order it was sent."""
    rows = db.rows(
        f"SELECT * FROM messages WHERE instance_id = ? AND {OPEN} ORDER BY seq LIMIT ?", (instance_id, limit)
    )
    return [_message(r) for r in rows]


def waiting_for(db: Database) -> dict[str, int]:
    """Instances that have not seen everything yet, and how many messages each has still to see."""
    rows = db.rows(f"SELECT instance_id, count(*) FROM messages WHERE {OPEN} GROUP BY instance_id")
    return {str(r[0]): int(r[1]) for r in rows}


def seen_among(db: Database, ids: Collection[str]) -> set[str]:
    """Those of the messages that their agent has seen."""
    rows = db.rows(
        f"SELECT id FROM messages WHERE id IN ({', '.join('?' for _ in ids)})"
        " AND state IN ('seen', 'acknowledged')",
        list(ids),
    )
    return {str(r[0]) for r in rows}


def unacknowledged(db: Database) -> list[str]:
    """Idle instances with messages that were seen, and not yet in a turn that is known to have ended."""
    rows = db.rows(
        "SELECT DISTINCT m.instance_id FROM messages m JOIN instances i ON i.id = m.instance_id"
        " WHERE m.state = 'seen' AND i.activity = 'idle'"
    )
    return [str(r[0]) for r in rows]


def overdue(db: Database) -> bool:
    """Whether there is anything to give up."""
    return db.row(f"SELECT 1 FROM messages WHERE {OPEN} AND expires_at <= ? LIMIT 1", (db.now(),)) is not None


def inject(db: Database, ids: Iterable[str], *, how: str) -> bool:
    """They are about to be handed over; written before it is done, so that a crash cannot make it happen twice.

    False, and nothing is changed, when somebody else is handing over one of them.
    """
    found = [get(db, one) for one in ids]
    if any(m.state not in (_S.ACCEPTED, _S.HELD) for m in found):
        return False
    for message in found:
        attempts = message.attempts + 1
        _set(db, message.id, _S.INJECTED, injected_at=db.now(), how=how, attempts=attempts, error="")
        _tell(db, message, "message:injected", how=how, attempt=attempts)
    return True


def see(db: Database, message_id: str, *, evidence: str) -> bool:
    """The agent has it: its own log or hook shows it. True when that is news."""
    message = _move(db, message_id, _S.SEEN, set(UNDELIVERED), seen_at=db.now(), error="")
    if message is not None:
        _tell(db, message, "message:seen", evidence=evidence)
    return message is not None


def acknowledge(db: Database, instance_id: str) -> int:
    """The turn in which the agent saw its messages has ended; returns how many there were."""
    rows = db.rows("SELECT id FROM messages WHERE instance_id = ? AND state = 'seen' ORDER BY seq", (instance_id,))
    for row in rows:
        message = _move(db, row["id"], _S.ACKNOWLEDGED, {_S.SEEN}, acknowledged_at=db.now())
        assert message is not None
        _tell(db, message, "message:acknowledged")
    return len(rows)


def hold(db: Database, instance_id: str, *, why: str) -> int:
    """Nothing is handed to an agent that shows a dialog; returns how many messages wait for that from now on."""
    rows = db.rows("SELECT id FROM messages WHERE instance_id = ? AND state = 'accepted'", (instance_id,))
    for row in rows:
        message = _move(db, row["id"], _S.HELD, {_S.ACCEPTED}, error=why)
        assert message is not None
        _tell(db, message, "message:held", why=why)
    return len(rows)


def release(db: Database, instance_id: str) -> None:
    db.execute(
        "UPDATE messages SET state = 'accepted', error = '', updated_at = ?"
        " WHERE instance_id = ? AND state = 'held'",
        (db.now(), instance_id),
    )


def again(db: Database, message_id: str, *, why: str, after: float, counts: bool = True) -> None:
    """It is certain that it did not arrive: it is sent again, after so many seconds.

    What `counts` is an attempt that a running program was given and did not take.
    """
    next_at = iso(parse_iso(db.now()) + timedelta(seconds=after))
    attempts = get(db, message_id).attempts - (not counts)
    known = {"next_at": next_at, "error": why, "injected_at": None, "attempts": attempts}
    message = _move(db, message_id, _S.ACCEPTED, {_S.INJECTED}, **known)
    if message is not None:
        _tell(db, message, "message:lost", why=why, attempts=message.attempts)


def fail(db: Database, message_id: str, *, why: str) -> None:
    message = _move(db, message_id, _S.FAILED, set(UNDELIVERED), error=why)
    if message is not None:
        _tell(db, message, "message:failed", why=why)


def withdraw(db: Database, message_id: str, *, why: str) -> bool:
    """Take back what is no longer true, if nobody has begun to hand it over. True when it was."""
    message = _move(db, message_id, _S.EXPIRED, {_S.ACCEPTED, _S.HELD}, error=why)
    if message is not None:
        _tell(db, message, "message:expired", why=why)
    return message is not None


def expire(db: Database) -> list[Message]:
    """Give up what was not seen in time."""
    rows = db.rows(
        f"SELECT id FROM messages WHERE {OPEN} AND expires_at IS NOT NULL AND expires_at <= ?", (db.now(),)
    )
    expired = []
    for row in rows:
        message = _move(db, row["id"], _S.EXPIRED, set(UNDELIVERED), error="it was not seen in time")
        if message is not None:
            _tell(db, message, "message:expired")
            expired.append(message)
    return expired


def _move(
    db: Database, message_id: str, to: MessageState, before: set[MessageState], **fields: Any
) -> Message | None:
    """The message as it was, if it was in one of the states; a state that has passed is left alone."""
    message = get(db, message_id)
    if message.state not in before:
        return None
    _set(db, message_id, to, **fields)
    return message


def _set(db: Database, message_id: str, to: MessageState, **fields: Any) -> None:
    fields = {"state": str(to), "updated_at": db.now(), **fields}
    names = ", ".join(f"{name} = ?" for name in fields)
    db.execute(f"UPDATE messages SET {names} WHERE id = ?", [*fields.values(), message_id])


def _tell(db: Database, message: Message, name: str, **more: Any) -> None:
    told = {"message_id": message.id, "sender": message.sender, **more}
    events.add(db, name, instance_id=message.instance_id, actor="courier", metadata=told)


def _message(row: sqlite3.Row) -> Message:
    fields = dict(row)
    del fields["seq"]
    return Message(**fields)
