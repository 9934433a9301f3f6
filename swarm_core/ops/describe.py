"""What clients are told of instances, pull requests and the history: the same through every front end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from swarm_core.models import Hit, Instance, Message, Relationship, parse_iso
from swarm_core.ops.pull_status import Facts, status
from swarm_core.store import instances, messages, relationships
from swarm_core.store.database import Database

PULLS_MAX = 100
_RECEIPTS = 20
_SHOWN = 100  # checks, and comments
_LONGEST = 2000


def query_instances(
    db: Database,
    *,
    instance_id: str | None = None,
    kind: str | None = None,
    status: str | None = None,
    issue_number: int | None = None,
    include_relationships: bool = False,
    limit: int = 20,
    you: str,
    sees_all: bool,
) -> dict[str, Any]:
    """The newest instances that match. Of messages to the named one you see your own; `sees_all` everybody's."""
    found, total = instances.query(
        db, instance_id=instance_id, kind=kind, status=status, issue_number=issue_number, limit=limit
    )
    rows = [instance(one) for one in found]
    if instance_id and rows:
        sent = messages.of(db, instance_id, limit=_RECEIPTS)
        rows[0]["messages"] = [receipt(m) for m in sent if sees_all or you in (instance_id, m.sender)]
    if include_relationships:
        links = relationships.of_many(db, [one.id for one in found])
        for row in rows:
            row["relationships"] = [link(one) for one in links if row["instance_id"] in _ends(one)]
    return {"instances": rows, "total": total, "you": you}


def query_pulls(found: Iterable[Facts], now: str) -> dict[str, Any]:
    return {"pulls": [pull(one, now) for one in found]}


def search(hits: Sequence[Hit]) -> dict[str, Any]:
    return {"hits": [hit.as_json() for hit in hits]}


def instance(one: Instance) -> dict[str, Any]:
    return {
        "instance_id": one.id,
        "type": one.kind,
        "status": one.status,
        "activity": one.activity,
        "activity_source": one.activity_source,
        "activity_at": one.activity_at,
        "activity_detail": one.activity_detail,
        "agent": one.agent,
        "issue_number": one.issue_number,
        "branch_name": one.branch,
        "base_branch": one.base_branch,
        "worktree_path": one.worktree_path,
        "session_name": one.tmux_session,
        "parent_instance_id": one.parent_id,
        "head_commit": one.head_commit,
        "pr_number": one.pr_number,
        "pr_url": one.pr_url,
        "reason": one.reason,
        "needs_person": one.needs_person or one.problem or None,
        "created_at": one.created_at,
        "terminated_at": one.terminated_at,
    }


def receipt(message: Message) -> dict[str, Any]:
    """How far a message has come."""
    names = ("id", "sender", "kind", "state", "created_at", "seen_at", "error")
    return {name: getattr(message, name) for name in names}


def link(one: Relationship) -> dict[str, Any]:
    return {
        "type": one.type,
        "parent_instance": one.parent_id,
        "child_instance": one.child_id,
        "round": one.round,
        "reviewed_commit": one.head_commit,
        "verdict": one.verdict,
        "created_at": one.created_at,
    }


def pull(found: Facts, now: str) -> dict[str, Any]:
    one = found.pull
    names = (
        "instance_id",
        "number",
        "url",
        "title",
        "state",
        "draft",
        "head_branch",
        "base_branch",
        "head_commit",
    )
    looked = (parse_iso(now) - parse_iso(one.looked_at)).total_seconds() if one.looked_at else None
    return {name: getattr(one, name) for name in names} | {
        "status": str(status(found)),
        "hindrances": found.hindrances,
        "checks": [{"name": c.name, "state": c.state, "url": c.url} for c in found.checks[:_SHOWN]],
        "approved_by": found.approved_by,
        "changes_requested_by": found.refused_by,
        "comments": [
            {"author": c.author, "path": c.path, "line": c.line, "body": c.body[:_LONGEST], "url": c.url}
            for c in [c for c in found.comments if c.trusted and not c.outdated][-_SHOWN:]
        ],
        "age_s": looked,
        "merge_commit": one.merge_commit,
    }


def _ends(one: Relationship) -> tuple[str, str]:
    return one.parent_id, one.child_id
