"""Taking a worktree away without losing anything that was in it."""

from __future__ import annotations

import re
from typing import Any

from swarm_core.hosts.base import PreservedFacts
from swarm_core.ops import merge_proof
from swarm_core.ops.context import place
from swarm_core.ops.steps import Job
from swarm_core.store import instances, preserved, pulls

_REF_UNSAFE = re.compile(r"[^0-9TZ]")


def take_away(job: Job, *, why: str) -> dict[str, Any]:
    """Store what is in the worktree now, then remove it: one step, so that nothing can be written in between.

    A repeat stores again whatever came meanwhile, under a ref beside the first.
    """
    facts = _preserve(job, why)
    job.context.checkpoint(f"{job.action.kind}:worktree:stored")
    job.host.remove_worktree(place(job.instance))
    return {"preserved": dict(facts)} if facts else {}


def delete_branch(job: Job) -> dict[str, Any]:
    """Delete the branch when all of it is on another one too, or was merged, and no open pull request needs it.

    What was merged by a squash is on no branch: a ref keeps it.
    """
    if pulls.open_of(job.context.db, job.instance.repo_path, job.instance.branch) is not None:
        return {"branch_deleted": False}
    if job.host.delete_branch(place(job.instance)):
        return {"branch_deleted": True}
    tip = merge_proof.merged_tip(job.context, job.instance, person=job.action.actor != "supervisor")
    ref = f"{merge_proof.REF}{job.instance.id}"
    if tip is None or not job.host.retire_branch(place(job.instance), tip, ref):
        return {"branch_deleted": False}
    return {"branch_deleted": True, "merged_ref": ref}


def undo_worktree(job: Job) -> None:
    """Take back a worktree that an operation has just made."""
    take_away(job, why=f"undone {job.action.kind}")


def _preserve(job: Job, why: str) -> PreservedFacts | None:
    began = _REF_UNSAFE.sub("", job.action.started_at)
    ref = f"refs/swarm/preserved/{job.instance.id}/{began}-{job.action.id}"
    facts = job.host.publish(place(job.instance), ref)
    head = job.host.branch_tip(place(job.instance))
    with job.context.db.write():
        if head is not None:
            instances.set_fields(job.context.db, job.instance.id, head_commit=head)
        if facts is not None:
            preserved.add(
                job.context.db,
                job.instance.id,
                repo_path=job.instance.repo_path,
                ref=facts["ref"],
                commit=facts["commit"],
                files=facts["files"],
                size=facts["bytes"],
                why=why,
            )
    return facts
