"""Commits on which the check command was run, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from swarm_core.store.database import Database


@dataclass(frozen=True, slots=True)
class Checked:
    """`tree` names the files that the command saw, "" when nobody noted it."""

    repo_path: str
    commit: str
    command: str
    ok: bool
    output: str
    seconds: float
    at: str
    tree: str = ""


def put(
    db: Database,
    repo_path: str,
    commit: str,
    command: str,
    *,
    ok: bool,
    output: str,
    seconds: float,
    tree: str = "",
) -> None:
    """Note a result; a later one of the same command replaces it."""
    db.execute(
        'INSERT OR REPLACE INTO checked_commits (repo_path, "commit", command, ok, output, seconds, at, tree)'
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (repo_path, commit, command, ok, output, seconds, db.now(), tree),
    )


def of(db: Database, repo_path: str, commit: str) -> list[Checked]:
    rows = db.rows(
        'SELECT * FROM checked_commits WHERE repo_path = ? AND "commit" = ? ORDER BY at', (repo_path, commit)
    )
    return [Checked(**{**dict(row), "ok": bool(row["ok"])}) for row in rows]
