"""Opening the pull request of finished work."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from swarm_core.models import Instance, Pull
from swarm_mcp.call import Call
from swarm_mcp.registry import Arguments, Result, Tool
from swarm_mcp.tools.target import TARGET, InstanceId, named_or_reviewed, review_id


class CreateArguments(Arguments):
    title: str = Field(min_length=1, max_length=256, description="One line: what changes for its reader.")
    description: str = Field(
        max_length=65_536, description="What was done, why, and how it was tested (Markdown)."
    )
    base_branch: str | None = Field(
        None, min_length=1, max_length=250, description="Branch to merge into; by default the one it started from."
    )
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
        actor=call.actor,
        review_id=review_id(call),
        recorded=recorded,
    )
    return answer


CREATE = Tool(
    name="create_pull_request",
    title="Open the pull request",
    description=(
        "Open the pull request of your branch when the work is finished and committed. A reviewer calls it "
        "to approve: it then opens the pull request of the branch it reviewed. Calling it again returns the"
        " one that is open."
    ),
    arguments=CreateArguments,
    result=CreateResult,
    run=_create,
    target=named_or_reviewed,
    writes=True,
    idempotent=True,
    long=True,
)
