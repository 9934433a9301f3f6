"""Tokens of instances, kept only as hashes and bound to one start (epoch) of one instance."""

from __future__ import annotations

import hashlib
import secrets

from swarm_core.store.database import Database


def issue(db: Database, instance_id: str, epoch: int) -> str:
    """A new 256-bit token for this start; every earlier token of the instance stops working."""
    revoke(db, instance_id)
    token = secrets.token_urlsafe(32)
    db.execute(
        "INSERT INTO tokens (hash, instance_id, epoch, created_at) VALUES (?, ?, ?, ?)",
        (_hash(token), instance_id, epoch, db.now()),
    )
    return token


def revoke(db: Database, instance_id: str) -> None:
    db.execute(
        "UPDATE tokens SET revoked_at = ? WHERE instance_id = ? AND revoked_at IS NULL",
        (db.now(), instance_id),
    )


def owner(db: Database, token: str) -> str | None:
    """The instance a token speaks for, or None when it is unknown, revoked or of an older start."""
    row = db.row(
        "SELECT t.instance_id FROM tokens t JOIN instances i ON i.id = t.instance_id"
        " WHERE t.hash = ? AND t.revoked_at IS NULL AND t.epoch = i.epoch",
        (_hash(token),),
    )
    return str(row[0]) if row else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
