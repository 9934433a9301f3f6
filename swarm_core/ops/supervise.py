"""Supervise: notice deaths at once, look at everybody every second, finish what was interrupted."""

from __future__ import annotations

import logging
import threading
import time

from swarm_core.errors import SwarmError
from swarm_core.models import Activity, Instance, Wanted
from swarm_core.ops.context import Context, place
from swarm_core.ops.reconcile import Finding, reconcile
from swarm_core.store import events, instances

TICK = 1.0
_PAUSE_PER_COST = 100.0  # counting changed lines may take one percent of a core
_POOL_EVERY = 30.0

log = logging.getLogger(__name__)


class Supervisor:
    """One per database, in the coordinator. `run` returns after `stop`; a failing look is logged and repeated."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stop = threading.Event()
        self._changes_due = 0.0
        self._pool_due = 0.0

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        with self._context.db.write():
            events.add(self._context.db, "coordinator:started", actor="coordinator")
        while not self._stop.is_set():
            self.look()
            self._wait()
        with self._context.db.write():
            events.add(self._context.db, "coordinator:stopped", actor="coordinator")

    def look(self) -> list[Finding]:
        """One look at everything; a failure is logged and never ends the loop."""
        try:
            findings = reconcile(self._context)
            self._refresh_changes()
            self._fill_pool()
        except SwarmError as error:
            log.warning("look failed: %s (%s)", error.message, error.code)
            return []
        except Exception:  # the supervising loop must outlive its own bugs; the traceback is kept
            log.exception("look failed")
            return []
        for finding in findings:
            log.info("%s: %s", finding.instance_id, finding.what)
        return findings

    def _wait(self) -> None:
        """Sleep until the next look is due or an agent dies."""
        deadline = time.monotonic() + TICK
        while not self._stop.is_set() and (left := deadline - time.monotonic()) > 0:
            for host in self._context.hosts.values():
                if host.wait(min(left, 0.5)):
                    return

    def _refresh_changes(self) -> None:
        """Count the changed lines of the instance whose count is oldest, if anything can have changed."""
        began = time.monotonic()
        if began < self._changes_due:
            return
        stale = [i for i in instances.listed(self._context.db) if may_have_changed(i)]
        if stale:
            refresh_changes(self._context, min(stale, key=lambda i: i.changes_at or ""))
        self._changes_due = began + max(TICK, (time.monotonic() - began) * _PAUSE_PER_COST)

    def _fill_pool(self) -> None:
        size = self._context.settings.integer("pool")
        if size == 0 or time.monotonic() < self._pool_due:
            return
        self._pool_due = time.monotonic() + _POOL_EVERY
        for repo_path, host in {(i.repo_path, i.host) for i in instances.listed(self._context.db)}:
            self._context.hosts[host].fill_pool(repo_path, size)


def may_have_changed(instance: Instance) -> bool:
    """Whether the agent was at work since its changes were counted."""
    if instance.wanted != Wanted.RUNNING and instance.changes_at and instance.changes_at >= instance.activity_at:
        return False
    if instance.activity in (Activity.IDLE, Activity.BLOCKED, Activity.EXITED):
        return instance.changes_at is None or instance.changes_at < instance.activity_at
    return True


def refresh_changes(context: Context, instance: Instance) -> None:
    """Count what the instance has changed against its base and remember it."""
    facts = context.host(instance).changes(place(instance))
    counted = {"files_changed": facts["files"], "lines_added": facts["added"], "lines_deleted": facts["deleted"]}
    with context.db.write():
        instances.set_fields(
            context.db, instance.id, head_commit=facts["head_commit"], changes_at=context.db.now(), **counted
        )
