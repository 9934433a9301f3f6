"""Visits to the dashboard: browsers that came in with a link. As rows they outlast a restart of the dashboard."""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass
from datetime import timedelta

from swarm_core.models import iso, parse_iso
from swarm_core.store.database import Database
from swarm_core.store.links import Link, digest

UNSEEN = timedelta(days=30)
_COLUMNS = "id, link_id, port, may_write, name, created_at, seen_at, expires_at"
_LASTS = "ended_at IS NULL AND seen_at > :unseen AND (expires_at IS NULL OR expires_at > :now)"


@dataclass(frozen=True, slots=True)
class Visit:
    """`expires_at` is when a shared visit ends in any case; others end when nobody was seen for UNSEEN."""

    id: str
    link_id: str
    port: int
    may_write: bool
    name: str
    created_at: str
    seen_at: str
    expires_at: str | None


def begin(db: Database, link: Link, *, port: int) -> tuple[Visit, str]:
    """A new visit and its secret, which is good at this port alone."""
    secret, now = secrets.token_urlsafe(32), db.now()
    until = link.expires_at if link.reusable else None
    visit = Visit(f"v{secrets.token_hex(4)}", link.id, port, link.may_write, link.name, now, now, until)
    db.execute(
        "INSERT INTO visits (id, hash, link_id, port, may_write, name, created_at, seen_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (visit.id, digest(secret), link.id, port, link.may_write, link.name, now, now, until),
    )
    return visit, secret


def find(db: Database, secret: str, *, port: int) -> Visit | None:
    row = db.row(
        f"SELECT {_COLUMNS} FROM visits WHERE hash = :hash AND port = :port AND {_LASTS}",
        {"hash": digest(secret), "port": port} | _times(db),
    )
    return _visit(row) if row else None


def seen(db: Database, visit_id: str) -> None:
    db.execute("UPDATE visits SET seen_at = ? WHERE id = ?", (db.now(), visit_id))


def listed(db: Database) -> list[Visit]:
    """Those that last, oldest first."""
    rows = db.rows(f"SELECT {_COLUMNS} FROM visits WHERE {_LASTS} ORDER BY created_at, id", _times(db))
    return [_visit(row) for row in rows]


def end(db: Database, id_or_name: str) -> list[Visit]:
    """End those with this id or name, or that came in with the link of this id; returns which."""
    rows = db.execute(
        "UPDATE visits SET ended_at = :now WHERE (id = :which OR name = :which OR link_id = :which)"
        f" AND {_LASTS} RETURNING {_COLUMNS}",
        {"which": id_or_name} | _times(db),
    ).fetchall()
    return [_visit(row) for row in rows]


def _times(db: Database) -> dict[str, str]:
    now = db.now()
    return {"now": now, "unseen": iso(parse_iso(now) - UNSEEN)}


def _visit(row: sqlite3.Row) -> Visit:
    fields = dict(row)
    return Visit(**fields | {"may_write": bool(fields["may_write"])})
