"""What goes on with pull requests, as it is recorded: how many, at what, how old, and what GitHub still allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from swarm_core.ops import pull_known
from swarm_core.ops.pull_status import Policy, readiness
from swarm_core.store import forge_counts, pulls, quota
from swarm_core.store.database import Database
from swarm_core.store.forge_counts import Place
from swarm_core.store.quota import Share


@dataclass(frozen=True, slots=True)
class HostView:
    """One GitHub: what is left of each of its quotas, and the repositories with open pull requests there."""

    host: str
    shares: list[Share]
    places: list[Place]

    @property
    def unanswered(self) -> int:
        return sum(place.unanswered for place in self.places)

    @property
    def silent_since(self) -> str | None:
        """When it was last heard of that which could not be asked at the last look."""
        return min((place.silent for place in self.places if place.silent), default=None)

    @property
    def problem(self) -> str:
        return next((place.problem for place in self.places if place.unanswered), "")


@dataclass(frozen=True, slots=True)
class Overview:
    """`by_status` counts the open ones by their derived status; `oldest` is when the oldest facts were seen."""

    open: int
    by_status: dict[str, int]
    oldest: str | None
    queued: int
    hosts: list[HostView]


EMPTY = Overview(0, {}, None, 0, [])


def overview(db: Database, *, policy: Policy) -> Overview:
    """Nothing is asked of anybody."""
    opened, places = pulls.listed(db), forge_counts.places(db)
    known = pull_known.facts_of(db, opened, policy=policy)
    counted = Counter(str(readiness(facts).state) for facts in known)
    oldest = min((place.since for place in places), default=None)
    return Overview(len(opened), dict(counted), oldest, forge_counts.queued(db), hosts(db))


def hosts(db: Database) -> list[HostView]:
    places, shares = forge_counts.places(db), _current(quota.listed(db))
    names = sorted({share.host for share in shares} | {_host(place) for place in places})
    return [
        HostView(name, [s for s in shares if s.host == name], [p for p in places if _host(p) == name])
        for name in names
    ]


def _host(place: Place) -> str:
    return place.repository.partition("/")[0]


def _current(shares: Sequence[Share]) -> list[Share]:
    """For each host and kind of request that of the account used last, if it has anything to say."""
    newest: dict[tuple[str, str], Share] = {}
    for share in sorted(shares, key=lambda one: one.seen_at):
        if share.quota is not None or share.blocked_until:
            newest[share.host, share.resource] = share
    return list(newest.values())
