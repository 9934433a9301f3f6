"""Several attempts at one task: who they are, and picking one, which ends the others."""

from __future__ import annotations

from dataclasses import dataclass, field

from swarm_core.errors import Conflict, InvalidInput, SwarmError
from swarm_core.models import Instance, Status
from swarm_core.ops import pulls, review, status
from swarm_core.ops.context import Context
from swarm_core.store import attempts, events, instances, relationships
from swarm_core.store import pulls as pull_rows


@dataclass(frozen=True, slots=True)
class Picked:
    """What picking has brought; `failures` by the id of whose session or pull request could not be ended yet."""

    id: str
    group: str
    ended: list[str]
    reviews: list[str]
    others: list[str]
    closed: list[int] = field(default_factory=list)
    failures: dict[str, SwarmError] = field(default_factory=dict)


def of(context: Context, instance: Instance) -> list[Instance]:
    """All attempts at the instance's task. Raises InvalidInput when it is the only one."""
    found = attempts.members(context.db, instance.attempt_group) if instance.attempt_group else []
    if not found:
        raise InvalidInput(
            f"{instance.id} is not one of several attempts",
            hint="`swarm work --count 2` starts several; `swarm compare ID ID` compares any instances",
        )
    return found


def to_end(context: Context, chosen: Instance) -> list[Instance]:
    """The attempts that picking this one would end, or whose pull requests it would close."""
    return [i for i in of(context, chosen) if i.id != chosen.id and (not i.ended or _has_pull(context, i))]


def pick(context: Context, chosen_id: str, *, keep: bool, actor: str) -> Picked:
    """Record the choice and, unless they are kept, that the others have ended: files and commits stay.

    In one transaction; whoever holds their locks ends the sessions afterwards. The same again is no change.
    """
    db = context.db
    with db.write():
        chosen = instances.get(db, chosen_id)
        everybody = of(context, chosen)
        if chosen.cleaned:
            raise Conflict(
                f"{chosen_id} is cleaned",
                code="WORKFLOW_INVALID_STATE",
                hint=f"`swarm restore {chosen_id}` brings it back",
                details={"status": chosen.status},
            )
        others = [i for i in everybody if i.id != chosen_id]
        ended = [] if keep else [i for i in others if not i.ended]
        reviews = [r for one in ended for r in _end(context, one, chosen_id, actor)]
        done = Picked(chosen_id, str(chosen.attempt_group), [i.id for i in ended], reviews, [i.id for i in others])
        if ended or attempts.picked(db, [i.id for i in everybody]) != chosen_id:
            left = [i.id for i in others if i not in ended]
            told = {"group": done.group, "picked": chosen_id, "ended": done.ended, "left": left}
            events.add(db, "attempt:picked", instance_id=chosen_id, actor=actor, metadata=told)
    return done


def close_pulls(context: Context, done: Picked, *, actor: str) -> None:
    """Close what the others have opened; what a forge does not close now stays open and is told."""
    for other in (instances.get(context.db, one) for one in done.others):
        if not _has_pull(context, other):
            continue
        context.report(f"closing the pull request of {other.id}")
        try:
            done.closed.append(pulls.close_pull(context, other.id, actor=actor).number)
        except SwarmError as error:
            done.failures[other.id] = error


def _end(context: Context, other: Instance, chosen_id: str, actor: str) -> list[str]:
    """End an attempt and the review of it that is under way; returns the latter's id."""
    db, why = context.db, f"another attempt was picked: {chosen_id}"
    link = relationships.open_review(db, other.id)
    review.end_round(db, other.id, actor=actor, reason=why)
    instances.set_fields(db, other.id, needs_person="")
    ending = [other.id] + ([link.child_id] if link else [])
    for one in ending:
        ended = instances.get(db, one)
        status.set_status(context, ended, Status.TERMINATED, message=why, actor=actor, by_person=True)
    return ending[1:]


def _has_pull(context: Context, instance: Instance) -> bool:
    return pull_rows.open_of(context.db, instance.repo_path, instance.branch) is not None
