"""What a reviewer says to the work it reviews."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from swarm_core.models import Activity, Feedback, Instance
from swarm_mcp.call import Call
from swarm_mcp.receipts import Receipts
from swarm_mcp.registry import Arguments, Result, Tool
from swarm_mcp.tools.target import TARGET, InstanceId, named_or_reviewed, review_id

_RECEIPT_WITHIN = 1.5


class SendArguments(Arguments):
    feedback: str = Field(
        min_length=1,
        max_length=200_000,
        description="Markdown: what is wrong, where (file:line), and how to fix it.",
    )
    feedback_type: Literal["needs_work", "suggestions", "clarification"] = Field(
        description="needs_work ends this review round; suggestions and clarification do not."
    )
    priority: Literal["low", "medium", "high"] | None = Field(None, description="By default medium.")
    instance_id: InstanceId | None = Field(None, description=TARGET)


class SendResult(Result):
    feedback_id: str
    delivery_status: Literal["delivered", "queued"] = Field(
        description="delivered: the author has seen it. queued: it will when it can; nothing is left to do."
    )
    target_instance_id: str
    reviewed_commit: str | None
    head_commit: str | None
    stale: bool = Field(description="True when the work has moved on since the commit that was reviewed.")


def _send(call: Call, args: SendArguments, target: Instance | None) -> dict[str, Any]:
    assert target is not None
    answer: dict[str, Any] = {}

    def recorded(sent: Feedback) -> None:
        answer.update(
            feedback_id=sent.id,
            delivery_status=sent.delivery_status,
            target_instance_id=sent.to_instance,
            reviewed_commit=sent.reviewed_commit,
            head_commit=sent.head_commit,
            stale=sent.stale,
        )
        call.finish(answer)

    sent = call.swarm.send_feedback(
        target.id,
        args.feedback,
        feedback_type=args.feedback_type,
        priority=args.priority or "medium",
        actor=call.actor,
        review_id=review_id(call),
        recorded=recorded,
    )
    if target.activity == Activity.IDLE and call.swarm.coordinator() is not None:
        call.awaits = sent.message_id
    return answer


async def _add_receipt(call: Call, answer: dict[str, Any], receipts: Receipts) -> dict[str, Any]:
    if call.awaits is None or not await receipts.seen(call.awaits, _RECEIPT_WITHIN):
        return answer
    return answer | {"delivery_status": "delivered"}


SEND = Tool(
    name="send_feedback",
    title="Send feedback",
    description=(
        "Reviewers only: send your findings to the work instance you review. Use needs_work once, with "
        "everything that must change; it ends the round and returns the author to work. To approve, do not "
        'send feedback: call update_instance_status with status "approved", or create_pull_request.'
    ),
    arguments=SendArguments,
    result=SendResult,
    run=_send,
    after=_add_receipt,
    target=named_or_reviewed,
    writes=True,
)
