"""The event log: one row for every change of state and every tool call, in the change's own transaction."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from swarm_core import redact
from swarm_core.errors import InvalidInput
from swarm_core.models import EVENTS, Event
from swarm_core.store.database import Database

_LONGEST = 500
_LONG_NAME = 24
_LOOKED_AT = _LONGEST + 300  # a secret that the cut would divide is still known as one
_as_text = json.JSONEncoder(ensure_ascii=False).encode
_MOST = 50
# Events that are asked for by name; an index knows them, however long the history is.
MARKS = frozenset({"mcp:connected", "mcp:reconnect", "work:rescoped"})
# What a person should know of although nothing has failed.
WARNINGS = (
    "instance:problem",
    "message:lost",
    "message:expired",
    "review:ended",
    "review:limit",
    "review:timeout",
    "review:disagreement",
    "budget:warned",
    "budget:held",
    "notice:raised",
    "pull:conflict",
    "queue:left",
    "overlap:found",
    "checkout:touched",
    "forge:lost",
    "forge:limited",
    "host:lost",
    "tool:interrupted",
)
LEVELS = ("info", "warning", "error")
_COMMON = "tool:called"  # which the index of names leaves out
_SCANNED = 20_000  # rows that one question may look at
_STEP = 5_000
_EACH = 500
_TEXT = (
    "(name || ' ' || coalesce(instance_id, '') || ' ' || actor || ' ' || coalesce(tool_name, '') || ' '"
    " || coalesce(error_code, '') || ' ' || coalesce(error_message, '') || ' ' || metadata) LIKE ? ESCAPE '\\'"
)


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
    at: str | None = None,
) -> int:
    """Write one event inside the caller's transaction and return its id; `at` if it happened earlier."""
    if name not in EVENTS:
        raise AssertionError(f"event {name} is not in models.EVENTS")
    told = (_kept(tool_name), name, error_code is None, error_code, _kept(error_message))
    more = (duration_ms, status_from, status_to, _as_text(cut(metadata or {})))
    cursor = db.execute(
        "INSERT INTO mcp_events (at, instance_id, actor, tool_name, name, success, error_code, error_message,"
        " duration_ms, status_from, status_to, metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (at or db.now(), instance_id, actor, *told, *more),
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events; all that is given must hold. `name` ending in `:` stands for all that begin so."""

    instance_id: str | None = None
    name: str | None = None
    level: str | None = None
    actor: str | None = None
    repo_path: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """`next` goes on from here, towards older or newer events; None when there are no more.

    A page may have fewer events than were asked for, even none, and yet not be the last: so many rows were looked
    at that the rest is for another question.
    """

    events: list[Event]
    next: int | None


def level(event: Event) -> str:
    if not event.success:
        return "error"
    return "warning" if event.name in WARNINGS else "info"


def before(db: Database, cursor: int | None, wanted: Wanted, *, limit: int) -> Page:
    """Events with an id below the cursor, or the newest, newest first; costs the same however many there are."""
    return _find(db, wanted, cursor, limit=limit, newer=False)


def since(db: Database, cursor: int, wanted: Wanted, *, limit: int) -> Page:
    """Events with an id above the cursor, oldest first."""
    return _find(db, wanted, cursor, limit=limit, newer=True)


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
        return {_key(str(k)): redact.REMOVED if redact.NAME.search(str(k)) else cut(v) for k, v in some}
    if isinstance(value, list | tuple):
        return [cut(v) for v in value[:_MOST]]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # which JSON has no number for
    return _kept(value) if isinstance(value, str) else value


def _key(name: str) -> str | None:
    """Names of fields are short; one that is not may hide a secret."""
    return name if len(name) < _LONG_NAME and name.isascii() else _kept(name)


def _kept(text: str | None) -> str | None:
    """The text without secrets, cut when it is long.

    Half a surrogate pair, which a file name may hold, cannot be stored; it becomes a question mark.
    """
    if text is None:
        return None
    if len(text) > _LONGEST:
        text = f"{redact.text(text[:_LOOKED_AT])[:_LONGEST]}… ({len(text)} characters)"
    else:
        text = redact.text(text)
    return text if text.isascii() else text.encode(errors="replace").decode()


def _find(db: Database, wanted: Wanted, cursor: int | None, *, limit: int, newer: bool) -> Page:
    """Walk along an index a step at a time, and look at each step's rows for all else that is wanted."""
    ways, rest, values = _plan(wanted)
    step = max(_EACH if len(ways) > 1 else _STEP, limit + 1) if rest else limit + 1
    found: list[Event] = []
    looked = 0
    while ways:
        ids = _ids(db, ways, cursor, step, newer=newer)
        looked += step * len(ways)
        if ids:
            found += _among(db, ways, ids, rest, values, limit + 1 - len(found), newer=newer)
            cursor = ids[-1]
        if len(found) > limit:
            return Page(found[:limit], found[limit - 1].id)
        if len(ids) < step:
            break
        if looked >= _SCANNED:
            return Page(found, cursor)
    return Page(found, None)


_Way = tuple[str, tuple[Any, ...]]


def _plan(wanted: Wanted) -> tuple[list[_Way], str, list[Any]]:
    """The ways to walk, each with an index of its own, and what its rows are asked besides; no way, no event."""
    rest: list[tuple[str, Sequence[Any]]] = []
    names = _names(wanted)
    if wanted.level is not None and wanted.level not in LEVELS:
        raise InvalidInput(f"there is no level {wanted.level[:80]!r}", hint="levels: " + ", ".join(LEVELS))
    if wanted.actor is not None:
        rest.append(("actor = ?", (wanted.actor,)))
    if wanted.repo_path is not None:
        rest.append(("instance_id IN (SELECT id FROM instances WHERE repo_path = ?)", (wanted.repo_path,)))
    if wanted.text is not None:
        rest.append((_TEXT, (_pattern(wanted.text),)))
    if wanted.level in ("info", "warning"):
        rest.append(("success = 1", ()))
    failed: _Way = ("success = 0", ())
    ways: list[_Way] = [("1", ())]
    if wanted.instance_id is not None:
        ways = [("instance_id = ?", (wanted.instance_id,))]
        rest += [failed] if wanted.level == "error" else []
    elif wanted.level == "error":
        ways = [failed]
    elif names is not None and _COMMON not in names:
        ways, names = [(f"name = ? AND name <> '{_COMMON}'", (name,)) for name in names], None
    if names is not None:
        ways = ways if names else []
        rest.append((f"name IN ({', '.join('?' for _ in names)})", names))
    if wanted.level == "info":
        rest.append((f"name NOT IN ({', '.join('?' for _ in WARNINGS)})", WARNINGS))
    return ways, "".join(f" AND {sql}" for sql, _ in rest), [v for _, values in rest for v in values]


def _names(wanted: Wanted) -> list[str] | None:
    """The names that are wanted; None when any will do."""
    if wanted.name is None:
        return list(WARNINGS) if wanted.level == "warning" else None
    asked = wanted.name
    named = [asked] if asked in EVENTS else [name for name in EVENTS if name.startswith(asked)]
    return [name for name in named if wanted.level != "warning" or name in WARNINGS]


def _ids(db: Database, ways: Sequence[_Way], cursor: int | None, step: int, *, newer: bool) -> list[int]:
    """The next candidates."""
    order, side = ("id", ">") if newer else ("id DESC", "<")
    at = "" if cursor is None else f" AND id {side} ?"
    one = "SELECT id FROM (SELECT id FROM mcp_events WHERE {}" + f"{at} ORDER BY {order} LIMIT ?)"
    values: list[Any] = []
    for _, given in ways:
        values += [*given, *([] if cursor is None else [cursor]), step]
    union = " UNION ALL ".join(one.format(sql) for sql, _ in ways)
    return [int(r[0]) for r in db.rows(f"{union} ORDER BY {order} LIMIT ?", [*values, step])]


def _among(
    db: Database,
    ways: Sequence[_Way],
    ids: Sequence[int],
    rest: str,
    values: Sequence[Any],
    limit: int,
    *,
    newer: bool,
) -> list[Event]:
    """Those of the candidates of which all else holds too."""
    order = "id" if newer else "id DESC"
    if len(ways) == 1:
        where, given = ways[0]
        which, named = f"{where} AND id BETWEEN ? AND ?", [*given, min(ids[0], ids[-1]), max(ids[0], ids[-1])]
    else:
        which, named = f"id IN ({', '.join('?' for _ in ids)})", list(ids)
    sql = f"SELECT * FROM mcp_events WHERE {which}{rest} ORDER BY {order} LIMIT ?"
    return [_event(r) for r in db.rows(sql, [*named, *values, limit])]


def _pattern(text: str) -> str:
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"


def _where(first: str, values: list[Any], instance_id: str | None) -> tuple[str, list[Any]]:
    if instance_id is None:
        return f"WHERE {first}", values
    return f"WHERE {first} AND instance_id = ?", [*values, instance_id]


def _event(row: sqlite3.Row) -> Event:
    fields = dict(row)
    fields["success"] = bool(fields["success"])
    fields["metadata"] = json.loads(fields["metadata"])
    return Event(**fields)
