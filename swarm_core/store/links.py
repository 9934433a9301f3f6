"""Links that open the dashboard, kept only as hashes: the owner's are used once, those that share are reusable."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from dataclasses import dataclass

from swarm_core.store.database import Database

_COLUMNS = "id, may_write, name, reusable, created_at, expires_at, used_at"
_GOOD = "ended_at IS NULL AND expires_at > :now AND (reusable OR used_at IS NULL)"


@dataclass(frozen=True, slots=True)
class Link:
    """A link as it may be shown: its token is known only to whoever got it."""

    id: str
    may_write: bool
    name: str
    reusable: bool
    created_at: str
    expires_at: str
    used_at: str | None


def make(db: Database, *, may_write: bool, name: str, reusable: bool, expires_at: str) -> tuple[Link, str]:
    """A new link and its 256-bit token."""
    token = secrets.token_urlsafe(32)
    link = Link(f"l{secrets.token_hex(4)}", may_write, name, reusable, db.now(), expires_at, None)
    db.execute(
        "INSERT INTO links (id, hash, may_write, name, reusable, created_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (link.id, digest(token), may_write, name, reusable, link.created_at, expires_at),
    )
    return link, token


def use(db: Database, token: str) -> Link | None:
    """The link this token opens; one that is used once is used up by it. None when it opens nothing (any more)."""
    found = db.execute(
        f"UPDATE links SET used_at = :now WHERE hash = :hash AND {_GOOD} RETURNING {_COLUMNS}",
        {"hash": digest(token), "now": db.now()},
    ).fetchall()
    return _link(found[0]) if found else None


def listed(db: Database) -> list[Link]:
    """Those that still open the dashboard, oldest first."""
    rows = db.rows(f"SELECT {_COLUMNS} FROM links WHERE {_GOOD} ORDER BY created_at, id", {"now": db.now()})
    return [_link(row) for row in rows]


def end(db: Database, id_or_name: str) -> list[Link]:
    """End those with this id or name that still open the dashboard; returns which."""
    rows = db.execute(
        f"UPDATE links SET ended_at = :now WHERE (id = :which OR name = :which) AND {_GOOD} RETURNING {_COLUMNS}",
        {"which": id_or_name, "now": db.now()},
    ).fetchall()
    return [_link(row) for row in rows]


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _link(row: sqlite3.Row) -> Link:
    fields = dict(row)
    return Link(**fields | {"may_write": bool(fields["may_write"]), "reusable": bool(fields["reusable"])})
