"""Taking a worktree away without losing anything that was in it."""

from __future__ import annotations

import json
import re
from typing import Any

from swarm_core.errors import Conflict, SwarmError
from swarm_core.hosts.base import PreservedFacts
from swarm_core.ops import merge_proof
from swarm_core.ops.context import place
from swarm_core.ops.steps import Job
from swarm_core.store import instances, preserved, pulls

_ROUNDS = 3
_REF_UNSAFE = re.compile(r"[^0-9TZ]")


def take_away(job: Job, *, why: str) -> dict[str, Any]:
    """Set the worktree aside, store what is in it, record that, and delete it unless it was written to meanwhile.

    Then it is stored again, a few times at most. A repeat stores under a ref beside the first.
    """
    details: dict[str, Any] = {}
    for number in range(1, _ROUNDS + 1):
        facts = _store(job, why)
        if facts is not None:
            details["preserved"] = dict(facts)
        job.context.checkpoint(f"{job.action.kind}:worktree:stored")
        if not job.host.remove_worktree(place(job.instance), last=number == _ROUNDS):
            break
    return details


def put_back(job: Job) -> None:
    """Undo a removal that did not come to its end."""
    job.host.put_back(place(job.instance))


def note_kept(job: Job, error: SwarmError) -> None:
    """Record why the folder was kept; call inside a transaction."""
    kept = {"reason": error.details["reason"], "path": error.details["path"], "files": error.details["files"]}
    instances.set_fields(job.context.db, job.instance.id, kept=json.dumps(kept))


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


def undo_worktree(job: Job) -> bool:
    """Take back a worktree that an operation has just made, and its branch; False when the folder must be kept."""
    try:
        take_away(job, why=f"undone {job.action.kind}")
    except Conflict as error:
        if error.code != "WORKTREE_KEPT":
            raise
        put_back(job)
        with job.context.db.write():
            note_kept(job, error)
        return False
    delete_branch(job)
    return True


def ref_time(at: str) -> str:
    """A time as the name of a ref begins with it; names are in the order of the times."""
    return _REF_UNSAFE.sub("", at)


def _store(job: Job, why: str) -> PreservedFacts | None:
    ref = f"refs/swarm/preserved/{job.instance.id}/{ref_time(job.action.started_at)}-{job.action.id}"
    facts = job.host.set_aside(place(job.instance), ref)
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
