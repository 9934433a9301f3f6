"""Reading: which instances there are, and what was said and done."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal

from pydantic import Field

from swarm_core.errors import ExternalFailure
from swarm_core.models import Instance, PrincipalKind
from swarm_core.ops import describe, search
from swarm_mcp.call import Call
from swarm_mcp.registry import Arguments, Result, Tool, shaped
from swarm_mcp.tools.target import InstanceId

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
    instances: Annotated[list[Any], shaped(list[describe.InstanceRow])] = Field(
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
    hits: Annotated[list[Any], shaped(list[describe.HitRow])] = Field(description="Best first.")
    unindexed: int = Field(description="About how many newer rows were not searched, as they are not indexed yet.")


def _query(call: Call, args: QueryArguments, target: Instance | None) -> describe.Instances:
    return describe.query_instances(
        call.db,
        instance_id=args.instance_id,
        kind=args.type,
        status=args.status,
        issue_number=args.issue_number,
        include_relationships=args.include_relationships,
        limit=args.limit,
        you=call.actor,
        sees_all=call.principal.kind == PrincipalKind.OPERATOR,
    )


def _search(call: Call, args: SearchArguments, target: Instance | None) -> describe.Hits:
    find = functools.partial(
        search.find,
        call.swarm.context,
        args.query,
        kinds=args.kinds or (),
        instance_id=call.swarm.find(args.instance).id if args.instance is not None else None,
        since=args.since,
        until=args.until,
        limit=args.limit,
    )
    try:
        hits = find()
    except ExternalFailure as error:
        if error.code != "DATABASE_LOCKED" or call.may_wait:
            raise
        hits = find(catch_up=False)
    return describe.search(hits, call.swarm.unsearched())


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
    inline=True,
)
