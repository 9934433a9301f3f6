"""The event log: one row for every change of state and every tool call, in the change's own transaction."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from typing import Any

from swarm_core.models import EVENTS, Event
from swarm_core.store.database import Database

_SECRET = re.compile(r"token|secret|password|api_?key|authorization", re.IGNORECASE)
_LONGEST = 500
_as_text = json.JSONEncoder(ensure_ascii=False).encode
_MOST = 50
# Events that are asked for by name; an index knows them, however long the history is.
MARKS = frozenset({"mcp:connected", "mcp:reconnect", "work:rescoped"})


def add(
    db: Database,
    name: str,
    *,
    instance_id: str | None = None,
    actor: str,
    tool_name: str | None = None,
    error_code: str | None = None,
    error_message: str | None = None,
    duration_ms: float | None = None,
    status_from: str | None = None,
    status_to: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> int:
    """Write one event inside the caller's transaction and return its id."""
    if name not in EVENTS:
        raise AssertionError(f"event {name} is not in models.EVENTS")
    told = (_kept(tool_name), name, error_code is None, error_code, _kept(error_message))
    more = (duration_ms, status_from, status_to, _as_text(cut(metadata or {})))
    cursor = db.execute(
        "INSERT INTO mcp_events (at, instance_id, actor, tool_name, name, success, error_code, error_message,"
        " duration_ms, status_from, status_to, metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (db.now(), instance_id, actor, *told, *more),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def after(db: Database, cursor: int, *, instance_id: str | None = None, limit: int = 500) -> list[Event]:
    """Events with an id above the cursor, oldest first."""
    where, values = _where("id > ?", [cursor], instance_id)
    return [_event(r) for r in db.rows(f"SELECT * FROM mcp_events {where} ORDER BY id LIMIT ?", [*values, limit])]


def newest(db: Database, *, instance_id: str | None = None, limit: int = 50) -> list[Event]:
    """The last events, oldest of them first."""
    where, values = _where("1", [], instance_id)
    rows = db.rows(f"SELECT * FROM mcp_events {where} ORDER BY id DESC LIMIT ?", [*values, limit])
    return [_event(r) for r in reversed(rows)]


def last_at(db: Database, instance_id: str, name: str) -> str | None:
    """When an event of that name, one of MARKS, last told of the instance."""
    assert name in MARKS
    # The name is in the text because only then the index of these names is used.
    row = db.row(
        f"SELECT at FROM mcp_events WHERE instance_id = ? AND name = '{name}' ORDER BY id DESC LIMIT 1",
        (instance_id,),
    )
    return str(row[0]) if row else None


def newest_id(db: Database) -> int:
    row = db.row("SELECT coalesce(max(id), 0) FROM mcp_events")
    assert row is not None
    return int(row[0])


def cut(value: Any) -> Any:
    """The value with secrets removed and what is long cut, fit to be kept for ever and read by anybody."""
    if isinstance(value, dict):
        some = list(value.items())[:_MOST]
        return {_kept(str(k)): "[removed]" if _SECRET.search(str(k)) else cut(v) for k, v in some}
    if isinstance(value, list | tuple):
        return [cut(v) for v in value[:_MOST]]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # which JSON has no number for
    return _kept(value) if isinstance(value, str) else value


def _kept(text: str | None) -> str | None:
    """Half a surrogate pair, which a file name may hold, cannot be stored; it becomes a question mark."""
    if text is None:
        return None
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}… ({len(text)} characters)"
    return text if text.isascii() else text.encode(errors="replace").decode()


def _where(first: str, values: list[Any], instance_id: str | None) -> tuple[str, list[Any]]:
    if instance_id is None:
        return f"WHERE {first}", values
    return f"WHERE {first} AND instance_id = ?", [*values, instance_id]


def _event(row: sqlite3.Row) -> Event:
    fields = dict(row)
    fields["success"] = bool(fields["success"])
    fields["metadata"] = json.loads(fields["metadata"])
    return Event(**fields)
