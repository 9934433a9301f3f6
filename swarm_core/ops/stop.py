"""Stop: the agent ends, its work stays where it is."""

from __future__ import annotations

from typing import Any

from swarm_core.models import ENDED, Instance, Status, Wanted
from swarm_core.ops import session
from swarm_core.ops.context import Context
from swarm_core.ops.steps import Job, Operation, Step
from swarm_core.store import actions, instances

_KEPT = frozenset({*ENDED, Status.PR_CREATED})  # a pull request lives on without its agent


def request(context: Context, instance: Instance, *, actor: str) -> None:
    with context.db.write():
        actions.start(context.db, instance.id, "stop", actor=actor)
        instances.set_fields(context.db, instance.id, wanted=Wanted.STOPPED)


def _end(job: Job) -> dict[str, Any]:
    return session.end(job, grace=job.context.settings.number("stop_grace"))


def _done(job: Job) -> None:
    if job.instance.status not in _KEPT:
        instances.change_status(
            job.context.db, job.instance.id, Status.TERMINATED, actor=job.action.actor, reason="stopped"
        )


def _undone(job: Job, why: str) -> None:
    instances.set_fields(job.context.db, job.instance.id, problem=f"stop failed: {why}")


STOP = Operation(
    kind="stop",
    steps=(Step("end", _end, record=session.record_end, saying="ending the agent"),),
    done=_done,
    undone=_undone,
)
