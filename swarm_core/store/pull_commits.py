"""The commits that each open pull request would bring below its head, with their parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swarm_core.store.database import Database

_CHUNK = 500


def replace(db: Database, pull_id: int, commits: Mapping[str, Sequence[str]]) -> None:
    drop(db, pull_id)
    for commit, parents in commits.items():
        db.execute(
            'INSERT INTO pull_commits (pull_id, "commit", parents) VALUES (?, ?, ?)',
            (pull_id, commit, " ".join(parents)),
        )


def drop(db: Database, pull_id: int) -> None:
    db.execute("DELETE FROM pull_commits WHERE pull_id = ?", (pull_id,))


def of_pulls(db: Database, pull_ids: Sequence[int]) -> dict[int, dict[str, list[str]]]:
    """By pull request the parents of each commit."""
    found: dict[int, dict[str, list[str]]] = {}
    for start in range(0, len(pull_ids), _CHUNK):
        some = list(pull_ids[start : start + _CHUNK])
        marks = ", ".join("?" for _ in some)
        rows = db.rows(f'SELECT pull_id, "commit", parents FROM pull_commits WHERE pull_id IN ({marks})', some)
        for pull_id, commit, parents in rows:
            found.setdefault(pull_id, {})[commit] = parents.split()
    return found
