"""Budgets: an instance that comes near its budget is noted, one that has used it up is held until it is raised.

Cost is an estimate from the agent's own log and the prices of its models; what has no known price costs nothing.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass

from swarm_core.agents import prices, table
from swarm_core.errors import Conflict, InvalidInput, SwarmError
from swarm_core.models import Activity, Instance, MessageKind
from swarm_core.ops import ledger, post
from swarm_core.ops.context import Context
from swarm_core.store import events, instances, messages, usage

WARNED, HELD = "warned", "held"
_STATES = ("", WARNED, HELD)
_WARN_AT = 0.8
_MOST_USD = 1_000_000.0
_DIGITS = 6  # what is below is an error of adding up
_EVERY = 5.0
_FIRST_READS = 8  # in one round: after a start every log is read from its beginning

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Account:
    """What an instance has used. `limit_usd` is the budget in force, `own` whether it is the instance's own."""

    instance: Instance
    limit_usd: float | None
    own: bool
    used: usage.Totals
    models: list[usage.Totals]
    unknown_price: list[str]


def account(context: Context, instance: Instance) -> Account:
    models, known = usage.by_model(context.db, instance.id), ledger.price_list(context)
    return Account(
        instance=instance,
        limit_usd=limit(context, instance),
        own=instance.budget_usd is not None,
        used=usage.totals(context.db, instance.id),
        models=models,
        unknown_price=[m.model for m in models if known.find(m.model) is None],
    )


def limit(context: Context, instance: Instance) -> float | None:
    """The budget in force: the instance's own, where 0 is none, else the setting; None when there is no limit."""
    own = instance.budget_usd
    return (context.settings.number("budget_usd") if own is None else own) or None


def set_budget(context: Context, instance: Instance, usd: float | None, *, actor: str) -> Instance:
    """Give the instance a budget of its own, or with None no limit, whatever the setting says."""
    if usd is not None and not (math.isfinite(usd) and 0 < usd <= _MOST_USD):
        raise InvalidInput("a budget is more than 0 and at most 1000000 US dollars")
    if instance.cleaned:
        raise Conflict(f"{instance.id} was cleaned", hint=f"`swarm restore {instance.id}` brings it back")
    with context.db.write():
        before = instances.get(context.db, instance.id)
        told = {"from_usd": limit(context, before), "to_usd": usd, "cost_usd": _cents(before.cost_usd)}
        instances.set_fields(context.db, instance.id, budget_usd=usd or 0.0)
        events.add(context.db, "budget:set", instance_id=instance.id, actor=actor, metadata=told)
        _settle(context, instance.id, actor=actor)
    return instances.get(context.db, instance.id)


def raise_(context: Context, instance: Instance, usd: float, *, actor: str) -> Instance:
    """Add so many dollars to the budget in force."""
    with context.db.write():
        current = limit(context, instances.get(context.db, instance.id))
        if current is None:
            raise Conflict(
                f"{instance.id} has no budget to raise", hint=f"`swarm budget {instance.id} USD` sets one"
            )
        if not (math.isfinite(usd) and usd > 0):
            raise InvalidInput("a budget is raised by more than 0 US dollars")
        return set_budget(context, instance, current + usd, actor=actor)


def check(context: Context, instance: Instance) -> str:
    """Note that a budget is nearly or wholly used, or that it is so no longer; returns the state from now on."""
    if _state(context, instance) == instance.budget_state:
        return instance.budget_state
    with context.db.write():
        return _settle(context, instance.id, actor="supervisor")


def check_prices(context: Context) -> None:
    """Raise for a file of prices that cannot be used; elsewhere it is passed over."""
    prices.load(context.settings.prices_path)


class Bookkeeper:
    """Follows what agents use, one per database, in the coordinator; each of their logs every few seconds.

    A log is read once more after its agent has ended, and once when nobody has read it since the start.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._read_at: dict[str, float] = {}
        self._closed: set[str] = set()

    def keep(self) -> None:
        first_reads = 0
        for instance in self._due():
            first_reads += instance.id not in self._read_at
            if first_reads > _FIRST_READS and instance.id not in self._read_at:
                continue
            try:
                self._keep_one(instance)
            except SwarmError as error:
                log.warning("the costs of %s are not counted: %s (%s)", instance.id, error.message, error.code)

    def _due(self) -> list[Instance]:
        now, listed = time.monotonic(), instances.listed(self._context.db)
        due = [i for i in listed if now - self._read_at.get(i.id, -math.inf) >= _EVERY]
        open_ones = [i for i in due if i.activity != Activity.EXITED or i.id not in self._closed]
        return sorted(open_ones, key=lambda i: i.activity == Activity.EXITED)  # who runs comes first

    def _keep_one(self, instance: Instance) -> None:
        self._read_at[instance.id] = time.monotonic()
        folder = str(self._context.settings.instance_dir(instance.id))
        agent = table.get(instance.agent)
        if agent.transcripts(folder, instance.worktree_path, instance.conversation_id):
            ledger.take_in(self._context, instance)
            check(self._context, instances.get(self._context.db, instance.id))
        if instance.activity == Activity.EXITED:
            self._closed.add(instance.id)
        else:
            self._closed.discard(instance.id)


def _state(context: Context, instance: Instance) -> str:
    """What the cost so far means for the budget in force."""
    most, cost = limit(context, instance), round(instance.cost_usd, _DIGITS)
    if most is None or cost < round(most * _WARN_AT, _DIGITS):
        return ""
    return HELD if cost >= round(most, _DIGITS) else WARNED


def _settle(context: Context, instance_id: str, *, actor: str) -> str:
    """Write the state down that the cost asks for. What was raised begins anew, and is warned again when due."""
    db, instance = context.db, instances.get(context.db, instance_id)
    before, after = instance.budget_state, _state(context, instance)
    if before == after:
        return before
    most = limit(context, instance)
    told = {"budget_usd": most, "cost_usd": _cents(instance.cost_usd)}
    if _STATES.index(after) > _STATES.index(before):
        name = "budget:held" if after == HELD else "budget:warned"
        events.add(db, name, instance_id=instance_id, actor=actor, metadata=told)
    else:
        after = ""
        events.add(db, "budget:raised", instance_id=instance_id, actor=actor, metadata=told)
        if before == HELD:
            _tell_to_go_on(context, instance, most, actor)
    instances.set_fields(db, instance_id, budget_state=after)
    return after


def _tell_to_go_on(context: Context, instance: Instance, most: float | None, actor: str) -> None:
    now = f"is ${most:.2f} now, of which ${instance.cost_usd:.2f} is used" if most else "has no limit any more"
    messages.accept(
        context.db,
        instance.id,
        sender=actor,
        body=f"Your budget {now}. Tools are allowed again: go on with what you were doing.",
        kind=MessageKind.NOTICE,
        expires_after=post.expiry(context),
    )


def _cents(usd: float) -> float:
    return round(usd, 4)
