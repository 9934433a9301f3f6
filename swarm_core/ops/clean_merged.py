"""Clean-up after a merge: what may go, what stays because somebody still needs it, and doing it unasked if set."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from swarm_core.errors import Conflict, SwarmError
from swarm_core.hosts.base import GONE, SENT, Leftovers
from swarm_core.models import Activity, Instance, Pull, Wanted, parse_iso
from swarm_core.ops import clean, merge_proof, operations, reconcile, stop
from swarm_core.ops.context import Context, place, talk
from swarm_core.ops.lanes import Lanes
from swarm_core.ops.pace import Pace
from swarm_core.store import actions, events, instances, messages

_ACTOR = "supervisor"
_LOOK_EVERY = 30.0
_ALONE = 600.0  # seconds that one repository is waited for when there are no lanes to share
_CALM_FOR = 600.0
_CALM = frozenset({Activity.IDLE, Activity.EXITED})
_NAMED = 5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Offer:
    """What cleaning a merged instance would take away.

    `branch_goes` when all of the branch was merged; `busy` is why its agent is left alone, empty if it is not.
    """

    instance: Instance
    pull: Pull
    branch_goes: bool
    left: Leftovers
    busy: str


def merged(context: Context) -> list[Instance]:
    """Instances whose work is over because their pull request was merged, and which still hold a worktree."""
    over = [i for i in instances.listed(context.db) if i.ended]
    return [i for i in over if merge_proof.merged_pull(context, i) is not None]


def offer(context: Context, instance: Instance) -> Offer:
    pull = merge_proof.merged_pull(context, instance)
    if pull is None or instance.cleaned or not instance.ended:
        raise Conflict(
            f"{instance.id} is no merged work that could be cleaned",
            code="PULL_NOT_MERGED",
            hint="`swarm clean --merged --dry-run` shows what was merged",
        )
    host = context.host(instance)
    left, facts = host.leftovers(place(instance)), host.branch_state(place(instance), pull.base_branch)
    return Offer(
        instance=instance,
        pull=pull,
        branch_goes=facts["head_commit"] == pull.head_commit,
        left=left,
        busy=busy(context, instance),
    )


def busy(context: Context, instance: Instance) -> str:
    """Why the agent may not be ended now; empty when it is idle or has ended."""
    if instance.wanted != Wanted.RUNNING or instance.activity == Activity.EXITED:
        return ""
    if instance.activity != Activity.IDLE:
        return f"its agent is {instance.activity}"
    seen = context.host(instance).can_hear(talk(instance))
    return "" if seen in (SENT, GONE) else f"its agent is {seen}"


def clean_one(context: Context, instance_id: str, *, actor: str, timeout: float | None = None) -> Instance:
    """End the idle agent of merged work and clean it; raises Conflict INSTANCE_RUNNING when it is not idle."""
    with context.lock(instance_id, timeout=timeout) as lock:
        instance = operations.carry_out(context, instance_id, lock=lock)
        reconcile.settle(context, instance)
        instance = instances.get(context.db, instance_id)
        if why := busy(context, instance):
            raise Conflict(
                f"{instance_id} is left: {why}", code="INSTANCE_RUNNING", hint=f"`swarm attach {instance_id}`"
            )
        if instance.wanted == Wanted.RUNNING:
            stop.request(context, instance, actor=actor)
            instance = operations.carry_out(context, instance_id, lock=lock)
        clean.request(context, instance, actor=actor)
        return operations.carry_out(context, instance_id, lock=lock)


class Sweeper:
    """Cleans merged work unasked, where the setting `clean_merged` allows it and nobody has touched it for long.

    What has uncommitted files or commits that were not merged stays, and is told once.
    """

    def __init__(self, context: Context, lanes: Lanes | None = None) -> None:
        self._context = context
        self._lanes = lanes or Lanes(patience=_ALONE)
        self._pace = Pace(_LOOK_EVERY)
        self._told: dict[str, str] = {}

    def look(self) -> None:
        if not self._context.settings.integer("clean_merged") or not self._pace.is_due:
            return
        with self._pace.turn():
            waiting = messages.waiting_for(self._context.db)
            found = [i for i in merged(self._context) if i.id not in waiting and self._is_calm(i)]
            self._told = {i.id: self._told[i.id] for i in found if i.id in self._told}
            for repo in dict.fromkeys(i.repo_path for i in found):
                here = [i for i in found if i.repo_path == repo]
                self._lanes.do(("clean", repo), functools.partial(self._sweep_all, here))

    def _sweep_all(self, some: Sequence[Instance]) -> None:
        for instance in some:
            self._sweep(instance)

    def _sweep(self, instance: Instance) -> None:
        try:
            if why := self._hindrance(instance):
                self._tell(instance, why)
            else:
                clean_one(self._context, instance.id, actor=_ACTOR, timeout=0)
        except SwarmError as error:
            log.warning("%s was merged and is not cleaned: %s (%s)", instance.id, error.message, error.code)

    def _is_calm(self, instance: Instance) -> bool:
        db = self._context.db
        if instance.activity not in _CALM or actions.open_for(db, instance.id) is not None:
            return False
        return (parse_iso(db.now()) - parse_iso(instance.activity_at)).total_seconds() >= _CALM_FOR

    def _hindrance(self, instance: Instance) -> str:
        pull = merge_proof.merged_pull(self._context, instance)
        if pull is None:
            return ""
        facts = self._context.host(instance).branch_state(place(instance), pull.base_branch)
        if facts["dirty_count"]:
            named = ", ".join(facts["dirty"][:_NAMED])
            return f"{facts['dirty_count']} uncommitted: {named}"
        if facts["on_branch"] not in (None, instance.branch):
            return f"its worktree is on {facts['on_branch']}"
        return "" if facts["head_commit"] == pull.head_commit else "its branch has commits that were not merged"

    def _tell(self, instance: Instance, why: str) -> None:
        if self._told.get(instance.id) == why:
            return
        self._told[instance.id] = why
        what = f"its pull request was merged, but it is not cleaned: {why}"
        log.info("%s: %s", instance.id, what)
        with self._context.db.write():
            told = {"what": what}
            events.add(self._context.db, "instance:problem", instance_id=instance.id, actor=_ACTOR, metadata=told)
