"""The verdict of a review: recorded once, for the commit that was reviewed, with what follows from it."""

from __future__ import annotations

from swarm_core import ids
from swarm_core.errors import Conflict
from swarm_core.models import AUTOMATION, Instance, MessageKind, Relationship, Status, Verdict
from swarm_core.ops import lineage, rules
from swarm_core.ops.context import Context, place
from swarm_core.store import events, instances, messages, relationships, verdicts
from swarm_core.store.database import Database


def link_of(db: Database, review_id: str, work_id: str) -> Relationship:
    """What a review reviews; raises Denied when that is not the work."""
    link = relationships.review_link(db, review_id)
    if link.parent_id != work_id:
        raise rules.denied(
            rules.ONLY_THE_REVIEWER,
            f"{review_id} reviews {link.parent_id}, not {work_id}",
            hint="a reviewer acts on the work it reviews",
            reviews=link.parent_id,
            target=work_id,
        )
    return link


def require_open(db: Database, link: Relationship) -> None:
    """Raise Conflict unless the review may still give its verdict."""
    review = instances.get(db, link.child_id)
    if link.verdict == Verdict.NONE or review.ended:
        raise Conflict(
            f"the round of {link.child_id} is over: its agent ended without a verdict",
            code="WORKFLOW_INVALID_STATE",
            hint=f"{link.parent_id} has to ask for a new review",
            details={"verdict": link.verdict, "status": review.status},
        )
    if link.verdict is not None:
        raise Conflict(
            f"{link.child_id} has given its verdict already: {link.verdict}",
            code="WORKFLOW_INVALID_STATE",
            hint="suggestions can still be sent; a new round has a new review",
            details={"verdict": link.verdict, "verdict_at": link.verdict_at},
        )


def head_of(context: Context, work: Instance) -> str | None:
    """The commit the work's branch is at now; ask before the transaction."""
    return context.host(work).branch_tip(place(work))


def require_commit(context: Context, work: Instance) -> str:
    """The commit that an approval is of; raises NO_CHANGES while the work has none. Ask before the transaction."""
    facts = context.host(work).branch_state(place(work), lineage.origin(context.db, work).base_branch)
    head = facts["head_commit"]
    if head is None or facts["own_commits"] == 0:
        raise Conflict(
            f"{work.branch} has no commits of its own, so there is nothing to approve",
            code="NO_CHANGES",
            hint=f"`swarm msg {work.id} TEXT` asks the agent to commit its work",
            details={"branch": work.branch, "uncommitted": facts["dirty"]},
        )
    return head


def give(
    db: Database, link: Relationship, verdict: Verdict, *, actor: str, head_commit: str | None, reason: str = ""
) -> bool:
    """Record the verdict inside the caller's transaction and move review and work; True when it is stale.

    Stale is a verdict on another commit than the branch is at now. What was not reviewed is not approved: after
    a stale approval the work goes on instead of being approved, and a person's newer refusal stays the last word.
    """
    require_open(db, link)
    stale = link.head_commit != head_commit
    if verdict == Verdict.NEEDS_WORK and relationships.disputed(db, link.parent_id, link.head_commit):
        why = f"author and reviewers disagree about commit {short(link.head_commit)}"
        instances.set_fields(db, link.parent_id, needs_person=why)
        about = {"commit": link.head_commit, "review": link.child_id}
        events.add(db, "review:disagreement", instance_id=link.parent_id, actor=actor, metadata=about)
    relationships.set_verdict(db, link.id, verdict)
    if not (stale and verdict == Verdict.APPROVED and verdicts.refused_since(db, link.parent_id, link.created_at)):
        _keep(db, link.parent_id, link.head_commit, verdict, by=link.child_id if ids.is_id(actor) else actor)
    instances.heard_from(db, link.child_id)
    to = Status.APPROVED if verdict == Verdict.APPROVED else Status.CHANGES_REQUESTED
    old = f"of {short(link.head_commit)}; the work has moved on to {short(head_commit)}" if stale else ""
    said = "; ".join(part for part in (old and f"a verdict {old}", reason) if part)
    instances.change_status(db, link.child_id, to, actor=actor, reason=said)
    _move_work(db, link, verdict, actor=actor, stale=stale)
    told = {
        "review": link.child_id,
        "round": link.round,
        "verdict": str(verdict),
        "reviewed_commit": link.head_commit,
        "head_commit": head_commit,
        "stale": stale,
    }
    events.add(db, "review:verdict", instance_id=link.parent_id, actor=actor, metadata=told)
    return stale


def give_as_person(db: Database, work: Instance, verdict: Verdict, head_commit: str | None, *, actor: str) -> None:
    """Record what a person decided about the commit that the work is at, inside the caller's transaction."""
    _keep(db, work.id, head_commit, verdict, by=actor)


def tell_approved(db: Database, link: Relationship, *, actor: str, stale: bool, more: str = "") -> None:
    """Tell the author; inside the caller's transaction."""
    text = f"{link.child_id} approved commit {link.head_commit}."
    if stale:
        text += " Your branch has moved on since: what came after it is not approved. Ask for another review."
    messages.accept(db, link.parent_id, sender=actor, body=f"{text} {more}".strip(), kind=MessageKind.REVIEW)


def short(commit: str | None) -> str:
    return commit[:12] if commit else "no commit"


def _keep(db: Database, work_id: str, commit: str | None, verdict: Verdict, *, by: str) -> None:
    """An automation may ask for changes like a person; it approves nothing."""
    if commit is not None and (verdict == Verdict.NEEDS_WORK or not by.startswith(AUTOMATION)):
        verdicts.add(db, work_id, commit, verdict, by=by)


def _move_work(db: Database, link: Relationship, verdict: Verdict, *, actor: str, stale: bool) -> None:
    if verdict == Verdict.NEEDS_WORK:
        instances.leave_review(db, link.parent_id, actor=actor, reason=f"{link.child_id} asks for changes")
    elif stale:
        reason = f"{link.child_id} approved {short(link.head_commit)}, and the branch has moved on since"
        instances.leave_review(db, link.parent_id, actor=actor, reason=reason)
    elif instances.get(db, link.parent_id).status == Status.WAITING_REVIEW:
        instances.change_status(
            db, link.parent_id, Status.APPROVED, actor=actor, reason=f"approved by {link.child_id}"
        )
