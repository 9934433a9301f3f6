"""Who comes to the dashboard: visits by cookie, the operator and automations by token, and whom it refused."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from swarm_core.errors import SwarmError
from swarm_core.models import PrincipalKind, iso, parse_iso
from swarm_core.ops import links
from swarm_core.ops.links import Entered, Made
from swarm_core.store import events, tokens, visits
from swarm_core.store.visits import Visit
from swarm_core.swarm import Swarm
from swarm_ui.web.endpoint import Visitor

_REMEMBERED = 1.0
_MOST_REMEMBERED = 1000
_SEEN_EVERY = timedelta(minutes=5)
_REFUSAL_EVERY = 1.0
_SAME_REFUSAL_EVERY = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a request shows of itself; with a bearer token, cookies do not count."""

    cookies: tuple[str, ...] = ()
    bearer: str | None = None

    def __repr__(self) -> str:
        return "Shown(...)"  # secrets are not for logs


class Doors:
    """Many threads may share it."""

    def __init__(self, swarm: Swarm, port: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.cookie = f"swarm_{port}"
        self._swarm = swarm
        self._port = port
        self._clock = clock
        self._known: dict[Shown, tuple[float, Visitor]] = {}
        self._lock = threading.Lock()
        self._refused_at = -_SAME_REFUSAL_EVERY
        self._refusals: dict[str, tuple[float, int]] = {}

    def make_link(self, *, may_write: bool, name: str = "", hours: int | None = None) -> Made:
        return links.make(self._swarm.context, may_write=may_write, name=name, hours=hours)

    def enter(self, token: str) -> Entered | None:
        """Begin a visit; None when the token opens nothing (any more)."""
        return links.enter(self._swarm.context, token, port=self._port)

    def end(self, visit_id: str) -> None:
        links.leave(self._swarm.context, visit_id)
        self._known.clear()

    def remembered(self, shown: Shown) -> Visitor | None:
        """Who it was less than a second ago; asks nobody."""
        at, visitor = self._known.get(shown, (0.0, None))
        return visitor if visitor is not None and self._clock() - at < _REMEMBERED else None

    def who(self, shown: Shown) -> Visitor | None:
        visitor = self.remembered(shown)
        if visitor is not None:
            return visitor
        with self._swarm.context.db.reader() as db:
            visit: Visit | None = None
            if shown.bearer is not None:
                visitor = _bearer(tokens.lookup(db, shown.bearer))
            else:
                visit = _first(visits.find(db, secret, port=self._port) for secret in shown.cookies)
                visitor = Visitor(links.actor(visit), visit.may_write, "cookie") if visit else None
        if visit is not None:
            self._note_seen(visit)
        if visitor is None:
            self._known.pop(shown, None)
        else:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[shown] = (self._clock(), visitor)
        return visitor

    def refused(self, reason: str, *, code: str, **facts: Any) -> None:
        """Write down that somebody was refused; a flood is an event now and then, with a count."""
        with self._lock:
            now = self._clock()
            at, count = self._refusals.get(reason, (-_SAME_REFUSAL_EVERY, 0))
            if now - at < _SAME_REFUSAL_EVERY or now - self._refused_at < _REFUSAL_EVERY:
                self._refusals[reason] = (at, count + 1)
                return
            self._refused_at = now
            self._refusals[reason] = (now, 0)
        told = facts | ({"count": count + 1} if count else {})
        log.warning("refused: %s %s", reason, told)
        db = self._swarm.context.db
        with contextlib.suppress(SwarmError), db.write():
            events.add(db, "auth:refused", actor="unknown", error_code=code, error_message=reason, metadata=told)

    def _note_seen(self, visit: Visit) -> None:
        """Now and then: a request that only reads must not cost a write, nor fail for one."""
        db = self._swarm.context.db
        if visit.seen_at < iso(parse_iso(db.now()) - _SEEN_EVERY):
            with contextlib.suppress(SwarmError), db.write():
                visits.seen(db, visit.id)


def _first(found: Any) -> Visit | None:
    return next((visit for visit in found if visit is not None), None)


def _bearer(found: tokens.Lookup) -> Visitor | None:
    """The operator may act, an automation with scope `read` may look; agents speak to the coordinator alone."""
    who = found.principal
    if who is None or who.kind == PrincipalKind.INSTANCE:
        return None
    if who.kind == PrincipalKind.OPERATOR:
        return Visitor(who.actor, may_write=True, how="bearer")
    return Visitor(who.actor, may_write=False, how="bearer") if "read" in who.scopes else None
