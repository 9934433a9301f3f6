"""The governor of a forge's quota: one for all processes, with a reserve for what people ask."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Quota
from swarm_core.models import iso, parse_iso
from swarm_core.ops.context import Context
from swarm_core.store import events
from swarm_core.store import quota as shares

_HOUR = timedelta(hours=1)
_UNASKED = frozenset({304})  # a request that brought nothing new costs nothing


@dataclass(frozen=True, slots=True)
class Governor:
    """Stands before every request to one host. `person` is whether somebody waits for the answer."""

    context: Context
    host: str
    person: bool

    def enter(self) -> None:
        now = self.context.db.now()
        known = shares.listed(self.context.db, self.host)
        blocked = max((s.blocked_until for s in known if s.blocked_until), default="")
        if blocked > now:
            raise _refused(self.host, blocked, "it asked for patience")
        for share in known:
            if share.remaining is None or not share.reset_at or share.reset_at <= now:
                continue
            reserve = (
                0 if self.person else (share.quota or 0) * self.context.settings.integer("github_reserve") // 100
            )
            if share.remaining <= reserve:
                left = "nothing is left" if share.remaining == 0 else f"the last {share.remaining} are for people"
                raise _refused(self.host, share.reset_at, f"{left} of its {share.quota} requests")
        window = iso(parse_iso(now) - _HOUR)
        spent = sum(s.spent for s in known if s.window_at > window)
        if not self.person and spent >= self.context.settings.integer("github_hourly"):
            first = min(s.window_at for s in known if s.window_at > window)
            raise _refused(self.host, iso(parse_iso(first) + _HOUR), "following has used its share of the hour")

    def leave(self, *, status: int | None, quota: Quota | None, retry_after: float | None) -> None:
        """Following pays for what it asks; what people ask counts only at the forge itself."""
        if status is None:
            return
        db, resource = self.context.db, quota.resource if quota else "core"
        counts = not self.person and status not in _UNASKED
        with db.write():
            window = iso(parse_iso(db.now()) - _HOUR)
            shares.spend(db, self.host, resource, quota, window_at=window, counts=counts)
            if retry_after is not None:
                until = iso(parse_iso(db.now()) + timedelta(seconds=retry_after))
                shares.block(db, self.host, until)
                told = {"host": self.host, "until": until}
                events.add(db, "forge:limited", actor="github", metadata=told)


def _refused(host: str, until: str, why: str) -> ExternalFailure:
    return ExternalFailure(
        f"GitHub ({host}) may not be asked before {until}: {why}",
        code="GITHUB_RATE_LIMITED",
        hint="`swarm status` shows what is left; it goes on by itself",
        details={"retry_at": until, "host": host},
    )
