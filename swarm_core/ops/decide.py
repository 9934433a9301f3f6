"""What only a person decides of work: accept it, give it another scope, abandon it. And reviews that never end."""

from __future__ import annotations

from datetime import timedelta

from swarm_core.errors import Conflict
from swarm_core.models import (
    Activity,
    Instance,
    MessageKind,
    Relationship,
    Source,
    Status,
    Verdict,
    iso,
    parse_iso,
)
from swarm_core.ops import pull_approval, replaced, review, rules, status, texts, verdict
from swarm_core.ops.context import Context
from swarm_core.store import events, instances, messages, relationships
from swarm_core.store.database import Database

_SCOPE_MAX = 64 * 1024
_RECENT = 50


def accept(context: Context, work: Instance, *, message: str = "", actor: str) -> Instance:
    """Approve the work at the commit it is at, whatever its reviews say; raises NO_CHANGES without one.

    Work whose pull request is open keeps its status.
    """
    if not rules.is_person(actor):
        raise rules.denied(
            rules.ONLY_A_PERSON_ACCEPTS,
            f"{actor} cannot accept work",
            hint="ask for a review, or ask a person to run `swarm accept INSTANCE`",
        )
    texts.check(message, "a message", max_bytes=_SCOPE_MAX, empty=True)
    if (pull := pull_approval.pull_of(context, work)) is not None:
        return pull_approval.give(context, work, pull, message=message, actor=actor)
    _require_author(work)
    head = verdict.require_commit(context, work)
    replaced.require_as_committed(context, work, head)
    with context.db.write():
        if _is_accepted(context.db, work.id, head):
            raise Conflict(
                f"{work.id} is accepted at commit {head} already",
                code="WORKFLOW_INVALID_STATE",
                hint=f"`swarm show {work.id}` says who did",
            )
        review.end_round(context.db, work.id, actor=actor, reason=f"{actor} has decided")
        reason = f"accepted by {actor}"
        after = instances.change_status(context.db, work.id, Status.APPROVED, actor=actor, reason=reason)
        instances.set_fields(context.db, work.id, needs_person="")
        verdict.give_as_person(context.db, work, Verdict.APPROVED, head, actor=actor)
        told = {"commit": head, "message": message}
        events.add(context.db, "work:accepted", instance_id=work.id, actor=actor, metadata=told)
        body = f"Your work is accepted at commit {head}. Call create_pull_request now. {message}"
        messages.accept(context.db, work.id, sender=actor, body=body.strip(), kind=MessageKind.REVIEW)
    return after


def _is_accepted(db: Database, instance_id: str, head: str | None) -> bool:
    """Whether somebody was quicker; its agent is told once."""
    now = instances.get(db, instance_id)
    recent = events.newest(db, instance_id=instance_id, limit=_RECENT) if now.status == Status.APPROVED else []
    return not now.needs_person and any(
        e.name == "work:accepted" and e.metadata.get("commit") == head for e in recent
    )


def rescope(context: Context, work: Instance, task: str, *, actor: str) -> Instance:
    """Give the work another scope; its review rounds count from here."""
    _require_author(work)
    texts.check(task, "a scope", max_bytes=_SCOPE_MAX)
    with context.db.write():
        review.end_round(context.db, work.id, actor=actor, reason=f"{actor} has decided")
        instances.leave_review(context.db, work.id, actor=actor, reason=f"{actor} changed its scope")
        if instances.get(context.db, work.id).status == Status.APPROVED:
            instances.change_status(context.db, work.id, Status.RUNNING, actor=actor, reason="its scope changed")
        instances.set_fields(context.db, work.id, needs_person="")
        events.add(context.db, "work:rescoped", instance_id=work.id, actor=actor, metadata={"scope": task})
        body = f"The scope of your work has changed. From now on it is:\n\n{task}"
        messages.accept(context.db, work.id, sender=actor, body=body, kind=MessageKind.REVIEW)
    return instances.get(context.db, work.id)


def abandon(context: Context, work: Instance, *, why: str = "", actor: str) -> Instance:
    """Give the work up: its agent is ended, its files and commits stay."""
    reason = why or f"abandoned by {actor}"
    with context.db.write():
        review.end_round(context.db, work.id, actor=actor, reason=f"{actor} has decided")
        instances.set_fields(context.db, work.id, needs_person="")
        if work.activity == Activity.EXITED:  # a lost session is not resumed any more
            instances.observe(context.db, work.id, Activity.EXITED, source=Source.PROCESS, detail="abandoned")
        events.add(context.db, "work:abandoned", instance_id=work.id, actor=actor, metadata={"why": why})
        return status.set_status(context, work, Status.FAILED, message=reason, actor=actor, by_person=True)


def end_overdue_reviews(context: Context) -> list[str]:
    """Give up reviews that have had their time; nothing is approved by that, and a person is told."""
    hours = context.settings.number("review_hours")
    oldest = iso(parse_iso(context.db.now()) - timedelta(hours=hours))
    ended = []
    for link in relationships.open_since(context.db, oldest):
        with context.db.write():
            link = relationships.review_link(context.db, link.child_id)
            if link.verdict is None:
                _time_out(context, link, hours)
                ended.append(link.child_id)
    return ended


def _time_out(context: Context, link: Relationship, hours: float) -> None:
    db, why = context.db, f"{link.child_id} gave no verdict within {hours:g} hours"
    relationships.set_verdict(db, link.id, Verdict.NONE)
    told = {"review": link.child_id, "round": link.round, "hours": hours}
    events.add(db, "review:timeout", instance_id=link.parent_id, actor="supervisor", metadata=told)
    instances.leave_review(db, link.parent_id, actor="supervisor", reason=why)
    instances.set_fields(db, link.parent_id, needs_person=why)
    body = f"The review {link.child_id} gave no verdict in time. Nothing was approved; a person was told."
    messages.accept(db, link.parent_id, sender="supervisor", body=body, kind=MessageKind.REVIEW)


def _require_author(work: Instance) -> None:
    if work.ended or work.cleaned:
        raise Conflict(
            f"{work.id} is {'cleaned' if work.cleaned else work.status}",
            code="WORKFLOW_INVALID_STATE",
            hint=f"`swarm restart {work.id}` starts it again",
            details={"status": work.status},
        )
