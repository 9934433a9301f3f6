"""Places that agents must not change, main checkouts and others' worktrees: how each is, and how it has changed.

A program that an agent runs may write anywhere, so these places are compared with what they were.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swarm_core.errors import SwarmError
from swarm_core.hosts.base import CheckoutFacts, FolderFacts
from swarm_core.models import Activity, Instance, Wanted, parse_iso
from swarm_core.ops import places
from swarm_core.ops.attention import STRAYED
from swarm_core.ops.context import Context, place
from swarm_core.ops.hanging import Hanging
from swarm_core.ops.pace import PAUSE_PER_COST, Pace
from swarm_core.store import checkouts, events, instances
from swarm_core.store.database import Database

MAIN = ""
EVENT = "checkout:touched"
ACTOR = "supervisor"
_LOOK_EVERY = 10.0
_LOOK_AGAIN = 4.0  # by then the supervisor has seen whether the owner of a worktree has begun to work
_UNWATCHED = 60.0
_MAY_WRITE = frozenset({Activity.BUSY, Activity.STARTING, Activity.UNKNOWN})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stray:
    """A file outside its agent's worktree: of the worktree of `owner`, or of the main checkout, which is MAIN."""

    path: str
    folder: str
    owner: str

    @property
    def name(self) -> str:
        return os.path.relpath(self.path, self.folder)

    @property
    def where(self) -> str:
        return where(self.owner)


@dataclass(frozen=True, slots=True)
class _Known:
    """A worktree as it was at the last look; `differs`: it was seen to be another since, and nobody was told."""

    state: FolderFacts
    at: str
    event_id: int
    differs: bool = False
    told: frozenset[str] = frozenset()


def where(owner: str) -> str:
    return f"the worktree of {owner}" if owner else "the main checkout"


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """How a place differs from what it was: files that became dirty, another branch, another commit.

    Of two FolderFacts also files that were written again or, on the same commit, put back.
    """
    news: dict[str, Any] = {}
    files = [name for name in now["dirty"] if name not in before["dirty"]]
    # Of many files only the first are named: others come into sight when those before them are committed.
    named = before["dirty_count"] == len(before["dirty"])
    if not named and now["dirty_count"] <= before["dirty_count"]:
        files = []
    if "stamps" in before and "stamps" in now:
        was, has = before["stamps"], now["stamps"]
        files += [name for name in has if was.get(name, has[name]) != has[name]]
        if named and before["head"] == now["head"]:
            files += [name for name in was if name not in has]
    if files:
        news["files"] = files
    for what in ("branch", "head"):
        if now[what] != before[what]:
            news[what] = [before[what], now[what]]
    return news


def untold(db: Database, repo: str, owner: str, news: Mapping[str, Any], *, after: int | None) -> dict[str, Any]:
    """The news without what agents are known to have written, what events after the id told, and our merges."""
    facts, _ = checkouts.read(db, repo)
    told = checkouts.told(db, repo, owner, after=after) if after is not None else []
    known = {os.path.relpath(s["path"], s["folder"]) for s in facts["strays"] if s["owner"] == owner}
    known |= {name for one in told for name in one.get("files", ())}
    left = dict(news)
    left["files"] = [name for name in news.get("files", ()) if name not in known]
    for what in ("branch", "head"):
        if any(one.get(what, [None])[-1] == news.get(what, [None, None])[1] for one in told if what in one):
            left.pop(what, None)
    if "head" in left and checkouts.is_merge(db, repo, left["head"][1]):
        del left["head"]
    return {what: value for what, value in left.items() if value}


def at_work(here: Iterable[Instance], since: str) -> list[str]:
    """Who was seen at work since then."""
    running = [i for i in here if _runs(i)]
    return [i.id for i in running if i.activity in _MAY_WRITE or i.activity_at >= since]


def call_person(db: Database, instance_id: str, facts: Mapping[str, Any]) -> None:
    """A person is needed while something is left that the agent wrote elsewhere; other reasons stay."""
    said = instances.get(db, instance_id).needs_person
    if said and not said.startswith(STRAYED):
        return
    left = [Stray(s["path"], s["folder"], s["owner"]) for s in facts["strays"] if s["instance_id"] == instance_id]
    text = ", ".join(f"{places.printable(s.name)} of {s.where}" for s in left)
    now = f"{STRAYED}: {text}" if left else ""
    if now != said:
        instances.set_fields(db, instance_id, needs_person=now)


class Watch:
    """One per database, in the coordinator: compares places with what they were while agents work.

    Of worktrees those are watched whose own agents are not at work. What such a one was is in memory: after a
    start it is taken as it is.
    """

    def __init__(
        self, context: Context, *, pause_per_cost: float = PAUSE_PER_COST, hanging: Hanging | None = None
    ) -> None:
        self._context = context
        self._hanging = hanging or Hanging()
        self._every = _LOOK_EVERY if pause_per_cost else 0.0
        self._pace = Pace(0.0, pause_per_cost=pause_per_cost)
        self._looked: dict[tuple[str, str], float] = {}
        self._left: set[str] = set()
        self._known: dict[str, _Known] = {}
        self._main_next = True

    def look(self) -> None:
        """At the place that was not looked at for the longest time; main checkouts have every other turn."""
        if not self._pace.is_due:
            return
        listed = instances.listed(self._context.db)
        repos = {i.repo_path for i in listed if _runs(i)} | set(checkouts.with_strays(self._context.db))
        quiet = {i.id: i for i in _quiet(listed)}
        there = dict.fromkeys(
            [*((r, MAIN) for r in sorted(repos)), *((i.repo_path, i.id) for i in quiet.values())]
        )
        self._left |= {repo for repo, owner in self._looked if owner == MAIN} - repos
        self._looked = {one: at for one, at in self._looked.items() if one in there}
        self._known = {owner: known for owner, known in self._known.items() if owner in quiet}
        for repo, owner in self._chosen([one for one in there if self._is_due(one)]):
            with self._pace.turn():
                self._looked[repo, owner], self._main_next = time.monotonic(), bool(owner)
                here = [i for i in listed if i.repo_path == repo]
                if owner:
                    self._look_at_worktree(quiet[owner], here)
                else:
                    self._look_at(repo, here)

    def _is_due(self, one: tuple[str, str]) -> bool:
        known = self._known.get(one[1])
        every = min(self._every, _LOOK_AGAIN) if known and known.differs else self._every
        return time.monotonic() - self._looked.get(one, float("-inf")) >= every

    def _chosen(self, due: list[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """One at a turn; who has no pace to keep looks at all of them."""
        ordered = sorted(due, key=lambda one: (bool(one[1]) == self._main_next, self._looked.get(one, 0.0)))
        return ordered[:1] if self._every else ordered

    def _look_at(self, repo: str, here: list[Instance]) -> None:
        if not here:
            return
        try:
            with self._hanging.asking(repo):
                now = self._context.host(here[0]).checkout_state(repo)
        except SwarmError as error:
            log.debug("the checkout %s cannot be looked at: %s", repo, error.message)
            return
        settled = self._settled(repo, here, now)
        db = self._context.db
        with db.write():
            facts, seen_at = checkouts.read(db, repo)
            # Whoever changed it while no agent was there, or for a long time, was none of those that are here now.
            watched = seen_at is not None and _seconds(seen_at, db.now()) <= self._gap and repo not in self._left
            self._left.discard(repo)
            news = changed(facts["seen"], now) if watched and facts["seen"] else {}
            self._tell(repo, MAIN, untold(db, repo, MAIN, news, after=facts.get("event_id")), here, seen_at or "")
            over = {s["instance_id"] for s in facts["strays"] if s in settled}
            strays = [s for s in facts["strays"] if s not in settled]
            facts = {"seen": now, "strays": strays, "event_id": events.newest_id(db)}
            checkouts.write(db, repo, facts, seen_at=db.now())
            for instance_id in over:
                call_person(db, instance_id, facts)

    @property
    def _gap(self) -> float:
        turns = 2 * sum(owner == MAIN for _, owner in self._looked)
        return max(_UNWATCHED, 3 * turns * self._pace.pause)

    def _look_at_worktree(self, owner: Instance, here: list[Instance]) -> None:
        """Another state counts if it is there at the next look too, and the owner was not at work by then."""
        db, known = self._context.db, self._known.pop(owner.id, None)
        at, event_id = db.now(), events.newest_id(db)
        try:
            with self._hanging.asking(owner.repo_path):
                now = self._context.host(owner).folder_state(owner.worktree_path)
        except SwarmError as error:
            log.debug("the worktree of %s cannot be looked at: %s", owner.id, error.message)
            return
        news = changed(known.state, now) if known else {}
        if known is None or (news and _may_have_changed(db, owner.id, known.at)):
            self._known[owner.id] = _Known(now, at, event_id)
        elif news and not known.differs:
            self._known[owner.id] = replace(known, differs=True)
        else:
            # A program that the owner left running may write again and again: each file is told once.
            fresh = news | {"files": [name for name in news.get("files", ()) if name not in known.told]}
            others = [i for i in here if i.id != owner.id]
            if any(fresh.values()):
                with db.write():
                    left = untold(db, owner.repo_path, owner.id, fresh, after=known.event_id)
                    self._tell(owner.repo_path, owner.id, left, others, known.at)
            self._known[owner.id] = _Known(now, at, event_id, told=known.told.union(fresh["files"]))

    def _tell(self, repo: str, owner: str, news: dict[str, Any], here: list[Instance], since: str) -> None:
        busy = at_work(here, since)
        if busy and any(news.values()):
            told = {"where": where(owner), "repo_path": repo, "certain": False, "while": busy}
            told |= {"owner": owner} if owner else {}
            events.add(self._context.db, EVENT, actor=ACTOR, metadata=told | news)

    def _settled(self, repo: str, here: list[Instance], now: CheckoutFacts) -> list[dict[str, Any]]:
        """What agents wrote where it should not be, and is committed there or taken back."""
        facts, _ = checkouts.read(self._context.db, repo)
        by_id = {i.id: i for i in here}
        return [s for s in facts["strays"] if self._is_settled(s, by_id, now)]

    def _is_settled(self, one: dict[str, Any], by_id: Mapping[str, Instance], now: CheckoutFacts) -> bool:
        dirty: Mapping[str, Any] = now
        if one["owner"] != MAIN:
            owner = by_id.get(one["owner"])
            if owner is None or one["instance_id"] not in by_id:
                return True
            try:
                dirty = self._context.host(owner).branch_state(place(owner), owner.base_branch)
            except SwarmError:
                return False
        name = places.printable(os.path.relpath(one["path"], one["folder"]))
        return name not in dirty["dirty"] and dirty["dirty_count"] == len(dirty["dirty"])


def _runs(instance: Instance) -> bool:
    return instance.wanted == Wanted.RUNNING and not instance.ended


def _quiet(listed: Iterable[Instance]) -> list[Instance]:
    """Those that are not at work, in repositories where somebody else is running."""
    found = list(listed)
    running: dict[str, set[str]] = {}
    for one in found:
        if _runs(one):
            running.setdefault(one.repo_path, set()).add(one.id)
    rests = [i for i in found if i.wanted != Wanted.REMOVED and (i.ended or i.activity not in _MAY_WRITE)]
    return [i for i in rests if running.get(i.repo_path, set()) - {i.id}]


def _may_have_changed(db: Database, owner_id: str, since: str) -> bool:
    """Whether the owner, or an operation of ours, may have changed the worktree since then."""
    owner = instances.get(db, owner_id)
    return owner.activity_at >= since or checkouts.was_worked_on(db, owner_id, since)


def _seconds(since: str, now: str) -> float:
    return (parse_iso(now) - parse_iso(since)).total_seconds()
