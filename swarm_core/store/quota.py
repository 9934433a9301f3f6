"""How much of a forge's quota is left, shared by every process of one database."""

from __future__ import annotations

from dataclasses import dataclass

from swarm_core.forge import Quota
from swarm_core.store.database import Database

RESOURCES = ("core", "graphql")


@dataclass(frozen=True, slots=True)
class Share:
    """What is left to one account at a host for one kind of request, as it was told last.

    `spent` is what following used since `window_at`.
    """

    host: str
    account: str
    resource: str
    quota: int | None
    remaining: int | None
    reset_at: str | None
    blocked_until: str | None
    window_at: str
    spent: int
    seen_at: str


def listed(db: Database, host: str | None = None, account: str | None = None) -> list[Share]:
    rows = db.rows(
        "SELECT * FROM forge_quota WHERE (?1 IS NULL OR host = ?1) AND (?2 IS NULL OR account = ?2)"
        " ORDER BY host, account, resource",
        (host, account),
    )
    return [Share(**dict(row)) for row in rows]


def spend(
    db: Database,
    host: str,
    resource: str,
    quota: Quota | None,
    *,
    window_at: str,
    counts: bool,
    account: str = "",
) -> None:
    """A request was answered. What was spent before `window_at`, when this window began, is forgotten."""
    key = (host, account, resource)
    db.execute(
        "INSERT INTO forge_quota (host, account, resource, window_at, spent, seen_at) VALUES (?, ?, ?, ?, 0, ?)"
        " ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at",
        (*key, window_at, db.now()),
    )
    db.execute(
        "UPDATE forge_quota SET spent = 0, window_at = ?"
        " WHERE host = ? AND account = ? AND resource = ? AND window_at < ?",
        (window_at, *key, window_at),
    )
    if counts:
        db.execute("UPDATE forge_quota SET spent = spent + 1 WHERE host = ? AND account = ? AND resource = ?", key)
    if quota is not None:
        db.execute(
            "UPDATE forge_quota SET quota = ?, remaining = ?, reset_at = ?"
            " WHERE host = ? AND account = ? AND resource = ?",
            (quota.limit, quota.remaining, quota.reset_at, *key),
        )


def block(db: Database, host: str, until: str, *, account: str = "", resource: str | None = None) -> None:
    """Nothing is asked of the host before then, or nothing that `resource` counts. A longer block stays."""
    for name in RESOURCES if resource is None else (resource,):
        db.execute(
            "INSERT INTO forge_quota (host, account, resource, window_at, seen_at, blocked_until)"
            " VALUES (?, ?, ?, '', ?, ?) ON CONFLICT DO UPDATE"
            " SET blocked_until = max(coalesce(blocked_until, ''), excluded.blocked_until)",
            (host, account, name, db.now(), until),
        )
