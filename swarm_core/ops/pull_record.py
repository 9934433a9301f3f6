"""Writing down what is known of a pull request, and what follows from it, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarm_core.forge import RemotePull
from swarm_core.models import TRANSITIONS, Instance, Pull, PullState, Relationship, Status, Verdict
from swarm_core.ops import brought, review, verdict
from swarm_core.ops.context import Context
from swarm_core.store import check_runs, events, instances, messages, pull_facts, pulls, relationships


def opened(
    context: Context,
    work: Instance,
    remote: RemotePull,
    *,
    forge: str,
    repository: str,
    body: str,
    actor: str,
    uncommitted: Mapping[str, Any],
    pushed_commit: str | None = None,
) -> Pull:
    """The open pull request of a branch, new or at another commit, or one that was closed and is open again."""
    db = context.db
    known = pulls.numbered(db, forge, work.repo_path, remote.number, repository)
    facts: dict[str, Any] = {
        "url": remote.url,
        "draft": remote.draft,
        "head_commit": remote.head_commit,
        "base_branch": remote.base_branch,
        "state": str(PullState.OPEN),
        "forge_updated_at": remote.updated_at,
    }
    if pushed_commit is not None:
        facts["pushed_commit"] = pushed_commit
    if known is None:
        pull = _insert(context, work, remote, facts, forge=forge, repository=repository, body=body, actor=actor)
        told = _told(pull) | {"base_branch": pull.base_branch, **uncommitted}
        events.add(db, "pull:opened", instance_id=work.id, actor=actor, metadata=told)
    else:
        moved: dict[str, Any] = {}
        if known.head_commit != remote.head_commit:
            moved = {"mergeable": None, "unrelated": False, "etags": "{}", "head_at": db.now()}
            pull_facts.replace_checks(db, known.id, [])
            check_runs.drop(db, known.id)
        pull = pulls.change(db, known, next_at=None, closed_at=None, **facts, **moved)
        _tell_change(context, known, pull, actor)
    return pull


def approve(context: Context, link: Relationship, pull: Pull, actor: str, *, opens: bool) -> None:
    """A reviewer that opens the pull request of what it has reviewed approves it."""
    db = context.db
    link = relationships.review_link(db, link.child_id)
    decides = link.verdict != Verdict.APPROVED
    if decides:
        reason = f"pull request #{pull.number}"
        verdict.give(db, link, Verdict.APPROVED, actor=actor, head_commit=link.head_commit, reason=reason)
    if decides or opens:
        where = f"Pull request #{pull.number} is open: {pull.url}"
        verdict.tell_approved(db, link, actor=actor, stale=False, more=where)
    instances.set_fields(db, link.child_id, pr_number=pull.number, pr_url=pull.url)


def on_instance(context: Context, work: Instance, pull: Pull, actor: str) -> None:
    """An ended instance keeps its status: the pull request lives without its agent."""
    db = context.db
    _move(context, work.id, Status.PR_CREATED, f"pull request #{pull.number}", actor)
    instances.set_fields(db, work.id, pr_number=pull.number, pr_url=pull.url)
    review.unmark(db, work.id)


def merged(context: Context, pull: Pull, *, commit: str | None, actor: str) -> Pull:
    """It was merged; twice is no change. That ends its loop: open reviews, news on the way, and the instance."""
    if pull.state == PullState.MERGED:
        return pull
    db = context.db
    done = pulls.change(
        db, pull, state=str(PullState.MERGED), merge_commit=commit, closed_at=db.now(), auto_merge=""
    )
    told = _told(pull) | {"base_branch": pull.base_branch, "merge_commit": commit}
    events.add(db, "pull:merged", instance_id=pull.instance_id, actor=actor, metadata=told)
    _end_loop(context, done, Status.PR_MERGED, f"pull request #{pull.number} was merged", actor)
    return brought.drop(db, done)


def closed(context: Context, pull: Pull, *, actor: str) -> Pull:
    """It was closed without a merge; twice is no change."""
    if pull.state != PullState.OPEN:
        return pull
    db = context.db
    done = pulls.change(db, pull, state=str(PullState.CLOSED), closed_at=db.now(), auto_merge="")
    events.add(db, "pull:closed", instance_id=pull.instance_id, actor=actor, metadata=_told(pull))
    _end_loop(context, done, Status.PR_CLOSED, f"pull request #{pull.number} was closed", actor)
    return brought.drop(db, done)


def reopened(context: Context, pull: Pull, *, actor: str) -> Pull:
    """A closed one is open again, unless its branch has another one by now; twice is no change."""
    db = context.db
    if pull.state != PullState.CLOSED or pulls.open_of(db, pull.repo_path, pull.head_branch) is not None:
        return pull
    done = pulls.change(db, pull, state=str(PullState.OPEN), closed_at=None, next_at=None)
    events.add(db, "pull:reopened", instance_id=pull.instance_id, actor=actor, metadata=_told(done))
    _move(context, pull.instance_id, Status.PR_CREATED, f"pull request #{pull.number} was reopened", actor)
    return done


def _insert(
    context: Context,
    work: Instance,
    remote: RemotePull,
    facts: dict[str, Any],
    *,
    forge: str,
    repository: str,
    body: str,
    actor: str,
) -> Pull:
    now = context.db.now()
    return pulls.insert(
        context.db,
        Pull(
            id=0,
            forge=forge,
            repo_path=work.repo_path,
            number=remote.number,
            instance_id=work.id,
            opened_by=actor,
            head_branch=work.branch,
            title=remote.title,
            body=body,
            created_at=now,
            updated_at=now,
            repository=repository,
            head_at=now,
            **facts,
        ),
    )


def _tell_change(context: Context, before: Pull, pull: Pull, actor: str) -> None:
    about = _told(pull)
    if before.state != PullState.OPEN:
        events.add(context.db, "pull:reopened", instance_id=pull.instance_id, actor=actor, metadata=about)
    if before.head_commit != pull.head_commit:
        told = {"number": pull.number, "url": pull.url, "from": before.head_commit, "commit": pull.head_commit}
        events.add(context.db, "pull:updated", instance_id=pull.instance_id, actor=actor, metadata=told)


def _end_loop(context: Context, pull: Pull, to: Status, reason: str, actor: str) -> None:
    db = context.db
    review.end_round(db, pull.instance_id, actor=actor, reason=reason)
    for message_id in {m for m in pull_facts.told(db, pull.id).values() if m is not None}:
        messages.withdraw(db, message_id, why=reason)
    _move(context, pull.instance_id, to, reason, actor)
    review.unmark(db, pull.instance_id)


def _move(context: Context, instance_id: str, to: Status, reason: str, actor: str) -> None:
    """Work that went on after its pull request was opened comes back to it first; what has ended stays so."""
    status = Status(instances.get(context.db, instance_id).status)
    steps = [to] if to in TRANSITIONS[status] else [Status.PR_CREATED, to]
    if all(after in TRANSITIONS[before] for before, after in zip([status, *steps], steps, strict=False)):
        for step in steps:
            instances.change_status(context.db, instance_id, step, actor=actor, reason=reason)


def _told(pull: Pull) -> dict[str, Any]:
    return {"number": pull.number, "url": pull.url, "branch": pull.head_branch, "commit": pull.head_commit}
