"""Reading: which instances there are, and what was said and done."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from swarm_core.models import Instance, PrincipalKind, Relationship
from swarm_core.store import instances, messages, relationships
from swarm_mcp.call import Call
from swarm_mcp.registry import Arguments, Result, Tool
from swarm_mcp.tools.target import InstanceId

_RECEIPTS = 20

SearchKind = Literal["event", "feedback", "message"]


class QueryArguments(Arguments):
    instance_id: InstanceId | None = None
    type: Literal["work", "review", "fork", "adhoc"] | None = None
    status: (
        Literal[
            "starting",
            "running",
            "waiting_review",
            "changes_requested",
            "approved",
            "pr_created",
            "pr_merged",
            "pr_closed",
            "failed",
            "terminated",
        ]
        | None
    ) = None
    issue_number: int | None = Field(None, ge=1, le=999_999_999)
    include_relationships: bool = False
    limit: int = Field(20, ge=1, le=200)


class QueryResult(Result):
    instances: list[dict[str, Any]] = Field(
        description="Newest first. The one named by instance_id has receipts of your messages to it."
    )
    total: int = Field(description="How many match, of which `limit` are shown.")
    you: str = Field(description="Who you are.")


class SearchArguments(Arguments):
    query: str = Field(min_length=1, max_length=500, description="Words; all must occur.")
    kinds: list[SearchKind] | None = Field(None, max_length=3)
    instance: InstanceId | None = None
    since: Annotated[str, Field(max_length=40)] | None = Field(
        None, description="ISO time, for example 2026-01-31."
    )
    until: Annotated[str, Field(max_length=40)] | None = None
    limit: int = Field(20, ge=1, le=100)


class SearchResult(Result):
    hits: list[dict[str, Any]] = Field(description="Best first: kind, id, instance_id, at, title, excerpt.")


def _query(call: Call, args: QueryArguments, target: Instance | None) -> dict[str, Any]:
    found, total = instances.query(
        call.db,
        instance_id=args.instance_id,
        kind=args.type,
        status=args.status,
        issue_number=args.issue_number,
        limit=args.limit,
    )
    rows = [describe(i) for i in found]
    if args.instance_id and rows:
        rows[0]["messages"] = _receipts(call, args.instance_id)
    if args.include_relationships:
        links = relationships.of_many(call.db, [i.id for i in found])
        for row in rows:
            mine = [link for link in links if row["instance_id"] in (link.parent_id, link.child_id)]
            row["relationships"] = [_link(link) for link in mine]
    return {"instances": rows, "total": total, "you": call.actor}


def _receipts(call: Call, instance_id: str) -> list[dict[str, Any]]:
    """What the caller has sent to the instance and how far it has come; a person sees everybody's."""
    sent = messages.of(call.db, instance_id, limit=_RECEIPTS)
    everything = call.principal.kind == PrincipalKind.OPERATOR or call.principal.name == instance_id
    names = ("id", "sender", "kind", "state", "created_at", "seen_at", "error")
    return [{n: getattr(m, n) for n in names} for m in sent if everything or m.sender == call.actor]


def describe(instance: Instance) -> dict[str, Any]:
    """An instance as clients see it."""
    return {
        "instance_id": instance.id,
        "type": instance.kind,
        "status": instance.status,
        "activity": instance.activity,
        "activity_source": instance.activity_source,
        "activity_at": instance.activity_at,
        "activity_detail": instance.activity_detail,
        "agent": instance.agent,
        "issue_number": instance.issue_number,
        "branch_name": instance.branch,
        "base_branch": instance.base_branch,
        "worktree_path": instance.worktree_path,
        "session_name": instance.tmux_session,
        "parent_instance_id": instance.parent_id,
        "head_commit": instance.head_commit,
        "pr_number": instance.pr_number,
        "pr_url": instance.pr_url,
        "reason": instance.reason,
        "needs_person": instance.needs_person or instance.problem or None,
        "created_at": instance.created_at,
        "terminated_at": instance.terminated_at,
    }


def _link(link: Relationship) -> dict[str, Any]:
    return {
        "type": link.type,
        "parent_instance": link.parent_id,
        "child_instance": link.child_id,
        "round": link.round,
        "reviewed_commit": link.head_commit,
        "verdict": link.verdict,
        "created_at": link.created_at,
    }


def _search(call: Call, args: SearchArguments, target: Instance | None) -> dict[str, Any]:
    hits = call.swarm.search(
        args.query,
        kinds=args.kinds or (),
        instance=args.instance,
        since=args.since,
        until=args.until,
        limit=args.limit,
    )
    return {"hits": [hit.as_json() for hit in hits]}


QUERY = Tool(
    name="query_instances",
    title="List instances",
    description="Who else is at work: their status, branch, pull request and what needs a person. Read-only.",
    arguments=QueryArguments,
    result=QueryResult,
    run=_query,
    inline=True,
)

SEARCH = Tool(
    name="search",
    title="Search the history",
    description="Full-text search over events, feedback and messages of all instances. Read-only.",
    arguments=SearchArguments,
    result=SearchResult,
    run=_search,
)
