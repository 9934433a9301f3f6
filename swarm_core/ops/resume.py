"""Resume: which of the agents that lost their sessions still have work to do."""

from __future__ import annotations

from swarm_core.models import Instance, Kind, Status, Wanted
from swarm_core.ops.reconcile import SESSION_LOST
from swarm_core.store import instances, relationships
from swarm_core.store.database import Database

REVIEW_OVER = "review_over"
_OVER = frozenset({Status.PR_MERGED, Status.PR_CLOSED, Status.TERMINATED})


def lost(db: Database) -> list[Instance]:
    """Return instances whose session vanished under them, as in a reboot."""
    found = instances.listed(db)
    return [i for i in found if i.wanted == Wanted.STOPPED and i.activity_detail == SESSION_LOST]


def why_over(db: Database, instance: Instance) -> str:
    """Return why there is nothing left to resume: a status, or `review_over`; empty when there is."""
    if instance.status in _OVER:
        return str(instance.status)
    if instance.kind == Kind.REVIEW:
        link = relationships.find_review_link(db, instance.id)
        return REVIEW_OVER if link is None or link.verdict is not None else ""
    return ""
