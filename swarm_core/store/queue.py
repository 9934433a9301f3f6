"""The merge queue: which pull requests wait to be merged, in the order they were put there."""

from __future__ import annotations

import dataclasses

from swarm_core.errors import Conflict
from swarm_core.models import Pull, Queued
from swarm_core.store.database import Database

WAITING, MERGING, MERGED, LEFT = "waiting", "merging", "merged", "left"
_SELECT = f"SELECT {', '.join(f.name for f in dataclasses.fields(Queued))} FROM merge_queue"
_LATEST = 100
_OPEN = f"state IN ('{WAITING}', '{MERGING}')"


def add(db: Database, pull: Pull, *, method: str, asked_by: str) -> Queued:
    if (found := open_of(db, pull.id)) is not None:
        raise Conflict(
            f"pull request #{pull.number} is in the queue already: {found.state}",
            hint="`swarm pr queue` shows where",
        )
    now = db.now()
    cursor = db.execute(
        "INSERT INTO merge_queue (pull_id, instance_id, repo_path, base_branch, head_commit, method, state,"
        " asked_by, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(pull.id, pull.instance_id, pull.repo_path, pull.base_branch, pull.head_commit),
            *(method, WAITING, asked_by, now, now),
        ),
    )
    return _get(db, int(cursor.lastrowid or 0))


def open_of(db: Database, pull_id: int) -> Queued | None:
    row = db.row(f"{_SELECT} WHERE pull_id = ? AND {_OPEN}", (pull_id,))
    return Queued(*row) if row else None


def waiting(db: Database) -> list[Queued]:
    """What is to be merged, the first to come first."""
    return [Queued(*row) for row in db.rows(f"{_SELECT} WHERE {_OPEN} ORDER BY id")]


def newest(db: Database, *, limit: int) -> list[Queued]:
    """What is over, newest first, among those that were put there last."""
    rows = db.rows(f"{_SELECT} WHERE NOT ({_OPEN}) ORDER BY id DESC LIMIT ?", (max(limit, _LATEST),))
    found = sorted((Queued(*row) for row in rows), key=lambda e: (e.updated_at, e.id), reverse=True)
    return found[:limit]


def change(db: Database, entry: Queued, *, state: str, detail: str = "", head_commit: str | None = None) -> Queued:
    """The entry in its new state; one that is over stays as it is."""
    db.execute(
        f"UPDATE merge_queue SET state = ?, detail = ?, head_commit = ?, updated_at = ? WHERE id = ? AND {_OPEN}",
        (state, detail, head_commit or entry.head_commit, db.now(), entry.id),
    )
    return _get(db, entry.id)


def _get(db: Database, entry_id: int) -> Queued:
    row = db.row(f"{_SELECT} WHERE id = ?", (entry_id,))
    assert row is not None
    return Queued(*row)
