"""Verdicts on commits: what reviewers and people decided, in the order in which they did."""

from __future__ import annotations

from collections.abc import Sequence

from swarm_core.models import CommitVerdict
from swarm_core.store.database import Database

_CHUNK = 500
_NAMES = 'v.instance_id, v."commit", v.verdict, v.by, v.at'


def add(db: Database, instance_id: str, commit: str, verdict: str, *, by: str) -> None:
    db.execute(
        'INSERT INTO verdicts (instance_id, "commit", verdict, by, at) VALUES (?, ?, ?, ?, ?)',
        (instance_id, commit, verdict, by, db.now()),
    )


def refused_since(db: Database, instance_id: str, moment: str) -> bool:
    """Whether anybody has asked for changes of the work since then."""
    asked = "SELECT 1 FROM verdicts WHERE instance_id = ? AND verdict = 'needs_work' AND at >= ? LIMIT 1"
    return db.row(asked, (instance_id, moment)) is not None


def refused_besides(db: Database, repo_path: str, commit: str) -> bool:
    """Whether anybody has asked for changes of another commit of the repository."""
    asked = (
        "SELECT 1 FROM verdicts v JOIN instances i ON i.id = v.instance_id"
        " WHERE v.verdict = 'needs_work' AND v.\"commit\" <> ? AND i.repo_path = ? LIMIT 1"
    )
    return db.row(asked, (commit, repo_path)) is not None


def of_pulls(db: Database, pull_ids: Sequence[int]) -> dict[int, list[CommitVerdict]]:
    """The verdicts on the work of each pull request and on every commit it would bring, oldest first."""
    found: dict[int, list[CommitVerdict]] = {}
    for start in range(0, len(pull_ids), _CHUNK):
        some = list(pull_ids[start : start + _CHUNK])
        marks = ", ".join("?" for _ in some)
        _collect(db, found, f"p.id IN ({marks})", some)
    return found


def of_open_pulls(db: Database) -> dict[int, list[CommitVerdict]]:
    found: dict[int, list[CommitVerdict]] = {}
    _collect(db, found, "p.state = 'open'", [])
    return found


def _collect(db: Database, found: dict[int, list[CommitVerdict]], which: str, values: list[int]) -> None:
    # Joins that each have an index: a commit may have been judged as the work of another instance.
    rows = db.rows(
        f"SELECT p.id AS pull_id, v.id AS nth, {_NAMES} FROM pulls p JOIN verdicts v"
        f" ON v.instance_id = p.instance_id WHERE {which}"
        f" UNION SELECT p.id, v.id, {_NAMES} FROM pulls p JOIN verdicts v"
        f' ON v."commit" = p.head_commit WHERE {which}'
        f" UNION SELECT p.id, v.id, {_NAMES} FROM pulls p JOIN pull_commits c ON c.pull_id = p.id"
        f' JOIN verdicts v ON v."commit" = c."commit" WHERE {which} ORDER BY 1, 2',
        values * 3,
    )
    for row in rows:
        found.setdefault(int(row[0]), []).append(CommitVerdict(*tuple(row)[2:]))
