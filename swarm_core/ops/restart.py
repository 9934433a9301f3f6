"""Restart: the same instance, worktree and conversation with a new process, epoch and token."""

from __future__ import annotations

from typing import Any

from swarm_core.errors import Conflict, NotFound
from swarm_core.models import TRANSITIONS, Instance, Status, Wanted
from swarm_core.ops import session
from swarm_core.ops.context import Context, place
from swarm_core.ops.steps import Job, Operation, Step
from swarm_core.store import actions, instances, tokens


def request(context: Context, instance: Instance, *, prompt: bool = True, actor: str) -> None:
    """Record the restart: the epoch counts up, so nothing of the earlier start is valid any more.

    Without `prompt` a resumed conversation waits for a message instead of taking a turn.
    """
    if instance.cleaned:
        raise Conflict(
            f"{instance.id} was cleaned", hint=f"`swarm restore {instance.id}` brings its worktree back"
        )
    facts = context.host(instance).snapshot(
        [{"instance_id": instance.id, "agent": instance.agent, "worktree_path": instance.worktree_path}]
    )
    if not facts[instance.id]["worktree"]:
        raise NotFound(
            f"the worktree of {instance.id} is gone: {instance.worktree_path}",
            code="WORKTREE_NOT_FOUND",
            hint=f"`swarm restore {instance.id}` makes it again from its branch",
        )
    context.host(instance).require_registered(place(instance))
    db = context.db
    details = {"status": instance.status, "prompt": prompt}
    with db.write():
        actions.start(db, instance.id, "restart", actor=actor, details=details)
        instances.set_fields(db, instance.id, epoch=instance.epoch + 1, wanted=Wanted.RUNNING)
        tokens.revoke(db, instance.id)
        if Status.STARTING in TRANSITIONS[Status(instance.status)]:
            instances.change_status(db, instance.id, Status.STARTING, actor=actor, reason="")


def _end(job: Job) -> dict[str, Any] | None:
    """End the earlier start, also one that outlived its session; on a repeat the new one is left alone."""
    running = next((s for s in job.host.sessions() if s["instance_id"] == job.instance.id), None)
    if running is not None and running["epoch"] >= job.instance.epoch:
        return None
    return session.end(job, grace=job.context.settings.number("stop_grace"))


def _session(job: Job) -> dict[str, Any]:
    job.host.require_registered(place(job.instance))
    return session.start(job, resume=True, prompt=job.action.details.get("prompt", True))


def _done(job: Job) -> None:
    if job.instance.status == Status.STARTING:
        instances.change_status(job.context.db, job.instance.id, Status.RUNNING, actor=job.action.actor)
    if job.instance.wanted != Wanted.RUNNING:  # it was given up while it started
        tokens.revoke(job.context.db, job.instance.id)


def _undone(job: Job, why: str) -> None:
    session.record_end(job)
    db, instance_id = job.context.db, job.instance.id
    instances.set_fields(db, instance_id, wanted=Wanted.STOPPED)
    if Status.FAILED in TRANSITIONS[Status(job.instance.status)]:
        instances.change_status(db, instance_id, Status.FAILED, actor=job.action.actor, reason=why)
    else:
        instances.set_fields(db, instance_id, problem=f"restart failed: {why}")


RESTART = Operation(
    kind="restart",
    steps=(
        Step("end", _end, saying="ending the earlier start"),
        Step(
            "session", _session, undo=session.undo_start, record=session.record_start, saying="starting the agent"
        ),
    ),
    done=_done,
    undone=_undone,
)
