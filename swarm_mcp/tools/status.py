"""What an instance says of its own state."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from swarm_core.models import Instance, PrincipalKind
from swarm_core.store import instances
from swarm_mcp.call import Call
from swarm_mcp.registry import Arguments, Result, Tool
from swarm_mcp.tools.target import TARGET, InstanceId, named_or_own

Settable = Literal["running", "approved", "failed", "terminated"]


class UpdateArguments(Arguments):
    status: Settable = Field(
        description="running: at work again. approved: a reviewer's verdict. failed: given up. terminated: done."
    )
    message: str | None = Field(None, max_length=10_000, description="Why; shown to the maintainer.")
    instance_id: InstanceId | None = Field(None, description=TARGET)


class UpdateResult(Result):
    instance_id: str
    status: str
    previous_status: str


def _update(call: Call, args: UpdateArguments, target: Instance | None) -> dict[str, Any]:
    assert target is not None
    answer: dict[str, Any] = {}

    def recorded(after: Instance) -> None:
        answer.update(instance_id=after.id, status=after.status, previous_status=target.status)
        call.finish(answer)

    call.swarm.set_status(
        target.id,
        args.status,
        message=args.message or "",
        actor=call.actor,
        by_person=call.principal.kind != PrincipalKind.INSTANCE,
        recorded=recorded,
    )
    return answer


def _is_so(call: Call, result: dict[str, Any]) -> bool:
    return bool(instances.get(call.db, result["instance_id"]).status == result["status"])


def _is_quick(given: dict[str, Any]) -> bool:
    """An approval reads the branch, and an end revokes a token: the event loop would not notice its own write."""
    return given.get("status") == "running"


UPDATE = Tool(
    name="update_instance_status",
    title="Update your status",
    description=(
        'Say how it goes. A reviewer sets "approved" when the work can be merged as it is. Any agent sets '
        '"failed" with a message when it cannot go on, "terminated" when nothing is left to do (both end '
        'your session), and "running" to go on working after a pull request or an approval.'
    ),
    arguments=UpdateArguments,
    result=UpdateResult,
    run=_update,
    quick=_is_quick,
    target=named_or_own,
    holds=_is_so,
    writes=True,
    idempotent=True,
    destructive=True,
)
