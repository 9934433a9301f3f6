"""Publish: push a branch and open its pull request at GitHub, once, whatever happens in between.

Both steps may be repeated: what was pushed is there, and a pull request that is open for the branch is found.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from swarm_core.forge import Draft, RemotePull
from swarm_core.models import Instance, PullState
from swarm_core.ops import forges, pull_look, pull_record
from swarm_core.ops.context import Context
from swarm_core.ops.steps import Job, Operation, Step
from swarm_core.store import actions, pulls, relationships


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """What is to be opened, and where; `ours` is the commit that was pushed before."""

    draft: Draft
    repository: str
    remote: str
    ours: str | None
    review_id: str | None
    uncommitted: list[str]
    uncommitted_count: int


def request(context: Context, work: Instance, order: Order, *, actor: str) -> None:
    with context.db.write():
        actions.start(context.db, work.id, "pull", actor=actor, details={"order": dataclasses.asdict(order)})


def _order(job: Job) -> Order:
    stored: dict[str, Any] = job.action.details["order"]
    draft = stored["draft"]
    lists = {name: tuple(draft[name]) for name in ("labels", "reviewers")}
    return Order(**{**stored, "draft": Draft(**{**draft, **lists})})


def _push(job: Job) -> None:
    order = _order(job)
    job.host.push(
        job.instance.repo_path,
        order.remote,
        order.draft.head_branch,
        order.draft.head_commit,
        order.ours,
        forges.token_of(job.context, forges.split(order.repository)),
    )


def _create(job: Job) -> dict[str, Any]:
    order = _order(job)
    opened = forges.at(job.context, order.repository).open_pull(order.draft)
    _end_other(job, opened.number)
    # GitHub may not have noticed the push yet.
    return {"pull": dataclasses.asdict(dataclasses.replace(opened, head_commit=order.draft.head_commit))}


def _end_other(job: Job, number: int) -> None:
    """A branch has one open pull request: GitHub has ended any other, which nobody here has looked at since."""
    context = job.context
    other = pulls.open_of(context.db, job.instance.repo_path, job.instance.branch)
    if other is None or (other.repository, other.number) == (_order(job).repository, number):
        return
    if other.repository:
        other = pull_look.ask(context, forges.at(context, other.repository), other).pull
    if other.state == PullState.OPEN:
        with context.db.write():
            pull_record.closed(context, pulls.get(context.db, other.id), actor=job.action.actor)


def _done(job: Job) -> None:
    context, order, actor = job.context, _order(job), job.action.actor
    before = pulls.open_of(context.db, job.instance.repo_path, job.instance.branch)
    pull = pull_record.opened(
        context,
        job.instance,
        RemotePull(**job.action.details["pull"]),
        forge="github",
        repository=order.repository,
        body=order.draft.body,
        actor=actor,
        uncommitted={"uncommitted": order.uncommitted, "uncommitted_count": order.uncommitted_count},
        pushed_commit=order.draft.head_commit,
    )
    link = relationships.find_review_link(context.db, order.review_id) if order.review_id else None
    if link is not None:
        pull_record.approve(context, link, pull, actor, opens=before is None)
    pull_record.on_instance(context, job.instance, pull, actor)


def _undone(_: Job, __: str) -> None:
    """What was pushed stays: it is the same as here."""


PULL = Operation(
    kind="pull",
    steps=(
        Step("push", _push, saying="pushing the branch"),
        Step("create", _create, saying="opening the pull request"),
    ),
    done=_done,
    undone=_undone,
)
