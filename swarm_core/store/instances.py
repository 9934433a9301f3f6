"""Instances: reserving ids, reading, and the only way their status and activity change."""

from __future__ import annotations

import dataclasses
import functools
import sqlite3
from typing import Any

from swarm_core.errors import Conflict, NotFound
from swarm_core.models import ENDED, TRANSITIONS, Activity, Instance, Kind, MessageKind, Status, Verdict, Wanted
from swarm_core.store import events, messages, relationships
from swarm_core.store.database import Database

_FIELDS = tuple(f.name for f in dataclasses.fields(Instance))
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM instances"
_LONG = ("prompt", "last_screen")
_SELECT_SHORT = f"SELECT {', '.join(repr('') if f in _LONG else f for f in _FIELDS)} FROM instances"
_MUTABLE = frozenset(_FIELDS) - {
    "id",
    "kind",
    "status",
    "activity",
    "activity_source",
    "activity_at",
    "created_at",
}


def next_number(db: Database, kind: str, issue: int | None) -> int:
    """The lowest agent number above every one ever used; call inside the reserving transaction."""
    row = db.row(
        "SELECT coalesce(max(agent_number), 0) FROM instances WHERE kind = ? AND issue_number IS ?", (kind, issue)
    )
    assert row is not None
    return int(row[0]) + 1


def insert(db: Database, instance: Instance, *, actor: str) -> None:
    names = ", ".join(_FIELDS)
    marks = ", ".join(f":{f}" for f in _FIELDS)
    db.execute(f"INSERT INTO instances ({names}) VALUES ({marks})", dataclasses.asdict(instance))
    events.add(
        db,
        "instance:created",
        instance_id=instance.id,
        actor=actor,
        status_to=instance.status,
        metadata={"kind": instance.kind, "agent": instance.agent, "branch": instance.branch},
    )


def get(db: Database, instance_id: str) -> Instance:
    found = find(db, instance_id)
    if found is None:
        raise NotFound(
            f"there is no instance {instance_id[:80]!r}",
            code="INSTANCE_NOT_FOUND",
            hint="`swarm ls --all` lists every instance",
        )
    return found


def find(db: Database, instance_id: str) -> Instance | None:
    row = db.row(f"{_SELECT} WHERE id = ?", (instance_id,))
    return _instance(row) if row else None


def named(db: Database, name: str) -> list[Instance]:
    """Instances that carry the name, newest first; cleaned ones only when there is no other."""
    rows = db.rows(f"{_SELECT} WHERE name = ? ORDER BY created_at DESC", (name,))
    found = [_instance(r) for r in rows]
    return [i for i in found if not i.cleaned] or found


def listed(db: Database, *, include_cleaned: bool = False, repo_path: str | None = None) -> list[Instance]:
    where = ["1" if include_cleaned else "cleaned_at IS NULL"]
    values: list[Any] = []
    if repo_path is not None:
        where.append("repo_path = ?")
        values.append(repo_path)
    order = "ORDER BY created_at, id"
    return [_instance(r) for r in db.rows(f"{_SELECT} WHERE {' AND '.join(where)} {order}", values)]


def query(
    db: Database,
    *,
    instance_id: str | None = None,
    kind: str | None = None,
    status: str | None = None,
    issue_number: int | None = None,
    limit: int = 20,
) -> tuple[list[Instance], int]:
    """The newest instances that match and how many match in all; a cleaned one only when it is named.

    They come without prompt and screen, which may be long.
    """
    asked = {"id": instance_id, "kind": kind, "status": status, "issue_number": issue_number}
    given = {name: value for name, value in asked.items() if value is not None}
    newest, how_many = _questions(tuple(given))
    values = list(given.values())
    found = db.rows(newest, [*values, limit + 1])
    shown = [_instance(r) for r in found[:limit]]
    if len(found) <= limit:
        return shown, len(found)
    row = db.row(how_many, values)
    assert row is not None
    return shown, int(row[0])


@functools.lru_cache
def _questions(given: tuple[str, ...]) -> tuple[str, str]:
    """The statements that ask for the newest and for their number, by which columns are given."""
    where = [f"{name} = ?" for name in given]
    if "id" not in given:
        where.append("cleaned_at IS NULL")
    if "issue_number" in given and "kind" not in given:
        # The index begins with the kind.
        where.append(f"kind IN ({', '.join(repr(str(k)) for k in Kind)})")
    matching = f"WHERE {' AND '.join(where)}"
    newest = f"{_SELECT_SHORT} {matching} ORDER BY created_at DESC, id DESC LIMIT ?"
    return newest, f"SELECT count(*) FROM instances {matching}"


def count(db: Database) -> int:
    row = db.row("SELECT count(*) FROM instances WHERE cleaned_at IS NULL")
    assert row is not None
    return int(row[0])


def by_status(db: Database) -> dict[str, int]:
    """How many instances that are not cleaned have each status."""
    rows = db.rows("SELECT status, count(*) FROM instances WHERE cleaned_at IS NULL GROUP BY status")
    return {str(r[0]): int(r[1]) for r in rows}


def set_fields(db: Database, instance_id: str, **fields: Any) -> None:
    """Change columns that are neither status nor activity."""
    unknown = fields.keys() - _MUTABLE
    if unknown:
        raise AssertionError(f"not to be set this way: {sorted(unknown)}")
    fields["updated_at"] = db.now()
    names = ", ".join(f"{k} = ?" for k in fields)
    db.execute(f"UPDATE instances SET {names} WHERE id = ?", [*fields.values(), instance_id])


def change_status(
    db: Database, instance_id: str, to: Status, *, actor: str, reason: str = "", **fields: Any
) -> Instance:
    """Move along TRANSITIONS with the event in the same transaction; the same status again is no change."""
    before = get(db, instance_id)
    if before.status != to:
        if to not in TRANSITIONS[Status(before.status)]:
            raise Conflict(
                f"{instance_id} is {before.status} and cannot become {to}",
                code="INVALID_STATUS_TRANSITION",
                hint=f"`swarm show {instance_id}` says how it came there; {_next(before.status)}",
                details={"from": before.status, "to": str(to)},
            )
        terminated_at = db.now() if to in ENDED else None
        db.execute(
            "UPDATE instances SET status = ?, terminated_at = ? WHERE id = ?",
            (str(to), terminated_at, instance_id),
        )
        events.add(
            db,
            "instance:status",
            instance_id=instance_id,
            actor=actor,
            status_from=before.status,
            status_to=str(to),
            metadata={"reason": reason} if reason else {},
        )
        if to in ENDED and before.kind == Kind.REVIEW:
            _end_review(db, before, actor=actor, why=reason)
    set_fields(db, instance_id, reason=reason, **fields)
    return get(db, instance_id)


def _next(status: str) -> str:
    return f"from {status} it may become {', '.join(sorted(TRANSITIONS[Status(status)]))}"


def heard_from(db: Database, instance_id: str) -> Instance:
    """An agent that speaks is running, also when its start has not got round to writing that down."""
    instance = get(db, instance_id)
    if instance.status != Status.STARTING:
        return instance
    return change_status(db, instance_id, Status.RUNNING, actor=instance_id)


def leave_review(db: Database, work_id: str, *, actor: str, reason: str) -> None:
    """Work that waits for a review goes on, or is ended as its agent meanwhile has; any other is left as it is."""
    work = get(db, work_id)
    if work.status != Status.WAITING_REVIEW:
        return
    if work.wanted == Wanted.RUNNING:
        change_status(db, work_id, Status.RUNNING, actor=actor, reason=reason)
    elif work.activity == Activity.EXITED:
        ended_well = work.exit_code == 0 and not work.exit_signal
        to = Status.TERMINATED if ended_well else Status.FAILED
        change_status(db, work_id, to, actor=actor, reason=work.reason)
    # else it is being stopped, which writes down how it ended


def _end_review(db: Database, review: Instance, *, actor: str, why: str) -> None:
    """A reviewer that ends without a verdict has approved nothing: its round is over and the work goes on."""
    link = relationships.find_review_link(db, review.id)
    if link is None or link.verdict is not None:
        return
    relationships.set_verdict(db, link.id, Verdict.NONE)
    told = {"review": review.id, "round": link.round, "commit": link.head_commit, "reason": why}
    events.add(db, "review:ended", instance_id=link.parent_id, actor=actor, metadata=told)
    leave_review(db, link.parent_id, actor=actor, reason=f"{review.id} ended without a verdict")
    messages.accept(
        db,
        link.parent_id,
        sender="supervisor",
        kind=MessageKind.REVIEW,
        body=f"The review {review.id} of commit {link.head_commit} ended without a verdict"
        f" ({why or 'no reason is known'}). Nothing was approved. Ask for another review when you are ready.",
    )


def observe(
    db: Database,
    instance_id: str,
    activity: Activity,
    *,
    source: str,
    detail: str = "",
    at: str | None = None,
) -> bool:
    """Record what the agent was seen doing; True when that is news. The time moves only with the activity."""
    before = get(db, instance_id)
    if (before.activity, before.activity_source, before.activity_detail) == (activity, source, detail):
        return False
    changed = before.activity != activity
    db.execute(
        "UPDATE instances SET activity = ?, activity_source = ?, activity_detail = ?, activity_at = ?,"
        " updated_at = ? WHERE id = ?",
        (
            str(activity),
            source,
            detail,
            (at or db.now()) if changed else before.activity_at,
            db.now(),
            instance_id,
        ),
    )
    if changed:
        events.add(
            db,
            "instance:activity",
            instance_id=instance_id,
            actor="supervisor",
            metadata={"from": before.activity, "to": str(activity), "source": source, "detail": detail},
        )
    return changed


def _instance(row: sqlite3.Row) -> Instance:
    return Instance(*row)
