"""Status: what an instance, or a person for it, says of where it is in its life."""

from __future__ import annotations

from collections.abc import Callable

from swarm_core.errors import InvalidInput
from swarm_core.models import TRANSITIONS, Instance, Kind, Relationship, Status, Verdict, Wanted
from swarm_core.ops import pull_approval, replaced, rules, stop, texts, verdict
from swarm_core.ops.context import Context, nothing
from swarm_core.store import actions, instances, relationships, tokens

MESSAGE_MAX = 64 * 1024
REASON_CHARS = 1000
_ITS_END = frozenset({Status.FAILED, Status.TERMINATED})
_OWN = _ITS_END | {Status.RUNNING}

# What an instance may set for itself. Nobody approves their own work.
SETTABLE: dict[Kind, frozenset[Status]] = {
    Kind.WORK: _OWN,
    Kind.FORK: _OWN,
    Kind.ADHOC: _OWN,
    Kind.REVIEW: _OWN | {Status.APPROVED},
}
# What a person may set for any instance; the rest follows from reviews and pull requests.
BY_PERSON = _OWN | {Status.APPROVED}


def set_status(
    context: Context,
    instance: Instance,
    status: str,
    *,
    message: str = "",
    actor: str,
    by_person: bool,
    recorded: Callable[[Instance], None] = nothing,
) -> Instance:
    """Change the status along TRANSITIONS; the same again is no change.

    With failed and terminated the token is revoked and a stop is recorded too: the supervisor ends the session
    after the agent has had its answer. A review that sets approved gives its verdict. A person who sets approved
    while the pull request is open approves that, and the status stays.
    """
    to = _allowed(instance, status, by_person=by_person)
    texts.check(message, "a message", max_bytes=MESSAGE_MAX, empty=True)
    reason = texts.cut(message, REASON_CHARS)
    if to == Status.APPROVED and instance.kind == Kind.REVIEW:
        return _approve(context, instance, reason, actor=actor, recorded=recorded)
    if to == Status.APPROVED != instance.status and rules.is_person(actor):
        pull = pull_approval.pull_of(context, instance)
        if pull is not None:
            return pull_approval.give(context, instance, pull, message=reason, actor=actor, recorded=recorded)
    approves = to == Status.APPROVED and to in TRANSITIONS[Status(instance.status)]
    head = verdict.require_commit(context, instance) if approves else None
    if approves:
        replaced.require_as_committed(context, instance, head)
    with context.db.write():
        before = (instances.get if by_person else instances.heard_from)(context.db, instance.id)
        after = _change(context, before, to, reason, actor)
        if approves:
            verdict.give_as_person(context.db, instance, Verdict.APPROVED, head, actor=actor)
        recorded(after)
    return after


def _allowed(instance: Instance, status: str, *, by_person: bool) -> Status:
    known = [str(s) for s in Status]
    if status not in known:
        raise InvalidInput(f"{status[:40]!r} is no status", hint=f"known: {', '.join(known)}")
    to, mine = Status(status), BY_PERSON if by_person else SETTABLE[Kind(instance.kind)]
    if to not in mine:
        own_work = to == Status.APPROVED
        raise rules.denied(
            rules.NOBODY_APPROVES_OWN_WORK if own_work else rules.NOT_SET_BY_HAND,
            f"{instance.id} cannot set its status to {to}"
            if not by_person
            else f"{to} is not set by hand: it follows from reviews and pull requests",
            hint="ask for a review; only a reviewer or a person approves"
            if own_work
            else f"it may be set to {', '.join(sorted(mine))}",
            kind=instance.kind,
            status=str(to),
            may_set=sorted(mine),
        )
    return to


def _change(context: Context, before: Instance, to: Status, reason: str, actor: str) -> Instance:
    db, instance_id = context.db, before.id
    if before.status == to:
        return before
    instances.change_status(db, instance_id, to, actor=actor, reason=reason)
    if to in _ITS_END:
        tokens.revoke(db, instance_id)
    if to in _ITS_END and before.wanted == Wanted.RUNNING:
        if actions.open_for(db, instance_id) is None:
            stop.request(context, before, actor=actor)
        else:  # its start is not closed yet; reconciling ends a session that nobody wants
            instances.set_fields(db, instance_id, wanted=Wanted.STOPPED)
    return instances.get(db, instance_id)


def _approve(
    context: Context, review: Instance, reason: str, *, actor: str, recorded: Callable[[Instance], None]
) -> Instance:
    db = context.db
    link = relationships.review_link(db, review.id)
    work = instances.get(db, link.parent_id)
    replaced.require_as_committed(context, work, link.head_commit)
    head = verdict.head_of(context, work)
    with db.write():
        link = relationships.review_link(db, review.id)
        if link.verdict == Verdict.APPROVED:
            _change(context, instances.get(db, review.id), Status.APPROVED, reason, actor)
        else:
            _give(context, link, head, reason, actor)
        after = instances.get(db, review.id)
        recorded(after)
    return after


def _give(context: Context, link: Relationship, head: str | None, reason: str, actor: str) -> None:
    stale = verdict.give(
        context.db, link, Verdict.APPROVED, actor=actor, head_commit=head, reason=reason or "approved"
    )
    verdict.tell_approved(context.db, link, actor=actor, stale=stale, more=reason)
