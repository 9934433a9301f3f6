"""Tokens, kept only as hashes: of instances (bound to one start), of the operator, and of named automations."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from swarm_core.models import Principal, PrincipalKind
from swarm_core.store import events
from swarm_core.store.database import Database

OPERATOR = "operator"
# What an automation's token may be allowed; each opens the tools and pages it is named after.
SCOPES: dict[str, str] = {
    "read": "query_instances, query_pulls, search, get_status, resources and prompts",
    "review": "spawn_review_instance",
    "feedback": "send_feedback",
    "pulls": "create_pull_request",
    "merge": "merge_pull_request",
    "status": "update_instance_status",
    "spawn": "spawn_fork_instance",
    "metrics": "GET /metrics",
}
_MCP = frozenset({"mcp"})
_INSTANCE = _MCP | {"hooks"}
_OPERATOR = _MCP | {"metrics"}


@dataclass(frozen=True, slots=True)
class Lookup:
    """Who a token speaks for. If for nobody, `reason` says why and `name` whose it was, when that is known."""

    principal: Principal | None
    reason: str = ""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as it may be shown: the token itself is known only to whoever got it."""

    kind: str
    name: str
    scopes: tuple[str, ...]
    created_at: str
    revoked_at: str | None


def is_operator(actor: str | None) -> bool:
    """Whether an actor of events is a person; several at one dashboard are told apart by their names."""
    return actor is not None and (actor == OPERATOR or actor.startswith(f"{OPERATOR}:"))


def issue(db: Database, instance_id: str, epoch: int) -> str:
    """A new 256-bit token for this start; every earlier token of the instance stops working."""
    revoke(db, instance_id)
    return _insert(db, PrincipalKind.INSTANCE, instance_id, epoch=epoch)


def issue_operator(db: Database) -> str:
    _revoke(db, PrincipalKind.OPERATOR, OPERATOR)
    return _insert(db, PrincipalKind.OPERATOR, OPERATOR)


def issue_automation(db: Database, name: str, scopes: Iterable[str]) -> str:
    _revoke(db, PrincipalKind.AUTOMATION, name)
    return _insert(db, PrincipalKind.AUTOMATION, name, scopes=sorted(scopes))


def revoke(db: Database, instance_id: str) -> None:
    _revoke(db, PrincipalKind.INSTANCE, instance_id)


def revoke_automation(db: Database, name: str) -> int:
    return _revoke(db, PrincipalKind.AUTOMATION, name)


def automation_scopes(db: Database, name: str) -> tuple[str, ...] | None:
    """What the automation's valid token may do; None when it has none."""
    row = db.row(
        "SELECT scopes FROM tokens WHERE kind = 'automation' AND name = ? AND revoked_at IS NULL", (name,)
    )
    return tuple(json.loads(row["scopes"])) if row else None


def lookup(db: Database, token: str) -> Lookup:
    if not token:
        return Lookup(None, "no token was sent")
    row = db.row(
        "SELECT t.kind, t.name, t.epoch, t.scopes, t.revoked_at, i.epoch FROM tokens t"
        " LEFT JOIN instances i ON t.kind = 'instance' AND i.id = t.name WHERE t.hash = ?",
        (_hash(token),),
    )
    if row is None:
        return Lookup(None, "the token is unknown")
    kind, name, epoch, scopes, revoked_at, current = row
    if revoked_at is not None:
        return Lookup(None, "the token was revoked", name)
    if kind == PrincipalKind.INSTANCE:
        if epoch != current:
            return Lookup(None, "the token is of an earlier start", name)
        return Lookup(Principal(kind, name, _INSTANCE))
    if kind == PrincipalKind.OPERATOR:
        return Lookup(Principal(kind, name, _OPERATOR))
    given = frozenset(json.loads(scopes))
    return Lookup(Principal(kind, name, given | _MCP if given - {"metrics"} else given))


def has_valid(db: Database, kind: str, name: str) -> bool:
    row = db.row(
        "SELECT 1 FROM tokens t LEFT JOIN instances i ON t.kind = 'instance' AND i.id = t.name"
        " WHERE t.kind = ? AND t.name = ? AND t.revoked_at IS NULL"
        " AND (t.kind <> 'instance' OR t.epoch = i.epoch)",
        (kind, name),
    )
    return row is not None


def listed(db: Database, *, include_revoked: bool = False) -> list[TokenRow]:
    where = "1" if include_revoked else "revoked_at IS NULL"
    rows = db.rows(
        f"SELECT kind, name, scopes, created_at, revoked_at FROM tokens WHERE {where}"
        " ORDER BY kind, name, created_at"
    )
    return [TokenRow(r[0], r[1], tuple(json.loads(r[2])), r[3], r[4]) for r in rows]


def _insert(
    db: Database, kind: PrincipalKind, name: str, *, epoch: int | None = None, scopes: Iterable[str] = ()
) -> str:
    token = secrets.token_urlsafe(32)
    db.execute(
        "INSERT INTO tokens (hash, kind, name, epoch, scopes, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (_hash(token), str(kind), name, epoch, json.dumps(list(scopes)), db.now()),
    )
    if kind != PrincipalKind.INSTANCE:
        events.add(
            db, "token:issued", actor=OPERATOR, metadata={"kind": str(kind), "name": name, "scopes": list(scopes)}
        )
    return token


def _revoke(db: Database, kind: PrincipalKind, name: str) -> int:
    cursor = db.execute(
        "UPDATE tokens SET revoked_at = ? WHERE kind = ? AND name = ? AND revoked_at IS NULL",
        (db.now(), str(kind), name),
    )
    if cursor.rowcount and kind != PrincipalKind.INSTANCE:
        events.add(db, "token:revoked", actor=OPERATOR, metadata={"kind": str(kind), "name": name})
    return cursor.rowcount


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
