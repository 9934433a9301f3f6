"""Tool calls that change something, remembered so that a retry has the effect once.

A client that lost its answer asks again. With the same key that is certain; without one it is taken for a
retry only when the call was the same and the server that took the first was killed before it can have answered.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from swarm_core.errors import Conflict
from swarm_core.models import iso, parse_iso
from swarm_core.store import events
from swarm_core.store.database import Database

REPLAYED_WITHIN = timedelta(minutes=15)
KEPT = timedelta(days=1)
_ANSWERED_WITHIN = timedelta(seconds=5)


class Servers(Protocol):
    """Who knows which servers live, and when one that was killed was last known to."""

    def is_alive(self, server: str) -> bool: ...

    def last_seen(self, server: str) -> datetime | None:
        """None for one that ended in good order, and so has answered everything."""


@dataclass(frozen=True, slots=True)
class Claim:
    """`result` is what an earlier, equal call returned; `instance_id` is what one that was cut off had begun."""

    id: int
    result: dict[str, Any] | None = None
    instance_id: str | None = None
    was_cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A call as it is recorded; `result` is there once it has ended."""

    id: int
    principal: str
    tool: str
    digest: str
    server: str
    state: str
    instance_id: str | None
    result: dict[str, Any] | None
    started_at: str


Holds = Callable[[dict[str, Any]], bool]


def claim(
    db: Database,
    *,
    principal: str,
    tool: str,
    digest: str,
    key: str | None,
    server: str,
    servers: Servers,
    holds: Holds = lambda _: True,
    guess: bool = True,
) -> Claim:
    """Record the call before anything happens, or find the one it repeats.

    A result that no longer `holds` was answered: the caller asks for the next one. Unless it may `guess`, only the
    same key makes a call a retry.
    """
    found = _earlier(db, principal, tool, digest, key, server, servers, holds if guess else None)
    if found is not None:
        return found
    cursor = db.execute(
        "INSERT INTO requests (principal, tool, digest, key, server, state, started_at)"
        " VALUES (?, ?, ?, ?, ?, 'open', ?)",
        (principal, tool, digest, key, server, db.now()),
    )
    assert cursor.lastrowid is not None
    return Claim(cursor.lastrowid)


def get(db: Database, request_id: int) -> Request | None:
    row = db.row("SELECT * FROM requests WHERE id = ?", (request_id,))
    return _request(row) if row is not None else None


def of_key(db: Database, principal: str, key: str) -> Request | None:
    row = db.row("SELECT * FROM requests WHERE principal = ? AND key = ?", (principal, key))
    return _request(row) if row is not None else None


def link(db: Database, request_id: int, instance_id: str) -> None:
    db.execute("UPDATE requests SET instance_id = ? WHERE id = ?", (instance_id, request_id))


def finish(db: Database, request_id: int, result: dict[str, Any]) -> None:
    db.execute(
        "UPDATE requests SET state = 'done', result = ?, finished_at = ? WHERE id = ?",
        (json.dumps(result, ensure_ascii=False), db.now(), request_id),
    )


def fail(db: Database, request_id: int, *, undone: bool = True) -> bool:
    """A call that failed changed nothing, so a retry is a new call; unless what it made could not be undone.

    False when its effect is recorded with its result: it is too late to fail.
    """
    state = "failed" if undone else "interrupted"
    cursor = db.execute(
        "UPDATE requests SET state = ?, finished_at = ? WHERE id = ? AND result IS NULL",
        (state, db.now(), request_id),
    )
    return cursor.rowcount == 1


def sweep(db: Database, servers: Servers) -> int:
    """Tell of calls whose server died in the middle of them, and forget what no client will ask for again."""
    with db.write():
        begun = db.rows("SELECT * FROM requests WHERE state = 'open'")
        lost = [row for row in begun if not servers.is_alive(row["server"])]
        for row in lost:
            db.execute("UPDATE requests SET state = 'interrupted' WHERE id = ?", (row["id"],))
            _tell_interrupted(db, row)
        old = iso(parse_iso(db.now()) - KEPT)
        db.execute("DELETE FROM requests WHERE state <> 'open' AND started_at < ?", (old,))
    return len(lost)


def _earlier(
    db: Database,
    principal: str,
    tool: str,
    digest: str,
    key: str | None,
    server: str,
    servers: Servers,
    holds: Holds | None,
) -> Claim | None:
    if key is not None:
        row = db.row("SELECT * FROM requests WHERE principal = ? AND key = ?", (principal, key))
        if row is not None:
            return _same_key(db, row, tool, digest, server, servers)
    if holds is None:
        return None
    since = iso(parse_iso(db.now()) - REPLAYED_WITHIN)
    rows = db.rows(
        "SELECT * FROM requests WHERE principal = ? AND tool = ? AND digest = ? AND server <> ?"
        " AND state <> 'failed' AND coalesce(finished_at, started_at) >= ? ORDER BY id DESC",
        (principal, tool, digest, server, since),
    )
    row = next((r for r in rows if _is_unanswered(r, servers, holds)), None)
    if row is None:
        return None
    if key is not None:
        db.execute("UPDATE requests SET key = ? WHERE id = ?", (key, row["id"]))
    if row["result"] is None:
        return _take_up(db, row, server)
    # It is this server's call from now on: the next equal one is new, unless this server is killed as well.
    db.execute(
        "UPDATE requests SET state = 'replayed', server = ?, finished_at = ? WHERE id = ?",
        (server, db.now(), row["id"]),
    )
    return Claim(row["id"], result=json.loads(row["result"]))


def _request(row: Any) -> Request:
    known = {field.name: row[field.name] for field in dataclasses.fields(Request)}
    return Request(**known | {"result": json.loads(row["result"]) if row["result"] else None})


def _is_unanswered(row: Any, servers: Servers, holds: Holds) -> bool:
    """Whether the server that took the call was killed before it can have answered, and nothing has come of it."""
    if servers.is_alive(row["server"]):
        return False
    if row["result"] is None:
        return True
    seen = servers.last_seen(row["server"])
    if seen is None or parse_iso(row["finished_at"]) <= seen - _ANSWERED_WITHIN:
        return False
    return holds(json.loads(row["result"]))


def _same_key(db: Database, row: Any, tool: str, digest: str, server: str, servers: Servers) -> Claim:
    if (row["tool"], row["digest"]) != (tool, digest):
        raise key_reused()
    if row["result"] is not None:
        return Claim(row["id"], result=json.loads(row["result"]))
    if row["state"] == "open" and servers.is_alive(row["server"]):
        raise Conflict("the same call is still under way", code="REQUEST_IN_PROGRESS", hint="wait for its answer")
    return _take_up(db, row, server)


def key_reused() -> Conflict:
    return Conflict(
        "the idempotency key was used for another request",
        code="KEY_REUSED",
        hint="use a new key for a new request",
    )


def _take_up(db: Database, row: Any, server: str) -> Claim:
    if row["state"] == "open":
        _tell_interrupted(db, row)
    db.execute("UPDATE requests SET state = 'open', server = ? WHERE id = ?", (server, row["id"]))
    if row["state"] == "failed":
        return Claim(row["id"])
    return Claim(row["id"], instance_id=row["instance_id"], was_cut_off=True)


def _tell_interrupted(db: Database, row: Any) -> None:
    events.add(
        db,
        "tool:interrupted",
        instance_id=row["instance_id"],
        actor=row["principal"],
        tool_name=row["tool"],
        error_code="INTERRUPTED",
        error_message="the server died in the middle of the call",
        metadata={"request": row["id"], "server": row["server"], "started_at": row["started_at"]},
    )
