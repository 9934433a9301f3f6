"""How much of a forge's quota is left, shared by every process of one database."""

from __future__ import annotations

from dataclasses import dataclass

from swarm_core.forge import Quota
from swarm_core.store.database import Database


@dataclass(frozen=True, slots=True)
class Share:
    """What is left for one host and kind of request, as it was told last, and what we spent since `window_at`."""

    host: str
    resource: str
    quota: int | None
    remaining: int | None
    reset_at: str | None
    blocked_until: str | None
    window_at: str
    spent: int
    seen_at: str


def listed(db: Database, host: str | None = None) -> list[Share]:
    where, values = ("host = ?", [host]) if host is not None else ("1", [])
    rows = db.rows(f"SELECT * FROM forge_quota WHERE {where} ORDER BY host, resource", values)
    return [Share(**dict(row)) for row in rows]


def spend(db: Database, host: str, resource: str, quota: Quota | None, *, window_at: str, counts: bool) -> None:
    """A request was answered. What was spent before `window_at` is forgotten."""
    now = db.now()
    db.execute(
        "INSERT INTO forge_quota (host, resource, window_at, spent, seen_at) VALUES (?, ?, ?, 0, ?)"
        " ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at",
        (host, resource, now, now),
    )
    db.execute(
        "UPDATE forge_quota SET spent = 0, window_at = ? WHERE host = ? AND resource = ? AND window_at < ?",
        (now, host, resource, window_at),
    )
    if counts:
        db.execute("UPDATE forge_quota SET spent = spent + 1 WHERE host = ? AND resource = ?", (host, resource))
    if quota is not None:
        db.execute(
            "UPDATE forge_quota SET quota = ?, remaining = ?, reset_at = ? WHERE host = ? AND resource = ?",
            (quota.limit, quota.remaining, quota.reset_at, host, resource),
        )


def block(db: Database, host: str, until: str) -> None:
    """Nothing is asked of the host before then."""
    db.execute(
        "INSERT INTO forge_quota (host, resource, window_at, seen_at, blocked_until)"
        " VALUES (?, 'core', ?, ?, ?) ON CONFLICT DO UPDATE SET blocked_until = excluded.blocked_until",
        (host, db.now(), db.now(), until),
    )
