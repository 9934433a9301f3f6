"""A person approves an open pull request: a verdict on its head commit, which leaves the status as it is."""

from __future__ import annotations

from collections.abc import Callable

from swarm_core.errors import Conflict
from swarm_core.models import TRANSITIONS, Instance, MessageKind, Pull, PullState, Status, Verdict
from swarm_core.ops import merging, pull_look, replaced, review, verdict
from swarm_core.ops.context import Context, nothing
from swarm_core.ops.pull_status import readiness
from swarm_core.store import events, instances, messages, pulls


def pull_of(context: Context, work: Instance) -> Pull | None:
    """The open pull request of work that cannot become approved itself."""
    if Status.APPROVED in TRANSITIONS[Status(work.status)]:
        return None
    return pulls.open_of(context.db, work.repo_path, work.branch)


def give(
    context: Context,
    work: Instance,
    pull: Pull,
    *,
    message: str = "",
    actor: str,
    recorded: Callable[[Instance], None] = nothing,
) -> Instance:
    """Approve the pull request; raises Conflict (PULL_HEAD_MOVED) when its branch has newer commits."""
    merging.require_head(context, pull)
    replaced.require_as_committed(context, work, pull.head_commit)
    with context.db.write():
        _require_news(context, pull, actor)
        review.end_round(context.db, work.id, actor=actor, reason=f"{actor} has decided")
        instances.set_fields(context.db, work.id, needs_person="")
        verdict.give_as_person(context.db, work, Verdict.APPROVED, pull.head_commit, actor=actor)
        told = {"commit": pull.head_commit, "message": message, "number": pull.number}
        events.add(context.db, "work:accepted", instance_id=work.id, actor=actor, metadata=told)
        if not (work.ended or work.cleaned):
            body = f"Your pull request #{pull.number} is approved at commit {pull.head_commit}. {message}"
            messages.accept(context.db, work.id, sender=actor, body=body.strip(), kind=MessageKind.REVIEW)
        after = instances.get(context.db, work.id)
        recorded(after)
    return after


def _require_news(context: Context, pull: Pull, actor: str) -> None:
    """Raise Conflict when it is not the pull request that was looked at, or the same person has approved it."""
    now = pulls.get(context.db, pull.id)
    if (now.state, now.head_commit) != (PullState.OPEN, pull.head_commit):
        raise Conflict(
            f"pull request #{pull.number} has changed a moment ago",
            code="PULL_HEAD_MOVED",
            hint=f"`swarm pr show {pull.instance_id}`, then approve it again",
        )
    if actor in readiness(pull_look.facts_of(context, now)).approved_by:
        raise Conflict(
            f"{actor} has approved pull request #{pull.number} at commit {pull.head_commit} already",
            code="WORKFLOW_INVALID_STATE",
            hint=f"`swarm pr merge {pull.instance_id}` merges it",
        )
