"""What clients are told of instances, pull requests and the history: the same through every front end.

The rows are part of the contract: a field that is renamed here changes the tools' output schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NotRequired, TypedDict

from swarm_core.models import CommitVerdict, Hit, Instance, Message, Relationship, parse_iso
from swarm_core.ops.pull_status import Facts, ReasonRow, readiness
from swarm_core.store import instances, messages, relationships
from swarm_core.store.database import Database

PULLS_MAX = 100
_RECEIPTS = 20
_SHOWN = 100  # checks, and comments
_LONGEST = 2000
_OUTPUT = 4000


class Receipt(TypedDict):
    """How far a message has come."""

    id: str
    sender: str
    kind: str
    state: str
    created_at: str
    seen_at: str | None
    error: str


class Link(TypedDict):
    """A relationship between two instances."""

    type: str
    parent_instance: str
    child_instance: str
    round: int
    reviewed_commit: str | None
    verdict: str | None
    created_at: str


class InstanceRow(TypedDict):
    instance_id: str
    type: str
    status: str
    activity: str
    activity_source: str
    activity_at: str
    activity_detail: str
    agent: str
    issue_number: int | None
    branch_name: str
    base_branch: str
    worktree_path: str
    session_name: str
    parent_instance_id: str | None
    head_commit: str | None
    pr_number: int | None
    pr_url: str | None
    reason: str
    needs_person: str | None
    created_at: str
    terminated_at: str | None
    messages: NotRequired[list[Receipt]]
    relationships: NotRequired[list[Link]]


class CheckRow(TypedDict):
    name: str
    state: str
    url: str
    output: NotRequired[str]


class VerdictRow(TypedDict):
    by: str
    verdict: str
    commit: str
    at: str


class CommentRow(TypedDict):
    author: str
    path: str
    line: int | None
    body: str
    url: str


class PullRow(TypedDict):
    instance_id: str
    number: int
    url: str
    title: str
    state: str
    draft: bool
    head_branch: str
    base_branch: str
    head_commit: str
    status: str
    ready: bool
    reasons: list[ReasonRow]
    hindrances: list[str]
    checks: list[CheckRow]
    approved_by: list[str]
    changes_requested_by: list[str]
    verdicts: list[VerdictRow]
    comments: list[CommentRow]
    age_s: float | None
    merge_commit: str | None


class HitRow(TypedDict):
    kind: str
    id: str
    instance_id: str | None
    at: str
    title: str
    excerpt: str


class Instances(TypedDict):
    instances: list[InstanceRow]
    total: int
    you: str


class Pulls(TypedDict):
    pulls: list[PullRow]


class Hits(TypedDict):
    hits: list[HitRow]
    unindexed: int


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
) -> Instances:
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


def query_pulls(found: Iterable[Facts], now: str) -> Pulls:
    return {"pulls": [pull(one, now) for one in found]}


def search(hits: Sequence[Hit], unindexed: int) -> Hits:
    return {"hits": [hit_row(one) for one in hits], "unindexed": unindexed}


def hit_row(one: Hit) -> HitRow:
    return {
        "kind": one.kind,
        "id": one.ref,
        "instance_id": one.instance_id,
        "at": one.at,
        "title": one.title,
        "excerpt": one.excerpt,
    }


def instance(one: Instance) -> InstanceRow:
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


def receipt(message: Message) -> Receipt:
    return {
        "id": message.id,
        "sender": message.sender,
        "kind": message.kind,
        "state": message.state,
        "created_at": message.created_at,
        "seen_at": message.seen_at,
        "error": message.error,
    }


def link(one: Relationship) -> Link:
    return {
        "type": one.type,
        "parent_instance": one.parent_id,
        "child_instance": one.child_id,
        "round": one.round,
        "reviewed_commit": one.head_commit,
        "verdict": one.verdict,
        "created_at": one.created_at,
    }


def pull(found: Facts, now: str) -> PullRow:
    one, result = found.pull, readiness(found)
    return {
        "instance_id": one.instance_id,
        "number": one.number,
        "url": one.url,
        "title": one.title,
        "state": one.state,
        "draft": one.draft,
        "head_branch": one.head_branch,
        "base_branch": one.base_branch,
        "head_commit": one.head_commit,
        "status": str(result.state),
        "ready": result.ready,
        "reasons": [reason.as_json() for reason in result.reasons],
        "hindrances": result.sentences,
        "checks": checks(found)[:_SHOWN],
        "approved_by": list(result.approved_by),
        "changes_requested_by": list(result.refused_by),
        "verdicts": [verdict(given) for given in found.verdicts[-_SHOWN:]],
        "comments": [
            {"author": c.author, "path": c.path, "line": c.line, "body": c.body[:_LONGEST], "url": c.url}
            for c in [c for c in found.comments if c.trusted and not c.outdated][-_SHOWN:]
        ],
        "age_s": (parse_iso(now) - parse_iso(one.looked_at)).total_seconds() if one.looked_at else None,
        "merge_commit": one.merge_commit,
    }


def checks(found: Facts) -> list[CheckRow]:
    """The forge's checks and ours; ours has the end of its output."""
    listed: list[CheckRow] = [{"name": c.name, "state": c.state, "url": c.url} for c in found.all_checks]
    if found.own_check is not None:
        listed[-1]["output"] = found.own_check.output[-_OUTPUT:]
    return listed


def verdict(one: CommitVerdict) -> VerdictRow:
    return {"by": one.by, "verdict": one.verdict, "commit": one.commit, "at": one.at}


def _ends(one: Relationship) -> tuple[str, str]:
    return one.parent_id, one.child_id
