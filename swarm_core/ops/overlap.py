"""The overlap radar: which agents of a repository change the same places, and whether that would conflict.

What is compared is what each worktree holds, uncommitted work included; a conflict is predicted of commits alone.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from swarm_core.errors import SwarmError
from swarm_core.git.overlap import overlaps as meeting
from swarm_core.hosts.base import Watched
from swarm_core.models import Instance, Kind, Overlap, Status, Wanted
from swarm_core.ops import places, post
from swarm_core.ops.context import Context, place
from swarm_core.ops.hanging import Hanging
from swarm_core.ops.pace import PAUSE_PER_COST, Pace
from swarm_core.ops.places import LEVELS, level
from swarm_core.store import events, instances, overlaps, pulls

_KINDS = frozenset({Kind.WORK, Kind.FORK, Kind.ADHOC})
_OPEN = frozenset(
    {Status.RUNNING, Status.WAITING_REVIEW, Status.CHANGES_REQUESTED, Status.APPROVED, Status.PR_CREATED}
)
# Who waits for a verdict or a merge has nothing to change now, and a turn would move the commit that is looked at.
_WRITES = frozenset({Status.RUNNING, Status.CHANGES_REQUESTED})
_TICK = 2.0
_SLICE = 0.1
_SAME_COUNTS = 60.0
_NAMED = 50
_AT_ONCE = 8
_ACTOR = "supervisor"

_Touched = Mapping[str, list[list[int]]]
_Pair = tuple[str, str]
_T = TypeVar("_T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sight:
    """What an instance changed when it was last looked at, in lines of `start`; None is what nobody knows."""

    counts: tuple[object, ...]
    changes_at: str | None
    at: float
    start: str | None
    touched: _Touched | None


class Radar:
    """One per database, in the coordinator; `look` is called from one thread and again and again.

    It looks only at instances whose counted changes or commit are others than before, and compares each of them
    with those of its repository. What it has found is in the database, so that a restart tells nobody twice.
    """

    def __init__(
        self, context: Context, *, pause_per_cost: float = PAUSE_PER_COST, hanging: Hanging | None = None
    ) -> None:
        self._context = context
        self._hanging = hanging or Hanging()
        self._pace = Pace(_TICK if pause_per_cost else 0.0, pause_per_cost=pause_per_cost)
        self._sights: dict[str, _Sight] = {}
        self._pending: dict[_Pair, None] = {}
        self._predicted: dict[_Pair, tuple[str, str, list[str]]] = {}
        self._tips: dict[tuple[str, str, str], str | None] = {}

    def look(self) -> None:
        if not self._pace.is_due:
            return
        with self._pace.turn():
            self._tips = {}
            present = watched(self._context)
            self._forget(present)
            for instance in _for_a_while(self._stale(present.values())):
                self._see(instance, present)
            present = self._without_gone(present)
            for batch in _for_a_while(self._batches()):
                self._compare([present[one] for one in batch])
            self._end_and_tell(present)

    def _forget(self, present: Mapping[str, Instance]) -> None:
        here = present.keys()
        self._sights = {key: sight for key, sight in self._sights.items() if key in here}
        self._pending = {pair: None for pair in self._pending if here >= set(pair)}
        self._predicted = {pair: known for pair, known in self._predicted.items() if here >= set(pair)}

    def _without_gone(self, present: Mapping[str, Instance]) -> dict[str, Instance]:
        """Leave out work that meets others' and has neither a branch nor a worktree any more."""
        recorded = [(overlap.one, overlap.other) for overlap in overlaps.listed(self._context.db)]
        met = {one for pair in (*recorded, *self._pending) for one in pair}
        gone = {one for one in met if one in present and self._is_gone(present[one])}
        self._pending = {pair: None for pair in self._pending if not gone & set(pair)}
        return {one: instance for one, instance in present.items() if one not in gone}

    def _is_gone(self, instance: Instance) -> bool:
        host, there = self._context.host(instance), place(instance)
        try:
            with self._hanging.asking(instance.repo_path):
                if host.branch_tip(there) is not None:
                    return False
            asked: Watched = {
                "instance_id": instance.id,
                "agent": instance.agent,
                "worktree_path": instance.worktree_path,
            }
            return not host.snapshot([asked])[instance.id]["worktree"]
        except SwarmError as error:
            log.debug("whether %s is gone is not known: %s", instance.id, error.message)
            return False

    def _stale(self, present: Iterable[Instance]) -> list[Instance]:
        """Those that may have changed, the longest unseen first; nobody alone in a repository."""
        found = [i for group in _by_repository(present) if len(group) > 1 for i in group if self._may_differ(i)]
        return sorted(found, key=lambda i: self._sights[i.id].at if i.id in self._sights else 0.0)

    def _may_differ(self, instance: Instance) -> bool:
        if instance.changes_at is None:
            return False
        known = self._sights.get(instance.id)
        if known is None or known.counts != _counts(instance):
            return True
        # As many lines may have become other lines.
        return instance.changes_at != known.changes_at and time.monotonic() - known.at >= _SAME_COUNTS

    def _see(self, instance: Instance, present: Mapping[str, Instance]) -> None:
        at, known = time.monotonic(), self._sights.get(instance.id)
        found = self._touched([instance]) if instance.files_changed else {instance.id: {}}
        if found is None:  # it stays what it was, and the others get their turn
            start, touched = (known.start, known.touched) if known else (None, None)
        else:
            # The base branch has not moved, or there is no commit: it went apart where it started.
            still = instance.base_commit in (self._tips.get(_base(instance)), instance.head_commit)
            start, touched = instance.base_commit if still else None, found[instance.id]
            for other in present.values():
                theirs = self._sights.get(other.id)
                if theirs and theirs.touched is not None and is_comparable(instance, other, present):
                    self._pending[_pair(instance.id, other.id)] = None
        self._sights[instance.id] = _Sight(_counts(instance), instance.changes_at, at, start, touched)

    def _batches(self) -> Iterator[list[str]]:
        """An instance and some of those it is to be compared with, until there are none."""
        while self._pending:
            one = next(iter(self._pending))[0]
            batch = [pair for pair in self._pending if one in pair][:_AT_ONCE]
            for pair in batch:
                del self._pending[pair]
            yield [one, *(pair[pair[0] == one] for pair in batch)]

    def _compare(self, some: Sequence[Instance]) -> None:
        """The first with each of the others."""
        first, *others = some
        known = {i.id: self._sights[i.id].touched or {} for i in some}
        meets = [i for i in others if known[first.id].keys() & known[i.id].keys()]
        start = self._sights[first.id].start
        unsure = [i for i in meets if start is None or start != self._sights[i.id].start]
        again = self._touched([first, *unsure]) if unsure else {}
        if again is None:  # one of them cannot be read, and the others are none the worse for it
            for other in others if len(others) > 1 else ():
                self._compare([first, other])
            return
        for other in others:
            one, two = sorted((first, other), key=lambda i: i.id)
            touched = again if other in unsure else known
            files = shared(touched[one.id], touched[two.id]) if other in meets else {}
            self._record((one.id, two.id), files, self._conflicts(one, two) if files else [])

    def _touched(self, some: Sequence[Instance]) -> dict[str, _Touched] | None:
        """What they change, in lines of one commit; None when it cannot be read.

        Told against the base branch as it is now: against where it was, work that was rebased changes all that
        others have merged.
        """
        there = [place(i) for i in some]
        try:
            with self._hanging.asking(some[0].repo_path):
                for one, instance in zip(there, some, strict=True):
                    one["base_commit"] = self._tip(instance)
                found = self._context.host(some[0]).touched(there)
        except SwarmError as error:
            log.debug("what %s changed cannot be seen: %s", [i.id for i in some], error.message)
            return None
        return {i.id: found.get(i.id, {}) for i in some}

    def _tip(self, instance: Instance) -> str | None:
        """Where its base branch is, asked once in a look; where it was, if there is no such branch any more."""
        if _base(instance) not in self._tips:
            base = place(instance)
            base["branch"] = instance.base_branch
            self._tips[_base(instance)] = self._context.host(instance).branch_tip(base)
        return self._tips[_base(instance)] or instance.base_commit

    def _conflicts(self, one: Instance, other: Instance) -> list[str]:
        """The files in which their commits would conflict; asked again when one of them has another commit."""
        ours, theirs = one.head_commit, other.head_commit
        if not ours or not theirs or ours in (theirs, one.base_commit) or theirs == other.base_commit:
            return []
        known = self._predicted.get((one.id, other.id))
        if known is None or known[:2] != (ours, theirs):
            try:
                with self._hanging.asking(one.repo_path):
                    found = self._context.host(one).predict(one.repo_path, ours, theirs)["conflicts"]
            except SwarmError as error:
                log.debug("whether %s and %s conflict is not known: %s", one.id, other.id, error.message)
                return []
            known = self._predicted[one.id, other.id] = (ours, theirs, found[:_NAMED])
        return known[2]

    def _record(self, pair: _Pair, files: dict[str, list[list[int]]], conflicts: list[str]) -> None:
        db, (one, other) = self._context.db, pair
        before = overlaps.find(db, one, other)
        if before is None and not files:
            return
        now = Overlap(one, other, files, conflicts, db.now())
        if before is not None and (before.files, before.conflicts) == (files, conflicts):
            return
        with db.write():
            if not files:
                assert before is not None
                self._end(before, "they no longer change the same files")
                return
            overlaps.put(db, now)
            was, is_ = level(before), level(now)
            if LEVELS.index(is_) > LEVELS.index(was):
                _tell_of(self._context, now, "overlap:found", **_facts(now))
            elif was and not is_:
                _tell_of(self._context, now, "overlap:over", why="they change other places of the same files")

    def _end(self, overlap: Overlap, why: str) -> None:
        overlaps.remove(self._context.db, overlap)
        if level(overlap):
            _tell_of(self._context, overlap, "overlap:over", why=why)

    def _end_and_tell(self, present: Mapping[str, Instance]) -> None:
        """Overlaps with somebody who is gone are over; of the others everybody who still writes is told once."""
        db, known = self._context.db, overlaps.told(self._context.db)
        for overlap in overlaps.listed(db):
            pair = (overlap.one, overlap.other)
            if not present.keys() >= set(pair) or not is_comparable(present[pair[0]], present[pair[1]], present):
                with db.write():
                    self._end(overlap, "one of them is done")
            elif (now := level(overlap)) and (whom := _untold(pair, known.get(pair, {}), now, present)):
                with db.write():
                    overlaps.note_told(db, overlap, dict.fromkeys(whom, now))
                    for one in whom:
                        other = present[pair[pair[0] == one]]
                        post.post(self._context, present[one], warning(other, overlap), sender="swarm")


def watched(context: Context) -> dict[str, Instance]:
    """The instances whose changes are still to be merged."""
    found = [i for i in instances.listed(context.db) if i.kind in _KINDS and i.wanted != Wanted.REMOVED]
    ended = {i.id for i in found if i.status in (Status.FAILED, Status.TERMINATED) and i.pr_number}
    opened = ended & {pull.instance_id for pull in pulls.listed(context.db)} if ended else set()
    return {i.id: i for i in found if i.status in _OPEN or i.id in opened}


def is_comparable(one: Instance, other: Instance, present: Mapping[str, Instance]) -> bool:
    """Two that work in one repository at different tasks: attempts at one task overlap by design."""
    if one.id == other.id or (one.repo_path, one.host) != (other.repo_path, other.host):
        return False
    return not _tasks(one, present) & _tasks(other, present)


def shared(one: _Touched, other: _Touched) -> dict[str, list[list[int]]]:
    """The files that both change, with the lines where they meet: those first, and the others without lines."""
    meet = meeting(_ranges(one), _ranges(other))
    both = {path: [list(span) for span in meet.get(path, [])] for path in sorted(one.keys() & other.keys())}
    ordered = sorted(both, key=lambda path: not both[path])
    return {path: both[path][:_NAMED] for path in ordered[:_NAMED]}


def warning(other: Instance, overlap: Overlap) -> str:
    """What an agent is told of another that changes the same places."""
    who = f"{other.id} ({places.printable(other.name)})" if other.name else other.id
    where = {path: lines for path, lines in overlap.files.items() if lines}
    said = [f"{who} changes the same places as you: {places.label(where)}."] if where else []
    if overlap.conflicts:
        said.append(
            f"What you and {other.id} have committed would conflict today in {places.names(overlap.conflicts)}."
        )
    said.append(
        "Nobody has to stop: keep your change there small, make it in commits of its own, and leave alone what"
        f" your task does not need. If {other.id} is merged first, rebase onto {other.base_branch}, keeping both."
    )
    return " ".join(said)


def _ranges(touched: _Touched) -> dict[str, list[tuple[int, int]]]:
    return {path: [(first, last) for first, last in ranges] for path, ranges in touched.items()}


def _tasks(instance: Instance, present: Mapping[str, Instance]) -> set[str]:
    """What its work belongs to: its group of attempts, and what it and its parents were forked from."""
    found, at = {instance.id}, instance
    while True:
        if at.attempt_group:
            found.add(f"group {at.attempt_group}")
        if at.kind != Kind.FORK or not at.parent_id or at.parent_id in found:
            return found
        found.add(at.parent_id)
        if at.parent_id not in present:
            return found
        at = present[at.parent_id]


def _base(instance: Instance) -> tuple[str, str, str]:
    return (instance.host, instance.repo_path, instance.base_branch)


def _pair(first: str, second: str) -> _Pair:
    return (first, second) if first < second else (second, first)


def _for_a_while(work: Iterable[_T]) -> Iterator[_T]:
    """One at least, and no more once the time is up."""
    until = time.monotonic() + _SLICE
    for one in work:
        yield one
        if time.monotonic() >= until:
            return


def _by_repository(present: Iterable[Instance]) -> list[list[Instance]]:
    def key(instance: Instance) -> tuple[str, str]:
        return (instance.repo_path, instance.host)

    return [list(group) for _, group in itertools.groupby(sorted(present, key=key), key)]


def _counts(instance: Instance) -> tuple[object, ...]:
    lines = (instance.files_changed, instance.lines_added, instance.lines_deleted)
    return (instance.head_commit, instance.base_commit, instance.worktree_path, *lines)


def _untold(pair: _Pair, told: Mapping[str, str], now: str, present: Mapping[str, Instance]) -> list[str]:
    return [
        one
        for one in pair
        if present[one].status in _WRITES
        and present[one].wanted == Wanted.RUNNING
        and LEVELS.index(told.get(one, "")) < LEVELS.index(now)
    ]


def _facts(overlap: Overlap) -> dict[str, object]:
    return {
        "level": level(overlap),
        "files": {path: ranges for path, ranges in overlap.files.items() if ranges},
        "conflicts": overlap.conflicts,
        "conflicts_of": "commits",
    }


def _tell_of(context: Context, overlap: Overlap, name: str, **more: object) -> None:
    """An event of each of the two, so that it is found with either."""
    for one, other in ((overlap.one, overlap.other), (overlap.other, overlap.one)):
        events.add(context.db, name, instance_id=one, actor=_ACTOR, metadata={"with": other, **more})
