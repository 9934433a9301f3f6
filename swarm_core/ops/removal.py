"""Taking a worktree away without losing anything that was in it."""

from __future__ import annotations

import re
from typing import Any

from swarm_core.ops.context import place
from swarm_core.ops.steps import Job
from swarm_core.store import preserved

_REF_UNSAFE = re.compile(r"[^0-9TZ]")


def preserve(job: Job) -> dict[str, Any]:
    """Store uncommitted work under a ref named by instance, time and action."""
    began = _REF_UNSAFE.sub("", job.action.started_at)
    ref = f"refs/swarm/preserved/{job.instance.id}/{began}-{job.action.id}"
    facts = job.host.publish(place(job.instance), ref)
    return {"preserved": dict(facts)} if facts else {}


def record_preserved(job: Job) -> None:
    facts = job.action.details.get("preserved")
    if facts:
        _record(job, facts, why=job.action.kind)


def remove_worktree(job: Job) -> None:
    job.host.remove_worktree(place(job.instance))


def delete_branch(job: Job) -> dict[str, Any]:
    """Delete the branch when every commit on it is also in its base."""
    gone = job.host.delete_branch(place(job.instance), base_branch=job.instance.base_branch)
    return {"branch_deleted": gone}


def undo_worktree(job: Job) -> None:
    """Take back a worktree that an operation has just made; what is in it by now is preserved first."""
    facts = preserve(job).get("preserved")
    if facts:
        with job.context.db.write():
            _record(job, facts, why=f"undone {job.action.kind}")
    remove_worktree(job)


def _record(job: Job, facts: dict[str, Any], *, why: str) -> None:
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
