"""Clean: an ended instance's worktree and session go; commits and uncommitted work stay in git.

The instance's own folder stays too: it is small and holds what a later restart needs to go on."""

from __future__ import annotations

from typing import Any

from swarm_core.errors import Conflict
from swarm_core.models import Activity, Instance, Source, Status, Wanted
from swarm_core.ops import folders, removal
from swarm_core.ops.context import Context
from swarm_core.ops.steps import Job, Operation, Step
from swarm_core.store import actions, events, instances, tokens


def request(context: Context, instance: Instance, *, actor: str) -> None:
    if instance.cleaned:
        raise Conflict(f"{instance.id} is already clean")
    if instance.wanted == Wanted.RUNNING:
        raise Conflict(
            f"{instance.id} is {instance.status}",
            code="INSTANCE_RUNNING",
            hint=f"`swarm stop {instance.id}` first; its work is kept",
        )
    with context.db.write():
        actions.start(context.db, instance.id, "clean", actor=actor)
        instances.set_fields(context.db, instance.id, wanted=Wanted.REMOVED)


def _end(job: Job) -> None:
    job.host.stop(job.instance.id, grace=0)


def _worktree(job: Job) -> dict[str, Any]:
    try:
        return removal.take_away(job, why="clean")
    except Conflict as error:
        if error.code == "WORKTREE_KEPT":
            with job.context.db.write():
                removal.note_kept(job, error)
            error.hint = folders.kept_remedy(instances.get(job.context.db, job.instance.id))
        raise


def _done(job: Job) -> None:
    db, details = job.context.db, job.action.details
    tokens.revoke(db, job.instance.id)
    instances.observe(db, job.instance.id, Activity.EXITED, source=Source.PROCESS, detail="cleaned")
    if job.instance.status not in (Status.TERMINATED, Status.PR_MERGED, Status.PR_CLOSED):
        instances.change_status(
            db, job.instance.id, Status.TERMINATED, actor=job.action.actor, reason=job.instance.reason
        )
    instances.set_fields(db, job.instance.id, cleaned_at=db.now(), pid=None, needs_person="")
    told: dict[str, Any] = {"branch": job.instance.branch, "branch_deleted": details.get("branch_deleted", False)}
    told["preserved"] = (details.get("preserved") or {}).get("ref")
    told["merged_ref"] = details.get("merged_ref")
    events.add(db, "instance:cleaned", instance_id=job.instance.id, actor=job.action.actor, metadata=told)


def _undone(job: Job, why: str) -> None:
    """A folder that was kept is what the person has to see to; it is recorded by itself."""
    kept = job.action.error_code == "WORKTREE_KEPT"
    problem = "" if kept else f"clean failed: {why}"
    instances.set_fields(job.context.db, job.instance.id, wanted=Wanted.STOPPED, problem=problem)


CLEAN = Operation(
    kind="clean",
    steps=(
        Step("end", _end, saying="ending what is left of the session"),
        Step(
            "worktree",
            _worktree,
            undo=removal.put_back,
            saying="storing uncommitted work and removing the worktree",
        ),
        Step("branch", removal.delete_branch, saying="looking at the branch"),
    ),
    done=_done,
    undone=_undone,
)
