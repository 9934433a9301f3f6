"""Main checkouts: how each was last seen, and what agents are known to have written outside their worktrees."""

from __future__ import annotations

import json
from typing import Any

from swarm_core.store.database import Database


def read(db: Database, repo_path: str) -> tuple[dict[str, Any], str | None]:
    """What is known of a checkout (`seen`: its state, `strays`: what was written there), and since when."""
    row = db.row("SELECT facts, seen_at FROM checkouts WHERE repo_path = ?", (repo_path,))
    return (json.loads(row["facts"]), str(row["seen_at"])) if row else ({"seen": None, "strays": []}, None)


def write(db: Database, repo_path: str, facts: dict[str, Any], *, seen_at: str) -> None:
    """Store it with the time of which `seen` tells."""
    db.execute(
        "INSERT INTO checkouts (repo_path, facts, seen_at) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET facts = excluded.facts, seen_at = excluded.seen_at",
        (repo_path, json.dumps(facts), seen_at),
    )


def with_strays(db: Database) -> list[str]:
    """Repositories of which an agent wrote what is not settled yet."""
    rows = db.rows("SELECT repo_path FROM checkouts WHERE json_array_length(facts, '$.strays') > 0")
    return [str(row[0]) for row in rows]


def worktrees(db: Database) -> dict[str, str]:
    """The worktree of every instance that has one."""
    rows = db.rows("SELECT id, worktree_path FROM instances WHERE cleaned_at IS NULL")
    return {str(row[0]): str(row[1]) for row in rows}


def is_merge(db: Database, repo_path: str, commit: str | None) -> bool:
    """Whether the commit is what a pull request of ours became, so that we have moved the branch ourselves."""
    row = db.row("SELECT 1 FROM pulls WHERE repo_path = ? AND merge_commit = ? LIMIT 1", (repo_path, commit))
    return row is not None


def told(db: Database, repo_path: str, owner: str, *, after: int) -> list[dict[str, Any]]:
    """What events after the id told of the worktree of `owner`; of the main checkout if that is empty."""
    rows = db.rows(
        "SELECT metadata FROM mcp_events WHERE id > ? AND name = 'checkout:touched'"
        " AND coalesce(json_extract(metadata, '$.owner'), '') = ? AND json_extract(metadata, '$.repo_path') = ?",
        (after, owner, repo_path),
    )
    return [json.loads(row[0]) for row in rows]


def was_worked_on(db: Database, instance_id: str, since: str) -> bool:
    """Whether an operation of ours on the instance is under way, or has ended since then."""
    row = db.row(
        "SELECT 1 FROM actions WHERE instance_id = ? AND (state = 'open' OR finished_at >= ?) LIMIT 1",
        (instance_id, since),
    )
    return row is not None
