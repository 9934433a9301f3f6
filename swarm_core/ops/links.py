"""Who may come in to the dashboard: links that are made, used and revoked, and the visits they begin."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta

from swarm_core.errors import InvalidInput, NotFound
from swarm_core.models import iso, parse_iso
from swarm_core.ops.context import Context
from swarm_core.store import events, links, visits
from swarm_core.store.links import Link
from swarm_core.store.tokens import OPERATOR
from swarm_core.store.visits import Visit

VIEWER = "viewer"
USE_WITHIN = timedelta(minutes=15)
SHARED_HOURS = 24
HOURS_MAX = 24 * 365
_NAME = re.compile(r"[a-z0-9._-]{1,64}")
# What an id looks like, so that `--revoke` is never ambiguous.
_ID = re.compile(r"[lv][0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Made:
    """A new link. Nobody can read its token again later, and the record's own text leaves it out."""

    link: Link
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Entered:
    visit: Visit
    secret: str = field(repr=False)


def make(context: Context, *, may_write: bool, name: str = "", hours: int | None = None) -> Made:
    """A link that is used once, or one that shares: for reading alone, reusable until it ends."""
    _check(name, hours, may_write=may_write)
    lasts = USE_WITHIN if may_write else timedelta(hours=hours or SHARED_HOURS)
    db = context.db
    with db.write():
        until = iso(parse_iso(db.now()) + lasts)
        link, token = links.make(db, may_write=may_write, name=name, reusable=not may_write, expires_at=until)
        told = {"link": link.id, "name": name, "may_write": may_write, "until": until}
        events.add(db, "link:made", actor=OPERATOR, metadata=told)
    return Made(link, token)


def enter(context: Context, token: str, *, port: int) -> Entered | None:
    """Begin a visit with a link's token; None when that opens nothing (any more)."""
    db = context.db
    with db.write():
        link = links.use(db, token)
        if link is None:
            return None
        visit, secret = visits.begin(db, link, port=port)
        told = {"visit": visit.id, "link": link.id, "may_write": visit.may_write}
        events.add(db, "visit:started", actor=actor(visit), metadata=told)
    return Entered(visit, secret)


def actor(visit: Visit) -> str:
    """The name in events of whoever visits."""
    who = OPERATOR if visit.may_write else VIEWER
    return f"{who}:{visit.name}" if visit.name else who


def listed(context: Context) -> tuple[list[Link], list[Visit]]:
    """Links that still open the dashboard, and visits that last."""
    return links.listed(context.db), visits.listed(context.db)


def revoke(context: Context, id_or_name: str) -> tuple[list[Link], list[Visit]]:
    """End the link or visit with this id, or all with this name; a link takes the visits it began with it."""
    db = context.db
    with db.write():
        ended = links.end(db, id_or_name)
        over = visits.end(db, id_or_name)
        if not ended and not over:
            # What somebody gave in place of a name may be a link's token.
            shown = id_or_name if _NAME.fullmatch(id_or_name) and len(id_or_name) < 40 else "this name"
            raise NotFound(
                f"no link and no visit is called {shown}",
                code="LINK_NOT_FOUND",
                hint="`swarm link --list` shows them",
            )
        for link in ended:
            events.add(db, "link:ended", actor=OPERATOR, metadata={"link": link.id, "name": link.name})
        for visit in over:
            _tell_end(context, visit, by=OPERATOR)
    return ended, over


def leave(context: Context, visit_id: str) -> None:
    """End a visit from within; one that is over stays so."""
    with context.db.write():
        for visit in visits.end(context.db, visit_id):
            _tell_end(context, visit, by=actor(visit))


def _tell_end(context: Context, visit: Visit, *, by: str) -> None:
    events.add(context.db, "visit:ended", actor=by, metadata={"visit": visit.id, "name": visit.name})


def _check(name: str, hours: int | None, *, may_write: bool) -> None:
    if name and (not _NAME.fullmatch(name) or _ID.fullmatch(name)):
        raise InvalidInput(
            "a visitor cannot have this name", hint="1 to 64 of a-z, 0-9, dot, underscore and dash; not like an id"
        )
    if hours is not None and may_write:
        raise InvalidInput(
            "a link that may act is used once and ends by itself", hint="--hours goes with --read-only"
        )
    if hours is not None and not 1 <= hours <= HOURS_MAX:
        raise InvalidInput(f"a link lasts 1 to {HOURS_MAX} hours")
