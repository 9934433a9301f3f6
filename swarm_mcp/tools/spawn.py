"""Starting other agents: a review of one's work, or a second attempt at it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from swarm_core.models import Instance
from swarm_core.store import instances
from swarm_mcp.call import Call
from swarm_mcp.registry import Arguments, Result, Tool
from swarm_mcp.tools.target import TARGET, InstanceId, named_or_own

_PROMPT_MAX = 100_000


class ReviewArguments(Arguments):
    reviewer_prompt: str | None = Field(
        None, max_length=_PROMPT_MAX, description="What the reviewer should look at besides correctness and tests."
    )
    instance_id: InstanceId | None = Field(None, description=TARGET)


class ReviewResult(Result):
    review_instance_id: str
    session_name: str
    worktree_path: str
    branch_name: str = Field(description="The branch being reviewed.")
    reviewed_commit: str
    round: int
    max_rounds: int


class ForkArguments(Arguments):
    prompt: str | None = Field(
        None, max_length=_PROMPT_MAX, description="What the second attempt should do; by default the same task."
    )
    instance_id: InstanceId | None = Field(None, description=TARGET)


class ForkResult(Result):
    fork_instance_id: str
    session_name: str
    worktree_path: str
    branch_name: str
    base_commit: str | None


def _review(call: Call, args: ReviewArguments, target: Instance | None) -> dict[str, Any]:
    assert target is not None
    begun = call.claim.instance_id if call.claim is not None else None
    if begun is not None and call.swarm.review_link(begun).verdict is None:
        review = call.swarm.finish_spawn(begun)
    else:
        review = call.swarm.request_review(
            target.id, reviewer_prompt=args.reviewer_prompt or "", actor=call.actor, reserved=call.link
        )
    link = call.swarm.review_link(review.id)
    return {
        "review_instance_id": review.id,
        "session_name": review.tmux_session,
        "worktree_path": review.worktree_path,
        "branch_name": target.branch,
        "reviewed_commit": link.head_commit,
        "round": link.round,
        "max_rounds": call.swarm.context.settings.integer("review_rounds"),
    }


def _fork(call: Call, args: ForkArguments, target: Instance | None) -> dict[str, Any]:
    assert target is not None
    begun = call.claim.instance_id if call.claim is not None else None
    if begun is not None and not instances.get(call.db, begun).ended:
        fork = call.swarm.finish_spawn(begun)
    else:
        fork = call.swarm.fork(target.id, args.prompt or "", actor=call.actor, reserved=call.link)
    fork = instances.get(call.db, fork.id)
    return {
        "fork_instance_id": fork.id,
        "session_name": fork.tmux_session,
        "worktree_path": fork.worktree_path,
        "branch_name": fork.branch,
        "base_commit": fork.base_commit,
    }


def _is_under_review(call: Call, result: dict[str, Any]) -> bool:
    return call.swarm.review_link(result["review_instance_id"]).verdict is None


def _is_at_work(call: Call, result: dict[str, Any]) -> bool:
    return not instances.get(call.db, result["fork_instance_id"]).ended


REVIEW = Tool(
    name="spawn_review_instance",
    title="Ask for a review",
    description=(
        "Start a reviewer for your work. Call it when your task is done, tested and COMMITTED: uncommitted "
        "files or no commits are refused. Your status becomes waiting_review; wait for the reviewer's "
        "feedback, which is sent to you. After needs_work feedback, fix, commit and call it again. Rounds "
        "are limited."
    ),
    arguments=ReviewArguments,
    result=ReviewResult,
    run=_review,
    target=named_or_own,
    holds=_is_under_review,
    writes=True,
    long=True,
)

FORK = Tool(
    name="spawn_fork_instance",
    title="Start a second attempt",
    description=(
        "Start another agent on its own branch from your last commit, to try a different approach in "
        "parallel. Your uncommitted files are not taken along."
    ),
    arguments=ForkArguments,
    result=ForkResult,
    run=_fork,
    target=named_or_own,
    holds=_is_at_work,
    writes=True,
    long=True,
)
