"""Following pull requests: one schedule for all, sparing with the quota, patient when nobody answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta

from swarm_core.errors import Cancelled, SwarmError
from swarm_core.forge import CheckState, Forge
from swarm_core.models import Pull, PullState, iso, parse_iso
from swarm_core.ops import merging, pull_look, pull_news, pull_record, pulls
from swarm_core.ops.context import Context
from swarm_core.ops.pull_status import Facts
from swarm_core.store import events
from swarm_core.store import pulls as store

_TICK = 1.0
_SOON = 30.0  # what is due so soon is looked at together with what is due now
_BUSY, _CALM, _LOCAL = 60.0, 300.0, 10.0
_CLOSED = 600.0  # one that was closed may be opened again
_CLOSED_EVERY = 60.0
_CALM_AFTER = 3600.0
_AT_FULL_PACE = 2  # batches; more of them are asked for less often
_FIRST_PAUSE, _LONGEST_PAUSE = 15.0, 300.0
_LIMITED = "GITHUB_RATE_LIMITED"

log = logging.getLogger(__name__)


class Follower:
    """One per database, in the coordinator. `run` returns after `stop`; `wake` makes it look at once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stop = threading.Event()
        self._news = threading.Event()
        self._forges: dict[str, Forge] = {}
        self._closed_next = ""

    def stop(self) -> None:
        self._stop.set()
        self._news.set()

    def wake(self) -> None:
        self._closed_next = ""
        self._news.set()

    def run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
            except SwarmError as error:
                log.warning("pull requests wait: %s (%s)", error.message, error.code)
            except Exception:  # the follower must outlive its own bugs; the traceback is kept
                log.exception("the follower met a bug")
            self._news.wait(_TICK)
            self._news.clear()

    def look(self) -> int:
        """Look at everything that is due, one repository after the other; returns how many were looked at."""
        places: dict[tuple[str, str], list[Pull]] = {}
        now = self._context.db.now()
        closed = self._closed_next <= now
        if closed:
            self._closed_next = iso(parse_iso(now) + timedelta(seconds=_CLOSED_EVERY))
        for pull in store.due(self._context.db, within=_SOON, closed=closed):
            places.setdefault((pull.forge, pull.repository or pull.repo_path), []).append(pull)
        soon = iso(parse_iso(now) + timedelta(seconds=_SOON))
        due = [found for found in places.values() if not all(now < (p.next_at or "") <= soon for p in found)]
        return sum(self._look_at(found) for found in due if not self._stop.is_set())

    def _look_at(self, due: list[Pull]) -> int:
        looked = 0
        try:
            forge = self._forge(due[0])
            for some in batches(due, forge.batch):
                if self._stop.is_set():
                    break
                looked += look_at(self._context, forge, some)
                _answers_again(self._context, some)
        except SwarmError as error:
            put_off(self._context, due, error)
        return looked

    def _forge(self, pull: Pull) -> Forge:
        """Kept from look to look, with its connection; made anew when it was refused, as after a new token."""
        key = pull.repository or pull.repo_path
        if key not in self._forges or "GITHUB_UNAUTHORIZED" in pull.failure:
            self._forges[key] = pulls.forge_of(self._context, pull, person=False)
        return self._forges[key]


def look_at(context: Context, forge: Forge, due: Sequence[Pull]) -> int:
    """Look at pull requests of one forge now: take in what changed, tell the agents, merge what may be."""
    asked_at = context.db.now()
    looks = forge.look([pull_look.known_of(pull) for pull in due])
    pace = max(1.0, store.count_open(context.db, due[0].forge, due[0].repository) / forge.batch / _AT_FULL_PACE)
    for pull in due:
        look = looks.get(pull.number)
        taken = pull_look.take_in(context, pull, look, asked_at=asked_at) if look is not None else None
        facts = taken or _gone(context, pull)
        if facts.pull.state == PullState.OPEN:
            try:
                _act(context, forge, facts)
            except Cancelled:
                raise
            except SwarmError as error:  # one instance's trouble is its own: the others are told all the same
                log.warning("#%d of %s: %s", pull.number, pull.repository or pull.repo_path, error.message)
                _note_trouble(context, pull, error)
            finally:
                _schedule(context, facts, pace)
        elif facts.pull.state == PullState.CLOSED:
            _look_later(context, facts.pull, pace * _CLOSED)
    return len(due)


def put_off(context: Context, due: Sequence[Pull], error: SwarmError) -> None:
    """Look at them later; what is known stays, and how old it is can be seen."""
    log.warning("%d pull requests wait: %s (%s)", len(due), error.message, error.code)
    db = context.db
    with db.write():
        now, first = db.now(), True
        for one in due:
            pull = store.get(db, one.id)
            if pull.looked_at != one.looked_at or pull.state == PullState.MERGED:
                continue  # looked at before the failure, or by somebody else meanwhile
            if first and pull.failures == 0 and error.code != _LIMITED:
                told = {"repository": pull.repository, "error": error.message, "code": error.code}
                events.add(db, "forge:lost", actor=pull.forge, metadata=told)
            first = False
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(pull.failures, 10))
            later = iso(parse_iso(now) + timedelta(seconds=pause))
            asked = str(error.details.get("retry_at") or "")
            said = f"{error.message} [{error.code}]"
            store.looked(db, pull, next_at=max(later, asked), failures=pull.failures + 1, failure=said)


def batches(due: Sequence[Pull], size: int) -> Iterator[Sequence[Pull]]:
    return (due[start : start + size] for start in range(0, len(due), size))


def _answers_again(context: Context, looked: Sequence[Pull]) -> None:
    """After the first answer nobody waits any longer."""
    first = next((pull for pull in looked if pull.failures), None)
    if first is None:
        return
    with context.db.write():
        store.hurry(context.db, first.forge, first.repository)
        if _LIMITED not in first.failure:
            told = {"repository": first.repository}
            events.add(context.db, "forge:back", actor=first.forge, metadata=told)


def _note_trouble(context: Context, pull: Pull, error: SwarmError) -> None:
    with context.db.write():
        store.looked(context.db, store.get(context.db, pull.id), failure=f"{error.message} [{error.code}]")


def _gone(context: Context, pull: Pull) -> Facts:
    """The forge does not know it any more, as after the repository was deleted."""
    with context.db.write():
        return Facts(pull_record.closed(context, store.get(context.db, pull.id), actor=pull.forge))


def _act(context: Context, forge: Forge, facts: Facts) -> None:
    def log_of(job: int) -> str:
        try:
            return forge.log_tail(job, max_bytes=pull_news.LOG_BYTES)
        except SwarmError as error:
            return f"(the log cannot be had: {error.message})"

    pull_news.tell(context, facts, log_of)
    if facts.pull.repository:  # what is merged here is checked first, which may take long: the merger does it
        merging.merge_if_asked(context, forge, facts)


def _schedule(context: Context, facts: Facts, pace: float) -> None:
    """Soon while something is about to happen, later when all is calm or there are very many."""
    db, pull = context.db, facts.pull
    age = (parse_iso(db.now()) - parse_iso(pull.updated_at)).total_seconds()
    open_question = facts.checks_state == CheckState.PENDING or pull.mergeable is None or bool(pull.auto_merge)
    pause = _LOCAL if not pull.repository else pace * (_BUSY if open_question or age < _CALM_AFTER else _CALM)
    _look_later(context, pull, pause)


def _look_later(context: Context, pull: Pull, pause: float) -> None:
    """Unless its state has changed meanwhile."""
    db = context.db
    with db.write():
        now = store.get(db, pull.id)
        if now.state == pull.state:
            store.looked(db, now, next_at=iso(parse_iso(db.now()) + timedelta(seconds=pause)))
