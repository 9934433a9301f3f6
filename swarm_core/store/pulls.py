"""Pull requests: numbers counted per forge and repository, at most one open for a branch."""

from __future__ import annotations

import dataclasses

from swarm_core.models import Pull, PullState
from swarm_core.store.database import Database

_FIELDS = tuple(f.name for f in dataclasses.fields(Pull))
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM pulls"


def next_number(db: Database, forge: str, repo_path: str) -> int:
    """The number after the highest; call inside the transaction that inserts it."""
    row = db.row(
        "SELECT coalesce(max(number), 0) + 1 FROM pulls WHERE forge = ? AND repo_path = ?", (forge, repo_path)
    )
    assert row is not None
    return int(row[0])


def insert(db: Database, pull: Pull) -> Pull:
    """Store it; its id is given out here."""
    names = _FIELDS[1:]
    values = [getattr(pull, name) for name in names]
    marks = ", ".join("?" for _ in names)
    cursor = db.execute(f"INSERT INTO pulls ({', '.join(names)}) VALUES ({marks})", values)
    assert cursor.lastrowid is not None
    return dataclasses.replace(pull, id=cursor.lastrowid)


def set_head(db: Database, pull: Pull, head_commit: str) -> Pull:
    """Its branch has moved on to another commit."""
    now = db.now()
    db.execute("UPDATE pulls SET head_commit = ?, updated_at = ? WHERE id = ?", (head_commit, now, pull.id))
    return dataclasses.replace(pull, head_commit=head_commit, updated_at=now)


def set_state(db: Database, pull: Pull, state: PullState) -> Pull:
    now = db.now()
    db.execute("UPDATE pulls SET state = ?, updated_at = ? WHERE id = ?", (str(state), now, pull.id))
    return dataclasses.replace(pull, state=str(state), updated_at=now)


def newest_of(db: Database, repo_path: str, head_branch: str) -> Pull | None:
    """The last pull request of a branch, in whatever state."""
    row = db.row(
        f"{_SELECT} WHERE repo_path = ? AND head_branch = ? ORDER BY id DESC LIMIT 1", (repo_path, head_branch)
    )
    return Pull(*row) if row else None


def open_of(db: Database, repo_path: str, head_branch: str) -> Pull | None:
    """The open pull request of a branch."""
    row = db.row(
        f"{_SELECT} WHERE repo_path = ? AND head_branch = ? AND state = '{PullState.OPEN}'",
        (repo_path, head_branch),
    )
    return Pull(*row) if row else None
