"""Instances: reserving ids, reading, and the only way their status and activity change."""

from __future__ import annotations

import dataclasses
import sqlite3
from typing import Any

from swarm_core.errors import Conflict, NotFound
from swarm_core.models import ENDED, TRANSITIONS, Activity, Instance, Status
from swarm_core.store import events
from swarm_core.store.database import Database

_FIELDS = tuple(f.name for f in dataclasses.fields(Instance))
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM instances"
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


def count(db: Database) -> int:
    row = db.row("SELECT count(*) FROM instances WHERE cleaned_at IS NULL")
    assert row is not None
    return int(row[0])


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
    set_fields(db, instance_id, reason=reason, **fields)
    return get(db, instance_id)


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
