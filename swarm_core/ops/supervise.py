"""Supervise: notice deaths at once, look at everybody every other second, finish what was interrupted."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence

from swarm_core.errors import SwarmError
from swarm_core.models import Action, Activity, Instance, Kind, Status, Wanted, parse_iso
from swarm_core.ops import budget, changes, clean_merged, connection, decide, isolation, overlap, retention, stop
from swarm_core.ops.context import Context
from swarm_core.ops.hanging import Hanging
from swarm_core.ops.lanes import Lanes
from swarm_core.ops.notify import Notifier
from swarm_core.ops.pace import Pace
from swarm_core.ops.reconcile import Finding, finish, interrupted, look
from swarm_core.store import actions, events, instances, search

TICK = 2.0
_PAUSE_PER_COST = 100.0  # counting changed lines may take one percent of a core
_POOL_EVERY = 30.0
_ASK_EVERY = 0.25
_PATIENCE = 3.0
_INDEX_FOR = 0.1  # seconds of every TICK
_END_WITHIN = 5.0
_REVIEWER_STAYS = 60.0
_VERDICTS = frozenset({Status.APPROVED, Status.CHANGES_REQUESTED})

log = logging.getLogger(__name__)


class Supervisor:
    """One per database, in the coordinator. `run` returns after `stop`; what fails is told and repeated.

    Looking and mending have a thread of their own; what may take long (interrupted operations, counting lines,
    filling pools) has another, so that a death is noticed meanwhile, and what runs git leaves that one when it
    hangs. `looked_at` (monotonic), `counted` and `problem` describe the last look, for whoever reports on health.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._notifier = Notifier(context)
        self._stop = threading.Event()
        self._lanes = Lanes()
        self._hanging = Hanging()
        self._counting = Pace(TICK, pause_per_cost=_PAUSE_PER_COST)
        self._pool_due = 0.0
        self._bookkeeper = budget.Bookkeeper(context)
        self._radar = overlap.Radar(context, hanging=self._hanging)
        self._checkouts = isolation.Watch(context, hanging=self._hanging)
        self._sweeper = clean_merged.Sweeper(context, self._lanes)
        self._janitor = retention.Janitor(context)
        self._begun = 0
        self.looked_at: float | None = None
        self.counted: int | None = None
        self.problem: str | None = None

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        with self._context.db.write():
            events.add(self._context.db, "coordinator:started", actor="coordinator")
        chores = threading.Thread(target=self._run_chores, name="chores", daemon=True)
        chores.start()
        while not self._stop.is_set():
            self.look()
            self._wait()
        chores.join(_END_WITHIN)
        self._lanes.join(_END_WITHIN)
        self._try("recording the end", self._record_end)

    def look(self) -> None:
        """One look at everything."""
        self.problem = self._try("look", self._look_once)
        self.looked_at = time.monotonic()

    def do_chores(self) -> None:
        """What may take its time, each part whether or not the one before it failed or git hangs in it."""
        self._try("finishing what was interrupted", self._finish_open)
        self._try("counting changed lines", self._refresh_changes)
        self._try("filling pools", self._fill_pool)
        self._try("ending overdue reviews", lambda: decide.end_overdue_reviews(self._context))
        self._try("bringing agents back to their tools", lambda: connection.reconnect(self._context))
        self._try("stopping reviewers that are done", self._stop_reviewers)
        self._try("counting costs", self._bookkeeper.keep)
        self._apart("looking for overlaps", self._radar.look)
        self._try("cleaning up after merges", self._sweeper.look)
        self._try("telling people", self._notifier.look)
        self._apart("looking at main checkouts", self._checkouts.look)
        self._try("indexing for search", self._index)
        self._apart("deleting what is old", self._janitor.look)

    def _run_chores(self) -> None:
        while not self._stop.is_set():
            self.do_chores()
            self._stop.wait(TICK)

    def _apart(self, what: str, work: Callable[[], object], *, repository: str = "") -> None:
        """Run a part that runs git, in a thread of its own."""
        self._lanes.do((what, repository), lambda: self._try(what, work))

    def _try(self, what: str, work: Callable[[], object]) -> str | None:
        """Run one part of the loop; a failure is logged, returned, and never ends the loop."""
        try:
            work()
        except SwarmError as error:
            log.warning("%s failed: %s (%s)", what, error.message, error.code)
            return f"{error.message} [{error.code}]"
        except Exception as error:  # the supervising loop must outlive its own bugs; the traceback is kept
            log.exception("%s failed", what)
            return f"{type(error).__name__}: {error}"
        return None

    def _look_once(self) -> None:
        self._begun = actions.newest_id(self._context.db)
        self._tell(look(self._context))
        self.counted = instances.count(self._context.db)

    def _finish_open(self) -> None:
        for repo, found in interrupted(self._context, patience=_PATIENCE).items():
            work = functools.partial(self._finish, found)
            self._apart("finishing what was interrupted", work, repository=repo)

    def _finish(self, found: Sequence[Action]) -> None:
        self._tell(finish(self._context, found))

    def _tell(self, findings: list[Finding]) -> None:
        for finding in findings:
            log.info("%s: %s", finding.instance_id, finding.what)

    def _wait(self) -> None:
        """Sleep until the next look is due, an agent dies, or an operation was begun since the last look."""
        deadline = time.monotonic() + TICK
        while not self._stop.is_set() and (left := deadline - time.monotonic()) > 0:
            if any(host.wait(min(left, _ASK_EVERY)) for host in self._context.hosts):
                return
            with contextlib.suppress(SwarmError):  # the next look reports it
                if actions.newest_id(self._context.db) != self._begun:
                    return

    def _record_end(self) -> None:
        with self._context.db.write():
            events.add(self._context.db, "coordinator:stopped", actor="coordinator")

    def _refresh_changes(self) -> None:
        """Count the changed lines of the instance whose count is oldest, if anything can have changed."""
        if not self._counting.is_due:
            return
        what = "counting changed lines"
        listed = [i for i in instances.listed(self._context.db) if changes.may_have_happened(i)]
        stale = [i for i in listed if not self._lanes.is_busy((what, i.repo_path))]
        if stale:
            oldest = min(stale, key=lambda i: i.changes_at or "")
            self._apart(what, functools.partial(self._count, oldest), repository=oldest.repo_path)

    def _count(self, instance: Instance) -> None:
        with self._counting.turn():
            changes.refresh(self._context, instance, hanging=self._hanging)

    def _stop_reviewers(self) -> None:
        """A reviewer that has given its verdict and said nothing since is ended; it can be started again."""
        now = parse_iso(self._context.db.now())
        for review in instances.listed(self._context.db):
            idle = review.kind == Kind.REVIEW and review.activity == Activity.IDLE
            if not idle or review.wanted != Wanted.RUNNING or review.status not in _VERDICTS:
                continue
            if (now - parse_iso(review.activity_at)).total_seconds() > _REVIEWER_STAYS:
                with self._context.db.write():
                    if actions.open_for(self._context.db, review.id) is None:
                        stop.request(self._context, review, actor="supervisor")

    def _index(self) -> None:
        """So that a search finds little left to do; under load the rest waits, as it may cost CPU."""
        search.catch_up(self._context.db, within=_INDEX_FOR)

    def _fill_pool(self) -> None:
        size = self._context.settings.integer("pool")
        if size == 0 or time.monotonic() < self._pool_due:
            return
        self._pool_due = time.monotonic() + _POOL_EVERY
        for repo_path, host in {(i.repo_path, i.host) for i in instances.listed(self._context.db)}:
            fill = functools.partial(self._context.hosts.get(host).fill_pool, repo_path, size)
            self._apart(f"filling the pool of {repo_path}", fill)
