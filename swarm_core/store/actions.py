"""The intent log: a multi-step operation is written down before its first step and after each one."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from swarm_core.errors import Conflict, SwarmError
from swarm_core.models import Action, ActionState
from swarm_core.store import events
from swarm_core.store.database import Database


def start(
    db: Database, instance_id: str, kind: str, *, actor: str, details: dict[str, Any] | None = None
) -> Action:
    """Record the intent; an instance has at most one open action."""
    current = open_for(db, instance_id)
    if current is not None:
        raise Conflict(
            f"{instance_id} is in the middle of a {current.kind}",
            code="INSTANCE_BUSY",
            hint="`swarm doctor --fix` finishes what was interrupted",
            details={"action": current.kind, "since": current.started_at},
        )
    cursor = db.execute(
        "INSERT INTO actions (instance_id, kind, state, actor, details, started_at)"
        " VALUES (?, ?, 'open', ?, ?, ?)",
        (instance_id, kind, actor, json.dumps(details or {}), db.now()),
    )
    events.add(db, "action:started", instance_id=instance_id, actor=actor, metadata={"action": kind})
    assert cursor.lastrowid is not None
    return _get(db, cursor.lastrowid)


def open_for(db: Database, instance_id: str) -> Action | None:
    row = db.row("SELECT * FROM actions WHERE instance_id = ? AND state = 'open'", (instance_id,))
    return _action(row) if row else None


def all_open(db: Database) -> list[Action]:
    return [_action(r) for r in db.rows("SELECT * FROM actions WHERE state = 'open' ORDER BY id")]


def newest_id(db: Database) -> int:
    """Grows with every operation that anybody begins."""
    row = db.row("SELECT coalesce(max(id), 0) FROM actions")
    assert row is not None
    return int(row[0])


def step_done(db: Database, action: Action, step: str, **details: Any) -> Action:
    """Note a finished step and what later steps or the undo need to know of it."""
    done = [*action.steps_done, step]
    merged = action.details | details
    db.execute(
        "UPDATE actions SET steps_done = ?, details = ? WHERE id = ?",
        (json.dumps(done), json.dumps(merged), action.id),
    )
    return _get(db, action.id)


def step_undone(db: Database, action: Action, step: str) -> Action:
    done = [s for s in action.steps_done if s != step]
    db.execute("UPDATE actions SET steps_done = ? WHERE id = ?", (json.dumps(done), action.id))
    return _get(db, action.id)


def failing(db: Database, action: Action, error: SwarmError) -> Action:
    """Note that the operation is being undone, so that a crash in the undo goes on undoing."""
    db.execute(
        "UPDATE actions SET error_code = ?, error_message = ? WHERE id = ?",
        (error.code, error.message[:2000], action.id),
    )
    return _get(db, action.id)


def finish(db: Database, action: Action, state: ActionState) -> None:
    db.execute("UPDATE actions SET state = ?, finished_at = ? WHERE id = ?", (str(state), db.now(), action.id))
    events.add(
        db,
        "action:done" if state is ActionState.DONE else "action:undone",
        instance_id=action.instance_id,
        actor=action.actor,
        error_code=action.error_code,
        error_message=action.error_message,
        metadata={"action": action.kind},
    )


def _get(db: Database, action_id: int) -> Action:
    row = db.row("SELECT * FROM actions WHERE id = ?", (action_id,))
    assert row is not None
    return _action(row)


def _action(row: sqlite3.Row) -> Action:
    fields = dict(row)
    fields["steps_done"] = tuple(json.loads(fields["steps_done"]))
    fields["details"] = json.loads(fields["details"])
    return Action(**fields)
