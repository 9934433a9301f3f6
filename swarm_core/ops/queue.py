"""The merge queue: several pull requests into one branch, checked together, merged one at a time.

What is ready is put together in a scratch worktree and checked as a whole. A batch that fails is bisected: what
was good before the culprit is merged, the culprit's author is told, and the rest goes on in the next round.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from swarm_core import ids, locks
from swarm_core.errors import Cancelled, CommandFailed, Conflict, SwarmError
from swarm_core.forge import Forge, MergeMethod
from swarm_core.hosts.base import CheckFacts, ConflictFacts, Host
from swarm_core.models import Instance, Pull, PullState, Queued, Wanted
from swarm_core.ops import brought, checking, merging, pull_look, pull_news, pull_record, pulls
from swarm_core.ops.context import Context
from swarm_core.ops.pull_status import Facts, Readiness, readiness
from swarm_core.store import events, instances, pull_facts, queue
from swarm_core.store import pulls as store

BATCH = 8
# How the remark of an entry begins that waits for its author's next commit.
_ASKED = "its author was asked to resolve a conflict"
_ROUNDS = 50
_THEN = """Fix it on your branch, run the tests, commit, and call create_pull_request again. Whoever merges puts it
back into the queue."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ready:
    """A queued pull request that could be merged now."""

    entry: Queued
    facts: Facts


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would happen to a queued pull request.

    `conflicts` are the files that do not merge today, by the branch or the instance before it they conflict with.
    """

    entry: Queued
    number: int
    title: str
    readiness: Readiness
    conflicts: dict[str, list[str]]


def add(context: Context, work: Instance, *, method: MergeMethod, actor: str) -> Queued:
    """Put the open pull request of an instance's branch into the queue, at the commit it is at."""
    seen = pulls.newest(context, work)
    merging.require_head(context, seen)
    with context.db.write():
        pull = store.get(context.db, seen.id)
        if pull.state != PullState.OPEN:
            raise Conflict(
                f"pull request #{pull.number} is {pull.state}",
                code="PULL_NOT_MERGEABLE",
                hint="`swarm pr ls` lists those that are open",
            )
        entry = queue.add(context.db, pull, method=str(method), asked_by=actor)
        told = {"number": pull.number, "commit": entry.head_commit, "method": entry.method}
        events.add(context.db, "queue:added", instance_id=work.id, actor=actor, metadata=told)
    return entry


def leave(context: Context, work: Instance, *, actor: str) -> Queued:
    """Take a pull request out of the queue."""
    with context.db.write():
        pull = store.newest_of(context.db, work.repo_path, work.branch)
        entry = queue.open_of(context.db, pull.id) if pull else None
        if pull is None or entry is None:
            raise Conflict(f"{work.id} is not in the merge queue", hint="`swarm pr queue` shows what is")
        if entry.state == queue.MERGING:
            raise Conflict(
                f"pull request #{pull.number} is being merged", hint=f"`swarm pr show {work.id}` in a moment"
            )
        return _leave(context, entry, f"{actor} took it out", actor=actor)


def outlook(context: Context) -> list[Outlook]:
    """The queue in its order, with what would hinder each, and conflicts with its base or the batch before it."""
    shown: list[Outlook] = []
    for entry in queue.waiting(context.db):
        facts = pull_look.facts_of(context, store.get(context.db, entry.pull_id))
        before = [o.entry for o in shown if _place(o.entry) == _place(entry)][1 - BATCH :]
        others = {entry.base_branch: entry.base_branch} | {one.instance_id: one.head_commit for one in before}
        host = context.host(instances.get(context.db, entry.instance_id))
        found = {name: _predicted(host, entry, commit) for name, commit in others.items()}
        conflicts = {name: files for name, files in found.items() if files}
        # What was stored of a conflict may be older than what git has just said.
        result = _with_conflict(facts, False if entry.base_branch in conflicts else None)
        shown.append(Outlook(entry, facts.pull.number, facts.pull.title, result, conflicts))
    return shown


def run(context: Context, *, again: bool = False) -> int:
    """Merge everything in the queue that can be merged now; returns how many were. One process at a time.

    With `again` nothing recorded is taken for granted: forges are asked about what waits, and a base branch on
    which the check has failed is tried again though it has not changed.
    """
    places = dict.fromkeys(_place(entry) for entry in queue.waiting(context.db))
    lines = [_Line(context, repo_path, base, again=again) for repo_path, base in places]
    for line in lines:
        line.work_off()
    return sum(line.merged for line in lines)


def is_busy(context: Context) -> bool:
    """Whether some process works at what waits."""
    repos = {entry.repo_path for entry in queue.waiting(context.db)}
    return any(locks.holder(_lock(context, repo_path)) is not None for repo_path in repos)


def first_bad(count: int, output: str, check: Callable[[int], CheckFacts | None]) -> tuple[int, str]:
    """How many of `count` are good before the first that makes the check fail, and what the check said of it.

    All together are known to fail with `output`; each question is whether the first so many are good.
    """
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        found = check(middle)
        if found is None or found["ok"]:
            good = middle
        else:
            bad, output = middle, found["output"]
    return good, output


class _Line:
    """The queue into one branch of one repository."""

    def __init__(self, context: Context, repo_path: str, base: str, *, again: bool) -> None:
        self._context = context
        self._repo_path = repo_path
        self._base = base
        self._again = again
        self._looked: set[int] = set()
        self.merged = 0

    def work_off(self) -> None:
        """Merge what can be merged now; nothing when another process is at it. Why the rest waits is noted."""
        try:
            with locks.hold(_lock(self._context, self._repo_path), timeout=0):
                self._rounds()
        except Cancelled:
            raise
        except SwarmError as error:
            if error.code != "INSTANCE_BUSY":
                log.warning("the queue into %s of %s waits: %s", self._base, self._repo_path, error.message)
                self._note(f"{error.message} [{error.code}]")

    def _rounds(self) -> None:
        for _ in range(_ROUNDS):
            ready = self._ready()
            if not ready:
                break
            try:
                self._round(ready[:BATCH])
            except Conflict as error:
                if error.details.get("reason") != "base_moved":
                    raise
                self._put_back()

    def _put_back(self) -> None:
        with self._context.db.write():
            for entry in queue.waiting(self._context.db):
                if self._is_mine(entry) and entry.state == queue.MERGING:
                    queue.change(self._context.db, entry, state=queue.WAITING, detail=entry.detail)

    def _note(self, why: str) -> None:
        """On all of them; what was about to be merged is looked at again."""
        with self._context.db.write():
            for entry in queue.waiting(self._context.db):
                if self._is_mine(entry) and not _is_asked(entry):
                    queue.change(self._context.db, entry, state=queue.WAITING, detail=why)

    def _ready(self) -> list[Ready]:
        """Those that nothing hinders, of one forge; what is over leaves the queue here."""
        tried = (self._tried(entry) for entry in queue.waiting(self._context.db) if self._is_mine(entry))
        found = [ready for ready in tried if ready is not None]
        return [one for one in found if one.facts.pull.repository == found[0].facts.pull.repository]

    def _tried(self, entry: Queued) -> Ready | None:
        """One at which git fails waits; the others do not wait for it."""
        try:
            return self._settled(entry, self._look(entry))
        except CommandFailed as error:
            why = self._unsound(store.get(self._context.db, entry.pull_id))
            self._wait(entry, "; ".join(why) or f"{error.message} [{error.code}]")
            return None

    def _is_mine(self, entry: Queued) -> bool:
        return _place(entry) == (self._repo_path, self._base)

    def _look(self, entry: Queued) -> Facts:
        """As its forge has it now; GitHub is asked about what has to wait anyway only once, and only `again`."""
        pull = store.get(self._context.db, entry.pull_id)
        facts = pull_look.facts_of(self._context, pull)
        waits = pull.repository and (_is_asked(entry) or _but_conflicts(facts).blockers)
        is_due = self._again and entry.id not in self._looked
        self._looked.add(entry.id)
        if pull.state != PullState.OPEN or (waits and not is_due and pull.head_commit == entry.head_commit):
            return facts
        return merging.refreshed(self._context, pulls.forge_of(self._context, pull, person=False), pull)

    def _settled(self, entry: Queued, facts: Facts) -> Ready | None:
        current = self._current(entry, facts.pull)
        if current is None or _is_asked(current):
            return None
        # A conflict is found again, and its author is asked, when its turn comes.
        hindrances = [*self._newer(facts.pull), *_but_conflicts(facts).sentences] or self._unsound(facts.pull)
        if hindrances:
            self._wait(current, "; ".join(hindrances))
            return None
        return Ready(current, facts)

    def _newer(self, pull: Pull) -> list[str]:
        """What a merge would leave out, in words."""
        try:
            merging.require_head(self._context, pull)
        except Conflict as error:
            return [f"{error.message}; {error.hint}"]
        return []

    def _unsound(self, pull: Pull) -> list[str]:
        """Objects of it that are not what their names say, in words."""
        try:
            merging.require_sound(self._context, pull)
        except Conflict as error:
            return [f"{error.message}; {error.hint}"]
        except CommandFailed as error:
            return [f"{error.message} [{error.code}]"]
        return []

    def _current(self, entry: Queued, pull: Pull) -> Queued | None:
        """The entry as it goes on; None when it is over. One that a killed process was merging waits again."""
        if pull.state == PullState.MERGED:
            with self._context.db.write():
                queue.change(self._context.db, entry, state=queue.MERGED)
            return None
        if why := _over(entry, pull):
            self._out(entry, why)
            return None
        if pull.head_commit == entry.head_commit:
            return self._wait(entry, entry.detail) if entry.state == queue.MERGING else entry
        with self._context.db.write():
            told = {"number": pull.number, "from": entry.head_commit, "commit": pull.head_commit}
            events.add(
                self._context.db, "queue:added", instance_id=entry.instance_id, actor="swarm", metadata=told
            )
            return queue.change(self._context.db, entry, state=queue.WAITING, head_commit=pull.head_commit)

    def _round(self, batch: Sequence[Ready]) -> None:
        """Put a batch together, check it and merge what is good."""
        host = self._context.host(instances.get(self._context.db, batch[0].entry.instance_id))
        base_commit = merging.base_commit(self._context, host, batch[0].facts.pull)
        command = checking.command(self._context, host, self._repo_path, self._base)
        whole = self._recipe(batch, base_commit, command)
        if not self._again and self._is_base_bad(whole):
            raise self._base_fails()
        facts = checking.attempt(self._context, host, whole)
        if facts["conflict"] is not None:
            self._conflict(host, whole, batch, facts["conflict"])
            return
        good, output, made = len(batch), "", {len(batch): facts["commits"]}
        if facts["check"] is not None and not facts["check"]["ok"]:
            good, output = self._bisect(host, whole, facts["check"]["output"], made)
        if good == 0 and not checking.try_base(self._context, host, whole, again=True):
            raise self._base_fails()
        self._tell_tried(batch, good, command)
        base = self._merge(host, whole, batch[:good], made[good]) if good else base_commit
        if base is not None and good < len(batch):
            self._send_away(batch[good], base, command, output)

    def _bisect(
        self, host: Host, whole: checking.Recipe, output: str, made: dict[int, list[str]]
    ) -> tuple[int, str]:
        def check(count: int) -> CheckFacts | None:
            facts = checking.attempt(self._context, host, _first(whole, count))
            made[count] = facts["commits"]
            return facts["check"]

        return first_bad(len(whole.heads), output, check)

    def _is_base_bad(self, whole: checking.Recipe) -> bool:
        known = checking.last(self._context, _first(whole, 0))
        return known is not None and not known.ok

    def _base_fails(self) -> Conflict:
        return Conflict(
            f"the check fails on {self._base} itself; mend that, then `swarm pr queue --run`", code="CHECK_FAILED"
        )

    def _conflict(
        self, host: Host, whole: checking.Recipe, batch: Sequence[Ready], conflict: ConflictFacts
    ) -> None:
        """One that conflicts with the base has to be reworked; one that conflicts with another waits for it."""
        index, files = conflict["index"], conflict["files"]
        alone = dataclasses.replace(whole, heads=[whole.heads[index]], command=[])
        with_base = checking.attempt(self._context, host, alone)["conflict"]
        if with_base is not None:
            self._ask(batch[index], with_base["files"])
            return
        self._wait(batch[index].entry, f"it changes the same lines as one before it: {', '.join(files[:5])}")
        self._round([*batch[:index], *batch[index + 1 :]])

    def _merge(self, host: Host, whole: checking.Recipe, good: Sequence[Ready], made: Sequence[str]) -> str | None:
        """Merge what was checked and return where the base is then.

        None if one of them has changed meanwhile or may not be merged any more: then they are tried anew.
        """
        if any(self._newer(one.facts.pull) for one in good):
            return None
        spans = [brought.of_pull(host, one.facts.pull) for one in good]
        hidden = pull_look.replaced_now(self._context, good[0].facts.pull)
        with self._context.db.write():
            for one, span in zip(good, spans, strict=True):
                now = store.get(self._context.db, one.entry.pull_id)
                brought.keep(self._context.db, store.looked(self._context.db, now, replaced=hidden), span)
            if not all(self._is_unchanged(one) for one in good):
                return None
            for one in good:
                queue.change(self._context.db, one.entry, state=queue.MERGING)
        pull = good[0].facts.pull
        if pull.repository:
            forge = pulls.forge_of(self._context, pull, person=False)
            return self._merge_there(host, forge, whole.base_commit, good)
        return self._land(host, _first(whole, len(good)), good, made)

    def _is_unchanged(self, one: Ready) -> bool:
        pull = store.get(self._context.db, one.entry.pull_id)
        same = (pull.state, pull.head_commit) == (PullState.OPEN, one.entry.head_commit)
        ready = _but_conflicts(pull_look.facts_of(self._context, pull)).ready
        return same and ready and _is_open(self._context, one.entry)

    def _land(self, host: Host, recipe: checking.Recipe, good: Sequence[Ready], made: Sequence[str]) -> str:
        """The local forge: the branch is moved to what was checked, in one step."""
        facts = checking.land(self._context, host, recipe, made=made)
        with self._context.db.write():
            for one, commit in zip(good, facts["commits"], strict=True):
                now = store.get(self._context.db, one.entry.pull_id)
                pull_record.merged(self._context, now, commit=commit, actor=one.entry.asked_by)
                queue.change(self._context.db, one.entry, state=queue.MERGED)
        self.merged += len(good)
        return facts["commits"][-1]

    def _merge_there(self, host: Host, forge: Forge, base_commit: str, good: Sequence[Ready]) -> str:
        """GitHub merges one after the other; when it refuses one, that and those after it wait.

        Raises Conflict (`base_moved`) when the base there has become what nobody has checked.
        """
        ours, last = {base_commit}, base_commit
        for one in good:
            self._require_base(host, one.facts.pull, ours)
            method = MergeMethod(one.entry.method)
            merged = merging.carry_out(self._context, forge, one.facts.pull, method, actor=one.entry.asked_by)
            with self._context.db.write():
                queue.change(self._context.db, one.entry, state=queue.MERGED)
            self.merged += 1
            last = merged.merge_commit or last
            ours.add(last)
        return last

    def _require_base(self, host: Host, pull: Pull, ours: Set[str]) -> None:
        found = merging.base_commit(self._context, host, pull)
        if found not in ours:
            raise Conflict(
                f"{self._base} has moved on to {found[:12]} since it was checked",
                details={"reason": "base_moved", "branch": self._base, "found": found},
            )

    def _recipe(self, batch: Sequence[Ready], base_commit: str, command: list[str]) -> checking.Recipe:
        return checking.Recipe(
            repo_path=self._repo_path,
            base_branch=self._base,
            base_commit=base_commit,
            heads=[
                {
                    "head_commit": one.entry.head_commit,
                    "method": one.entry.method,
                    "message": merging.title_of(one.facts.pull),
                }
                for one in batch
            ],
            command=command,
            scratch="queue",
        )

    def _wait(self, entry: Queued, detail: str) -> Queued:
        if (entry.state, entry.detail) == (queue.WAITING, detail):
            return entry
        with self._context.db.write():
            return queue.change(self._context.db, entry, state=queue.WAITING, detail=detail)

    def _out(self, entry: Queued, why: str) -> None:
        _leave(self._context, entry, why, actor="swarm")

    def _ask(self, one: Ready, files: Sequence[str]) -> None:
        """Its author resolves the conflict; the entry then goes on with the author's next commit."""
        work, named = instances.get(self._context.db, one.entry.instance_id), ", ".join(files[:10])
        how = "" if work.wanted == Wanted.RUNNING else f"; its agent does not run: `swarm restart {work.id}`"
        body = (
            f"Your pull request #{one.facts.pull.number} waits in the merge queue and conflicts with {self._base}:"
            f" {named}. Bring {self._base} into your branch, resolve the conflict, run the tests, commit, and call"
            " create_pull_request again: it then goes on by itself."
        )
        with self._context.db.write():
            if _is_open(self._context, one.entry):
                self._tell_of_conflict(one, body)
            self._wait(one.entry, f"{_ASKED} in {', '.join(files[:5])}{how}")

    def _tell_of_conflict(self, one: Ready, body: str) -> None:
        """Unless whoever follows the pull request has told the author of the same conflict already."""
        news = [p.key for p in pull_news.pieces(one.facts) if p.key.startswith("conflict:")]
        told = pull_facts.told(self._context.db, one.entry.pull_id)
        if any(told.get(key) is not None for key in news):
            return
        message_id = merging.tell_author(self._context, one.entry.instance_id, body)
        pull_facts.note(self._context.db, one.entry.pull_id, news, message_id=message_id)

    def _send_away(self, one: Ready, base_commit: str, command: Sequence[str], output: str) -> None:
        entry = one.entry
        said = f"The check command ({' '.join(command)[:200]}) fails with your work merged into {self._base}:"
        body = f"Your pull request left the merge queue. {said}\n\n{merging.said_by_check(output)}\n\n{_THEN}"
        with self._context.db.write():
            if _is_open(self._context, entry):
                merging.tell_author(self._context, entry.instance_id, body)
                failed: CheckFacts = {"ok": False, "output": output}
                checking.record(self._context, one.facts.pull, base_commit, command, failed)
                self._out(entry, "the check failed on the merged result")

    def _tell_tried(self, batch: Sequence[Ready], good: int, command: Sequence[str]) -> None:
        told = {
            "pulls": [one.facts.pull.number for one in batch],
            "good": good,
            "check": command[:1],
            "base_branch": self._base,
        }
        with self._context.db.write():
            events.add(self._context.db, "queue:tried", actor="swarm", metadata=told)


def _predicted(host: Host, entry: Queued, other: str) -> list[str]:
    try:
        return host.predict(entry.repo_path, other, entry.head_commit)["conflicts"]
    except Cancelled:
        raise
    except SwarmError as error:
        log.info("what %s would do to %s is not known: %s", entry.instance_id, other, error.message)
        return []


def _but_conflicts(facts: Facts) -> Readiness:
    """The readiness as if nothing were known of conflicts: git finds them when its turn comes."""
    return _with_conflict(facts, None)


def _with_conflict(facts: Facts, mergeable: bool | None) -> Readiness:
    return readiness(dataclasses.replace(facts, pull=dataclasses.replace(facts.pull, mergeable=mergeable)))


def _first(recipe: checking.Recipe, count: int) -> checking.Recipe:
    return dataclasses.replace(recipe, heads=recipe.heads[:count])


def _place(entry: Queued) -> tuple[str, str]:
    return entry.repo_path, entry.base_branch


def _lock(context: Context, repo_path: str) -> Path:
    return context.settings.locks / f"queue-{ids.repo_folder(repo_path)}.lock"


def _is_asked(entry: Queued) -> bool:
    return entry.detail.startswith(_ASKED)


def _is_open(context: Context, entry: Queued) -> bool:
    """Whether nobody has taken it out meanwhile."""
    now = queue.open_of(context.db, entry.pull_id)
    return now is not None and now.id == entry.id


def _over(entry: Queued, pull: Pull) -> str:
    """Why it is not to be merged any more."""
    if pull.state == PullState.CLOSED:
        return "it was closed"
    if pull.base_branch != entry.base_branch:
        return f"it goes into {pull.base_branch} now"
    if pull.head_commit != entry.head_commit and not _is_asked(entry):
        return f"it moved on from {entry.head_commit[:12]} to {pull.head_commit[:12]}"
    return ""


def _leave(context: Context, entry: Queued, why: str, *, actor: str) -> Queued:
    with context.db.write():
        events.add(context.db, "queue:left", instance_id=entry.instance_id, actor=actor, metadata={"why": why})
        return queue.change(context.db, entry, state=queue.LEFT, detail=why)
