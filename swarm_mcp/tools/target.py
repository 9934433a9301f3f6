"""Which instance a call acts on."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from swarm_core.errors import InvalidInput, NotFound
from swarm_core.models import Instance, Kind
from swarm_core.store import instances, relationships
from swarm_mcp.call import Call

InstanceId = Annotated[str, Field(pattern=r"^(work|review|fork|adhoc)(-[1-9]\d{0,8})?-a[1-9]\d{0,5}(-r\d{1,4})?$")]
TARGET = "The instance to act on. Leave it out: an agent acts on its own work. Only a person needs it."


def named_or_own(call: Call, args: Any) -> Instance:
    if args.instance_id is not None:
        return instances.get(call.db, args.instance_id)
    own = call.load_own()
    if own is None:
        raise InvalidInput(
            f"{call.tool} needs instance_id, because {call.actor} is no instance",
            hint="query_instances lists the instances",
        )
    return own


def named_or_reviewed(call: Call, args: Any) -> Instance:
    """A reviewer acts on what it reviews, everybody else on their own."""
    own = call.load_own()
    if args.instance_id is None and own is not None and own.kind == Kind.REVIEW:
        return reviewed_by(call, own)
    return named_or_own(call, args)


def reviewed_by(call: Call, review: Instance) -> Instance:
    for link in relationships.of(call.db, review.id):
        if link.type == "spawned_review" and link.child_id == review.id:
            return instances.get(call.db, link.parent_id)
    raise NotFound(
        f"{review.id} reviews nothing: it has no relationship to a work instance",
        code="INSTANCE_NOT_FOUND",
        hint="query_instances with include_relationships shows what is known",
    )


def review_id(call: Call) -> str | None:
    """The caller, if it speaks as a reviewer."""
    own = call.load_own()
    return own.id if own is not None and own.kind == Kind.REVIEW else None
