"""Running a recorded operation: each step once, undone in reverse on failure, taken up again after a crash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swarm_core import cancel
from swarm_core.errors import HostLost, SwarmError
from swarm_core.hosts.base import Host
from swarm_core.models import FOLDER_PROBLEMS, Action, ActionState, Instance
from swarm_core.ops.context import Context
from swarm_core.store import actions, instances


@dataclass(frozen=True, slots=True)
class Job:
    """One run of an action on an instance whose lock is held; `lock` is the lock's descriptor."""

    context: Context
    instance: Instance
    action: Action
    lock: int

    @property
    def host(self) -> Host:
        return self.context.host(self.instance)


def _nothing(_: Job) -> None:
    return


@dataclass(frozen=True, slots=True)
class Step:
    """`do` and `undo` may be repeated. What `do` returns is kept in the action's details.

    `record` writes to the database in the transaction that notes the step as done.
    """

    name: str
    do: Callable[[Job], dict[str, Any] | None]
    undo: Callable[[Job], None] = _nothing
    record: Callable[[Job], None] = _nothing
    saying: str = ""


def _nothing_yet(_: Job, __: str) -> None:
    return


@dataclass(frozen=True, slots=True)
class Operation:
    """`done` and `undone` write the outcome in the transaction that closes the action.

    `failing` writes what a failure means to everybody else, in the transaction that records it: undoing the steps
    may have to wait for a program that hangs, and nobody should wait for that.
    """

    kind: str
    steps: tuple[Step, ...]
    done: Callable[[Job], None]
    undone: Callable[[Job, str], None]
    failing: Callable[[Job, str], None] = _nothing_yet


def run(operation: Operation, job: Job) -> Instance:
    """Carry the action to its end; on failure undo it and raise what failed."""
    if job.action.error_code is not None:
        return _undo(operation, job)
    for step in operation.steps:
        if step.name in job.action.steps_done:
            continue
        try:
            job = _do(operation, step, job)
        except HostLost:
            raise  # nothing is known of the step, so nothing is undone; it is taken up when the host is back
        except SwarmError as error:
            _fail(operation, job, error)
            raise
    return _close(operation, job)


def _do(operation: Operation, step: Step, job: Job) -> Job:
    cancel.check()
    job.context.checkpoint(f"{operation.kind}:{step.name}:before")
    job.context.report(step.saying or step.name)
    details = step.do(job) or {}
    job.context.checkpoint(f"{operation.kind}:{step.name}:between")
    with job.context.db.write():
        job = _reload(job, actions.step_done(job.context.db, job.action, step.name, **details))
        step.record(job)
    job.context.checkpoint(f"{operation.kind}:{step.name}:after")
    return _reload(job, job.action)


def _fail(operation: Operation, job: Job, error: SwarmError) -> None:
    """Undo after a failure. An undo that fails too leaves the action open, to be taken up again later."""
    try:
        with job.context.db.write():
            job = _reload(job, actions.failing(job.context.db, job.action, error))
            operation.failing(job, error.message)
        _undo(operation, job)
    except SwarmError as second:
        error.details["undo"] = second.as_json()
        error.hint = error.hint or "what could not be undone yet is undone later; you can try again now"


def _undo(operation: Operation, job: Job) -> Instance:
    """Undo from the last step that may have begun back to the first; nobody can cancel that."""
    with cancel.Scope().active():
        return _undo_steps(operation, job)


def _undo_steps(operation: Operation, job: Job) -> Instance:
    begun = len([s for s in operation.steps if s.name in job.action.steps_done]) + 1
    for step in reversed(operation.steps[:begun]):
        job.context.checkpoint(f"{operation.kind}:{step.name}:undo")
        job.context.report(f"undoing {step.saying or step.name}")
        step.undo(job)
        with job.context.db.write():
            job = _reload(job, actions.step_undone(job.context.db, job.action, step.name))
    with job.context.db.write():
        job = _reload(job, job.action)
        operation.undone(job, job.action.error_message or "")
        actions.finish(job.context.db, job.action, ActionState.UNDONE)
        return instances.get(job.context.db, job.instance.id)


def _close(operation: Operation, job: Job) -> Instance:
    with job.context.db.write():
        job = _reload(job, job.action)
        operation.done(job)
        if job.instance.problem not in FOLDER_PROBLEMS or operation.kind in ("clean", "restore"):
            instances.set_fields(job.context.db, job.instance.id, problem="")
        if job.instance.kept and operation.kind in ("clean", "restart", "restore"):
            instances.set_fields(job.context.db, job.instance.id, kept="")
        actions.finish(job.context.db, job.action, ActionState.DONE)
        return instances.get(job.context.db, job.instance.id)


def _reload(job: Job, action: Action) -> Job:
    return Job(job.context, instances.get(job.context.db, job.instance.id), action, job.lock)
