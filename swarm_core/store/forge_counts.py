"""How many pull requests are followed, wait for an answer or wait to be merged, and how old what is known is."""

from __future__ import annotations

from dataclasses import dataclass

from swarm_core.models import PullState
from swarm_core.store.database import Database

_OPEN = f"state = '{PullState.OPEN}'"


@dataclass(frozen=True, slots=True)
class Counts:
    """`unanswered` are those whose last look failed, `remaining` what is left of each quota."""

    open: int
    unanswered: int
    queued: int
    remaining: dict[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Place:
    """The open pull requests of one repository at GitHub.

    `since` is when the one whose facts are oldest was last heard of, or opened if it never was; `silent` of those
    whose last look failed, and `problem` is what one of these failures was.
    """

    repository: str
    open: int
    since: str
    unanswered: int
    silent: str | None
    problem: str


def counted(db: Database) -> Counts:
    pulls = db.row(f"SELECT count(*), coalesce(sum(failures > 0), 0) FROM pulls WHERE {_OPEN}")
    assert pulls is not None
    shares = db.rows("SELECT host, resource, remaining FROM forge_quota WHERE remaining IS NOT NULL")
    return Counts(int(pulls[0]), int(pulls[1]), queued(db), {(r[0], r[1]): int(r[2]) for r in shares})


def queued(db: Database) -> int:
    """How many wait in the merge queue."""
    row = db.row("SELECT count(*) FROM merge_queue WHERE state IN ('waiting', 'merging')")
    assert row is not None
    return int(row[0])


def places(db: Database) -> list[Place]:
    rows = db.rows(
        "SELECT repository, count(*), min(coalesce(looked_at, created_at)), sum(failures > 0),"
        " min(CASE WHEN failures > 0 THEN coalesce(looked_at, created_at) END),"
        " coalesce(max(CASE WHEN failures > 0 THEN failure END), '')"
        f" FROM pulls WHERE {_OPEN} AND forge = 'github' GROUP BY repository ORDER BY repository"
    )
    return [Place(*row) for row in rows]
