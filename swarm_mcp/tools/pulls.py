"""Pull requests: opening that of finished work, reading what its checks and reviewers say, merging it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from swarm_core.models import Instance, Pull, PullState
from swarm_core.ops import describe, verdict
from swarm_core.store import instances, pulls
from swarm_mcp.call import Call
from swarm_mcp.registry import Arguments, Result, Tool, shaped
from swarm_mcp.tools.target import TARGET, InstanceId, named_or_own, named_or_reviewed, review_id

Name = Annotated[str, Field(min_length=1, max_length=100)]


class CreateArguments(Arguments):
    title: str = Field(min_length=1, max_length=256, description="One line: what changes for its reader.")
    description: str = Field(
        max_length=65_536, description="What was done, why, and how it was tested (Markdown)."
    )
    base_branch: str | None = Field(
        None, min_length=1, max_length=250, description="Branch to merge into; by default the one it started from."
    )
    draft: bool = Field(False, description="Not to be merged yet.")
    labels: list[Name] | None = Field(None, max_length=20)
    reviewers: list[Name] | None = Field(None, max_length=20, description="Logins at GitHub.")
    instance_id: InstanceId | None = Field(None, description=TARGET)


class CreateResult(Result):
    pr_number: int
    pr_url: str
    branch_name: str
    base_branch: str
    head_commit: str


def _create(call: Call, args: CreateArguments, target: Instance | None) -> dict[str, Any]:
    assert target is not None
    answer: dict[str, Any] = {}

    def recorded(pull: Pull) -> None:
        answer.update(
            pr_number=pull.number,
            pr_url=pull.url,
            branch_name=pull.head_branch,
            base_branch=pull.base_branch,
            head_commit=pull.head_commit,
        )
        call.finish(answer)

    call.swarm.open_pull(
        target.id,
        title=args.title,
        description=args.description,
        base_branch=args.base_branch,
        draft=args.draft,
        labels=args.labels or (),
        reviewers=args.reviewers or (),
        actor=call.actor,
        review_id=review_id(call),
        recorded=recorded,
    )
    return answer


class QueryArguments(Arguments):
    instance_id: InstanceId | None = Field(None, description="Only the pull request of this instance.")
    include_over: bool = Field(False, description="Also those that were merged or closed.")


class QueryResult(Result):
    pulls: Annotated[list[Any], shaped(list[describe.PullRow])] = Field(description="Newest first.")


class MergeArguments(Arguments):
    instance_id: InstanceId
    method: Literal["merge", "squash", "rebase"] | None = Field(None, description="By default as configured.")
    auto: bool = Field(False, description="As soon as nothing hinders it, at the commit it is at now.")


class MergeResult(Result):
    pr_number: int
    pr_url: str
    state: str
    head_commit: str
    merge_commit: str | None


def _query(call: Call, args: QueryArguments, target: Instance | None) -> describe.Pulls:
    desk = call.swarm.pulls
    if args.instance_id is not None:
        found = [desk.of(args.instance_id)]
    else:
        found = desk.listed(include_over=args.include_over, limit=describe.PULLS_MAX)
    return describe.query_pulls(found, call.db.now())


def _merge(call: Call, args: MergeArguments, target: Instance | None) -> dict[str, Any]:
    assert target is not None
    pull = call.swarm.pulls.merge(target.id, method=args.method, auto=args.auto, actor=call.actor)
    names = ("state", "head_commit", "merge_commit")
    return {"pr_number": pull.number, "pr_url": pull.url} | {name: getattr(pull, name) for name in names}


def _is_at(call: Call, result: dict[str, Any]) -> bool:
    """With new commits on the branch an equal call is a wish to bring them there."""
    pull = next((p for p in pulls.listed(call.db) if p.url == result["pr_url"]), None)
    if pull is None:
        return False
    tip = verdict.head_of(call.swarm.context, instances.get(call.db, pull.instance_id))
    return tip in (None, result["head_commit"])


def _is_merged(call: Call, result: dict[str, Any]) -> bool:
    """With another pull request since then an equal call is a wish to merge that one."""
    newest = call.swarm.pulls.of(call.arguments["instance_id"]).pull
    return bool(result["state"] == PullState.MERGED and result["pr_url"] == newest.url)


CREATE = Tool(
    name="create_pull_request",
    title="Open the pull request",
    description=(
        "Open the pull request of your branch when the work is finished and committed. A reviewer calls it "
        "to approve: it then opens the pull request of the branch it reviewed. Calling it again brings the one "
        "that is open to your newest commit."
    ),
    arguments=CreateArguments,
    result=CreateResult,
    run=_create,
    target=named_or_reviewed,
    holds=_is_at,
    writes=True,
    idempotent=True,
    long=True,
)

QUERY = Tool(
    name="query_pulls",
    title="Look at pull requests",
    description="What the checks and reviewers of pull requests say, as it was last seen, and how old that is.",
    arguments=QueryArguments,
    result=QueryResult,
    run=_query,
)

MERGE = Tool(
    name="merge_pull_request",
    title="Merge a pull request",
    description=(
        "Merge the pull request of an instance, if checks and reviewers allow it, at the commit they saw. "
        "One that they refused is merged only by a person, with `swarm pr merge --anyway`."
    ),
    arguments=MergeArguments,
    result=MergeResult,
    run=_merge,
    target=named_or_own,
    holds=_is_merged,
    writes=True,
    destructive=True,
    idempotent=True,
    long=True,
)
