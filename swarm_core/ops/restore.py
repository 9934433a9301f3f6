"""Restore: the worktree of a cleaned or damaged instance comes back, with its uncommitted work."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from swarm_core.errors import Conflict, NotFound
from swarm_core.models import Instance, Preserved, Wanted
from swarm_core.ops import folders, removal, unrecorded
from swarm_core.ops.context import Context, place
from swarm_core.ops.steps import Job, Operation, Step
from swarm_core.store import actions, events, instances, preserved

_UNDONE = "undone restore"  # what lay in a worktree that could not be restored: hooks write files, agents did not


def request(context: Context, instance: Instance, *, ref: str | None, actor: str) -> None:
    """Record what is to come back: the worktree if it is gone, and the newest or the named preserved work."""
    if instance.wanted == Wanted.RUNNING:
        raise Conflict(
            f"{instance.id} is {instance.status}",
            code="INSTANCE_RUNNING",
            hint=f"`swarm stop {instance.id}` first",
        )
    chosen = _choose(context, instance, ref)
    facts = context.host(instance).snapshot(
        [{"instance_id": instance.id, "agent": instance.agent, "worktree_path": instance.worktree_path}]
    )
    present, here = facts[instance.id]["worktree"], folders.in_this_home(context, instance)
    if present:
        context.host(instance).require_registered(place(instance))
    elif Path(here).is_dir():
        raise Conflict(
            f"the worktree of {instance.id} is at {here}",
            code="WORKTREE_EXISTS",
            hint="`swarm doctor --fix` connects it again",
            details={"path": here},
        )
    if present and chosen is None:
        raise NotFound(
            f"the worktree of {instance.id} is there and nothing else was preserved",
            code="NOTHING_PRESERVED",
            hint=f"`swarm restart {instance.id}` goes on with the work",
        )
    details = {"ref": chosen.ref if chosen else None, "worktree_was_there": present}
    with context.db.write():
        actions.start(context.db, instance.id, "restore", actor=actor, details=details)
        if not present:
            instances.set_fields(context.db, instance.id, worktree_path=here)


def _choose(context: Context, instance: Instance, ref: str | None) -> Preserved | None:
    """What is recorded, or else what only the repository knows of."""
    with contextlib.suppress(NotFound):
        chosen = _recorded(preserved.of(context.db, instance.id), instance, ref)
        if chosen is not None:
            return chosen
    if Path(instance.repo_path).is_dir():
        unrecorded.record(context, instance)
    return _recorded(preserved.of(context.db, instance.id), instance, ref)


def _recorded(kept: list[Preserved], instance: Instance, ref: str | None) -> Preserved | None:
    """The named one, else the newest that was not brought back yet; what was restored once is superseded."""
    if ref is None:
        waiting = [one for one in kept if one.restored_at is None]
        from_agents = [one for one in waiting if one.why != _UNDONE]
        return (from_agents or waiting)[-1] if waiting else None
    for one in kept:
        if ref in (one.ref, one.commit, str(one.id)):
            return one
    raise NotFound(
        f"{instance.id} has no preserved work {ref[:200]!r}",
        code="NOTHING_PRESERVED",
        hint=f"`swarm show {instance.id}` lists what was preserved",
    )


def _worktree(job: Job) -> None:
    if not job.action.details["worktree_was_there"]:
        job.host.attach_worktree(place(job.instance), head_commit=job.instance.head_commit, keep_open=job.lock)


def _undo_worktree(job: Job) -> None:
    if not job.action.details["worktree_was_there"]:
        removal.undo_worktree(job)


def _work(job: Job) -> dict[str, Any]:
    ref = job.action.details["ref"]
    if not ref:
        return {"files": 0, "left": []}
    back = job.host.restore_work(place(job.instance), ref)
    return {"files": len(back["files"]), "left": back["left"]}


def _done(job: Job) -> None:
    """A name that another instance has taken meanwhile stays with that one."""
    db = job.context.db
    preserved.mark_restored(db, job.instance.id)
    name = job.instance.name
    if name and any(i.id != job.instance.id and not i.cleaned for i in instances.named(db, name)):
        name = None
    instances.set_fields(db, job.instance.id, cleaned_at=None, wanted=Wanted.STOPPED, reason="", name=name)
    details = job.action.details
    told = {"ref": details["ref"], "files": details.get("files", 0), "left": details.get("left", [])}
    events.add(db, "instance:restored", instance_id=job.instance.id, actor=job.action.actor, metadata=told)


def _undone(job: Job, why: str) -> None:
    instances.set_fields(job.context.db, job.instance.id, problem=f"restore failed: {why}")


RESTORE = Operation(
    kind="restore",
    steps=(
        Step("worktree", _worktree, undo=_undo_worktree, saying="making the worktree again"),
        Step("work", _work, saying="bringing the files back"),
    ),
    done=_done,
    undone=_undone,
)
