"""Issues of repositories at a forge as they were when they were last seen; the forge has them, this is a copy."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swarm_core.forge import Issue
from swarm_core.store.database import Database

Place = tuple[str, str, str]

_OPEN, _CLOSED = "open", "closed"
_HERE = "host = ? AND owner = ? AND name = ?"
_NAMES = ("number", "title", "body", "url", "state", "labels", "assignees", "updated_at")
_SELECT = f"SELECT {', '.join(_NAMES)}, synced_at FROM forge_issues WHERE {_HERE}"
_INSERT = (
    f"INSERT OR REPLACE INTO forge_issues (host, owner, name, {', '.join(_NAMES)}, synced_at)"
    f" VALUES ({', '.join('?' for _ in range(len(_NAMES) + 4))})"
)


@dataclass(frozen=True, slots=True)
class Copy:
    """An issue as it was at `synced_at`."""

    issue: Issue
    synced_at: str


def put(db: Database, place: Place, issues: Iterable[Issue]) -> None:
    """Keep what the forge has said of them now."""
    for issue in issues:
        said = {**dataclasses.asdict(issue), "labels": json.dumps(issue.labels)}
        said["assignees"] = json.dumps(issue.assignees)
        db.execute(_INSERT, (*_key(place), *(said[name] for name in _NAMES), db.now()))


def forget(db: Database, place: Place, number: int) -> None:
    """The forge has no such issue, or does not show it any more."""
    db.execute(f"DELETE FROM forge_issues WHERE {_HERE} AND number = ?", (*_key(place), number))


def close_others(db: Database, place: Place, listed: Sequence[Issue], *, complete: bool) -> None:
    """What we took for open and the forge's list of open ones has not.

    The list is sorted by change: one that changed after the list's last would be in it, if it were open. All
    others are closed only by a list that is `complete`.
    """
    since = "" if complete or not listed else listed[-1].updated_at
    marks = ", ".join("?" for _ in listed)
    db.execute(
        f"UPDATE forge_issues SET state = '{_CLOSED}', synced_at = ? WHERE {_HERE} AND state = '{_OPEN}'"
        f" AND (updated_at > ? OR ?) AND number NOT IN ({marks})",
        (db.now(), *_key(place), since, complete, *(issue.number for issue in listed)),
    )


def find(db: Database, place: Place, number: int) -> Copy | None:
    row = db.row(f"{_SELECT} AND number = ?", (*_key(place), number))
    return _copy(row) if row else None


def open_ones(db: Database, place: Place, *, limit: int) -> list[Copy]:
    """Those that were open when they were last seen, most recently changed first."""
    rows = db.rows(
        f"{_SELECT} AND state = '{_OPEN}' ORDER BY updated_at DESC, number DESC LIMIT ?", (*_key(place), limit)
    )
    return [_copy(row) for row in rows]


def _key(place: Place) -> tuple[str, str, str]:
    """Owner and name differ in nothing when they differ only in case."""
    host, owner, name = place
    return host, owner.lower(), name.lower()


def _copy(row: sqlite3.Row) -> Copy:
    fields = dict(row)
    synced_at = fields.pop("synced_at")
    for name in ("labels", "assignees"):
        fields[name] = tuple(json.loads(fields[name]))
    return Copy(Issue(**fields), synced_at)
