"""What a list of everything needs, read in a few queries however much there is, and without long texts."""

from __future__ import annotations

import dataclasses

from swarm_core.forge import Check, Comment, Review
from swarm_core.models import ENDED, Instance, Pull
from swarm_core.store import relationships
from swarm_core.store.database import Database

_BEGINNING = 400
_OPEN = "SELECT id FROM pulls WHERE state = 'open'"
_CUT = {"prompt": f"substr(prompt, 1, {_BEGINNING})", "last_screen": "''"}
_INSTANCE = ", ".join(_CUT.get(f.name, f.name) for f in dataclasses.fields(Instance))
_NO_TEXT = {"body": "''", "etags": "'{}'"}
_PULL = ", ".join(_NO_TEXT.get(f.name, f.name) for f in dataclasses.fields(Pull))


def instances(db: Database) -> list[Instance]:
    """All that are not cleaned, oldest first, each with the beginning of its prompt."""
    sql = f"SELECT {_INSTANCE} FROM instances WHERE cleaned_at IS NULL ORDER BY created_at, id"
    return [Instance(*row) for row in db.rows(sql)]


def open_pulls(db: Database) -> list[Pull]:
    found = []
    for row in db.rows(f"SELECT {_PULL} FROM pulls WHERE state = 'open' ORDER BY id"):
        fields = dict(zip((f.name for f in dataclasses.fields(Pull)), row, strict=True))
        fields["draft"] = bool(fields["draft"])
        fields["unrelated"] = bool(fields["unrelated"])
        fields["mergeable"] = None if fields["mergeable"] is None else bool(fields["mergeable"])
        found.append(Pull(**fields))
    return found


def checks(db: Database) -> dict[int, list[Check]]:
    """By open pull request; so are the next two."""
    sql = f"SELECT pull_id, id, name, state FROM pull_checks WHERE pull_id IN ({_OPEN}) ORDER BY pull_id, name, id"
    found: dict[int, list[Check]] = {}
    for row in db.rows(sql):
        found.setdefault(row[0], []).append(Check(id=row[1], name=row[2], state=row[3]))
    return found


def reviews(db: Database) -> dict[int, list[Review]]:
    sql = (
        'SELECT pull_id, id, author, state, "commit", at, trusted FROM pull_reviews'
        f" WHERE pull_id IN ({_OPEN}) ORDER BY pull_id, at, id"
    )
    found: dict[int, list[Review]] = {}
    for row in db.rows(sql):
        one = Review(row[1], row[2], row[3], body="", commit=row[4], at=row[5], trusted=bool(row[6]))
        found.setdefault(row[0], []).append(one)
    return found


def comments(db: Database) -> dict[int, list[Comment]]:
    """Of those that count, one stands for all."""
    sql = (
        "SELECT pull_id, min(id), min(author), max(at) FROM pull_comments"
        f" WHERE trusted AND NOT outdated AND pull_id IN ({_OPEN}) GROUP BY pull_id"
    )
    return {row[0]: [Comment(row[1], row[2], body="", at=row[3], trusted=True)] for row in db.rows(sql)}


def queued(db: Database) -> set[int]:
    """The pull requests that wait in the merge queue."""
    return {int(r[0]) for r in db.rows("SELECT pull_id FROM merge_queue WHERE state IN ('waiting', 'merging')")}


def under_review(db: Database) -> dict[str, str]:
    """Who waits for a review, by the reviewer it waits for."""
    ended = ", ".join(repr(str(s)) for s in sorted(ENDED))
    rows = db.rows(
        "SELECT r.child_id, r.parent_id FROM relationships r JOIN instances i ON i.id = r.child_id"
        f" WHERE r.type = '{relationships.REVIEW}' AND r.verdict IS NULL AND i.cleaned_at IS NULL"
        f" AND i.status NOT IN ({ended})"
    )
    return {str(r[0]): str(r[1]) for r in rows}


def reviewers(db: Database) -> dict[str, str]:
    """Who reviews the work of each open pull request now."""
    ended = ", ".join(repr(str(s)) for s in sorted(ENDED))
    rows = db.rows(
        "SELECT r.parent_id, r.child_id FROM relationships r JOIN instances i ON i.id = r.child_id"
        " JOIN pulls p ON p.instance_id = r.parent_id AND p.state = 'open'"
        f" WHERE r.type = '{relationships.REVIEW}' AND r.verdict IS NULL AND i.status NOT IN ({ended})"
        " ORDER BY r.id DESC"
    )
    return {str(r[0]): str(r[1]) for r in rows}


def repositories(db: Database) -> list[str]:
    """The paths of all repositories that ever had an instance."""
    return [str(r[0]) for r in db.rows("SELECT DISTINCT repo_path FROM instances ORDER BY repo_path")]


def threads(db: Database, *, limit: int) -> list[tuple[str, int, int, str]]:
    """Work that was reviewed or given feedback: its id, how much was said, how many reviews, and when last."""
    rows = db.rows(
        "SELECT work, sum(said), sum(reviews), max(at) FROM ("
        " SELECT to_instance AS work, count(*) AS said, 0 AS reviews, max(created_at) AS at FROM feedback"
        " GROUP BY to_instance UNION ALL"
        " SELECT parent_id, 0, count(*), max(coalesce(verdict_at, created_at)) FROM relationships"
        f" WHERE type = '{relationships.REVIEW}' GROUP BY parent_id)"
        " GROUP BY work ORDER BY max(at) DESC, work LIMIT ?",
        (limit,),
    )
    return [(str(r[0]), int(r[1]), int(r[2]), str(r[3])) for r in rows]
