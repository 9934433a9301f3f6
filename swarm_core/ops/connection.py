"""Whether an agent has its tools: a program that started while the coordinator was away may never try again."""

from __future__ import annotations

import logging

from swarm_core.agents import table
from swarm_core.errors import SwarmError
from swarm_core.hosts.base import SENT
from swarm_core.models import Activity, Instance, Wanted, parse_iso
from swarm_core.ops.context import Context, talk
from swarm_core.store import events, instances
from swarm_core.store.database import Database

_CONNECTS_WITHIN = 20.0

log = logging.getLogger(__name__)


def is_connected(db: Database, instance_id: str) -> bool:
    """Whether the agent has connected since its last start."""
    found = instances.find(db, instance_id)
    at = events.last_at(db, instance_id, "mcp:connected")
    return found is not None and at is not None and at >= (found.started_at or "")


def note(db: Database, instance_id: str) -> None:
    """Inside the caller's transaction."""
    if not is_connected(db, instance_id):
        events.add(db, "mcp:connected", instance_id=instance_id, actor=instance_id)


def reconnect(context: Context) -> list[str]:
    """Tell idle agents that never connected to try again, once for each start; returns who was told."""
    told = []
    for instance in instances.listed(context.db):
        if _needs_it(context, instance):
            text = table.get(instance.agent).reconnect
            if context.host(instance).can_hear(talk(instance)) != SENT:
                continue
            with context.db.write():  # first, so that a crash cannot make it happen twice
                events.add(context.db, "mcp:reconnect", instance_id=instance.id, actor="supervisor")
            try:
                outcome = context.host(instance).hand_over(talk(instance), text)
            except SwarmError as error:
                outcome = error.code
            log.info("%s never connected; told to try again: %s", instance.id, outcome)
            told += [instance.id] if outcome == SENT else []
    return told


def never_connected(db: Database, instance: Instance) -> bool:
    """Whether the agent has had time to connect since its start, and its program would not try again by itself."""
    if instance.wanted != Wanted.RUNNING or not instance.started_at or not table.get(instance.agent).reconnect:
        return False
    age = (parse_iso(db.now()) - parse_iso(instance.started_at)).total_seconds()
    return age >= _CONNECTS_WITHIN and not is_connected(db, instance.id)


def _needs_it(context: Context, instance: Instance) -> bool:
    db = context.db
    if instance.activity != Activity.IDLE or not never_connected(db, instance):
        return False
    asked = events.last_at(db, instance.id, "mcp:reconnect")
    return asked is None or asked < (instance.started_at or "")
