"""Who was started from whom, and how each review ended."""

from __future__ import annotations

from collections.abc import Sequence

from swarm_core.errors import NotFound
from swarm_core.models import ENDED, Relationship, Verdict
from swarm_core.store.database import Database

REVIEW = "spawned_review"
FORK = "created_fork"
_CHUNK = 500
_NAMES = "id, parent_id, child_id, type, round, head_commit, created_at, verdict, verdict_at"
_SELECT = f"SELECT {_NAMES} FROM relationships"
_JOINED = f"SELECT {', '.join(f'r.{n}' for n in _NAMES.split(', '))} FROM relationships r"


def add(
    db: Database, parent_id: str, child_id: str, type_: str, *, head_commit: str | None, round_: int = 1
) -> None:
    db.execute(
        "INSERT INTO relationships (parent_id, child_id, type, round, head_commit, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (parent_id, child_id, type_, round_, head_commit, db.now()),
    )


def of(db: Database, instance_id: str) -> list[Relationship]:
    rows = db.rows(
        f"{_SELECT} WHERE parent_id = ? OR child_id = ? ORDER BY id",
        (instance_id, instance_id),
    )
    return [Relationship(*r) for r in rows]


def of_many(db: Database, instance_ids: Sequence[str]) -> list[Relationship]:
    """The relationships in which any of the instances takes part, each once, oldest first."""
    found: dict[int, Relationship] = {}
    for start in range(0, len(instance_ids), _CHUNK):
        some = list(instance_ids[start : start + _CHUNK])
        marks = ", ".join("?" for _ in some)
        sql = f"{_SELECT} WHERE parent_id IN ({marks}) OR child_id IN ({marks})"
        found |= {r[0]: Relationship(*r) for r in db.rows(sql, some + some)}
    return [found[key] for key in sorted(found)]


def review_link(db: Database, review_id: str) -> Relationship:
    """What a review reviews: the work, the round and the commit."""
    found = find_review_link(db, review_id)
    if found is None:
        raise NotFound(
            f"{review_id[:80]} reviews nothing", hint="only an instance of kind review has work that it reviews"
        )
    return found


def find_review_link(db: Database, review_id: str) -> Relationship | None:
    row = db.row(f"{_SELECT} WHERE child_id = ? AND type = ?", (review_id, REVIEW))
    return Relationship(*row) if row else None


def reviews_of(db: Database, work_id: str) -> list[Relationship]:
    """The review rounds of a work, oldest first; one whose reviewer never started is none."""
    marks = ", ".join("?" for _ in ENDED)
    rows = db.rows(
        f"{_JOINED} JOIN instances i ON i.id = r.child_id WHERE r.parent_id = ? AND r.type = ?"
        f" AND NOT (i.started_at IS NULL AND i.status IN ({marks})) ORDER BY r.id",
        (work_id, REVIEW, *sorted(ENDED)),
    )
    return [Relationship(*r) for r in rows]


def open_review(db: Database, work_id: str) -> Relationship | None:
    """The review of a work that is under way: it has no verdict and its reviewer has not ended."""
    marks = ", ".join("?" for _ in ENDED)
    row = db.row(
        f"{_JOINED} JOIN instances i ON i.id = r.child_id WHERE r.parent_id = ? AND r.type = ?"
        f" AND r.verdict IS NULL AND i.status NOT IN ({marks}) ORDER BY r.id LIMIT 1",
        (work_id, REVIEW, *sorted(ENDED)),
    )
    return Relationship(*row) if row else None


def open_reviews_of(db: Database, work_ids: Sequence[str]) -> dict[str, str]:
    """Who reviews each work now, as `open_review` has it."""
    ended = sorted(ENDED)
    found: dict[str, str] = {}
    for start in range(0, len(work_ids), _CHUNK):
        some = list(work_ids[start : start + _CHUNK])
        works, marks = ", ".join("?" for _ in some), ", ".join("?" for _ in ended)
        rows = db.rows(
            "SELECT r.parent_id, r.child_id FROM relationships r JOIN instances i ON i.id = r.child_id"
            f" WHERE r.parent_id IN ({works}) AND r.type = '{REVIEW}' AND r.verdict IS NULL"
            f" AND i.status NOT IN ({marks}) ORDER BY r.id DESC",
            [*some, *ended],
        )
        found |= {str(row[0]): str(row[1]) for row in rows}
    return found


def open_since(db: Database, oldest: str) -> list[Relationship]:
    """Reviews under way that were asked for at that time or before."""
    marks = ", ".join("?" for _ in ENDED)
    rows = db.rows(
        f"{_JOINED} JOIN instances i ON i.id = r.child_id WHERE r.type = '{REVIEW}' AND r.verdict IS NULL"
        f" AND r.created_at <= ? AND i.status NOT IN ({marks}) ORDER BY r.id",
        (oldest, *sorted(ENDED)),
    )
    return [Relationship(*r) for r in rows]


def disputed(db: Database, work_id: str, head_commit: str | None) -> bool:
    """Whether another review has sent the same commit back already."""
    row = db.row(
        f"{_SELECT} WHERE parent_id = ? AND type = ? AND verdict = 'needs_work' AND head_commit = ? LIMIT 1",
        (work_id, REVIEW, head_commit),
    )
    return row is not None


def set_verdict(db: Database, relationship_id: int, verdict: Verdict) -> None:
    db.execute(
        "UPDATE relationships SET verdict = ?, verdict_at = ? WHERE id = ?",
        (str(verdict), db.now(), relationship_id),
    )
