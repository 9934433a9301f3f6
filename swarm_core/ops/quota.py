"""The governor of a forge's quota: one for all processes, with a reserve for what people ask.

Following may use a quarter of its share in each third of an hour by the clock: any sixty minutes touch four of
them at most, so that none see more than the share.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Quota
from swarm_core.models import iso, parse_iso
from swarm_core.ops.context import Context
from swarm_core.store import events
from swarm_core.store import quota as shares

_WINDOW = timedelta(minutes=20)
_WINDOWS_TOUCHED = 4
_UNASKED = frozenset({304})  # a request that brought nothing new costs nothing


def account_of(token: str | None) -> str:
    """Whose quota it is: GitHub has one for each token's owner, and another for those without any."""
    return hashlib.sha256(token.encode()).hexdigest()[:12] if token else ""


@dataclass(frozen=True, slots=True)
class Governor:
    """Stands before every request of an account to a host. `person` is whether somebody waits for the answer."""

    context: Context
    host: str
    person: bool
    account: str = ""

    def enter(self, resource: str = "core") -> None:
        now = self.context.db.now()
        known = shares.listed(self.context.db, self.host, self.account)
        for share in known:
            if share.resource == resource:
                self._require_quota(share, now)
        if not self.person:
            self._require_share(known, _window(now))

    def leave(self, *, status: int | None, quota: Quota | None, retry_after: float | None) -> None:
        """Following pays for what it asks; what people ask counts only at the forge itself."""
        if status is None:
            return
        db, resource = self.context.db, quota.resource if quota else "core"
        counts = not self.person and status not in _UNASKED
        with db.write():
            window = iso(_window(db.now()))
            shares.spend(db, self.host, resource, quota, window_at=window, counts=counts, account=self.account)
            if retry_after is not None:
                until = iso(parse_iso(db.now()) + timedelta(seconds=retry_after))
                used_up = resource if quota is not None and quota.remaining == 0 else None
                shares.block(db, self.host, until, account=self.account, resource=used_up)
                told = {"host": self.host, "until": until}
                events.add(db, "forge:limited", actor="github", metadata=told)

    def _require_quota(self, share: shares.Share, now: str) -> None:
        if (share.blocked_until or "") > now:
            raise _refused(self.host, str(share.blocked_until), "it asked for patience")
        if share.remaining is None or not share.reset_at or share.reset_at <= now:
            return
        percent = 0 if self.person else self.context.settings.integer("github_reserve")
        if share.remaining <= (share.quota or 0) * percent // 100:
            left = "nothing is left" if share.remaining == 0 else f"the last {share.remaining} are for people"
            raise _refused(self.host, share.reset_at, f"{left} of its {share.quota} requests")

    def _require_share(self, known: list[shares.Share], window: datetime) -> None:
        spent = sum(share.spent for share in known if share.window_at >= iso(window))
        if spent >= self.context.settings.integer("github_hourly") // _WINDOWS_TOUCHED:
            raise _refused(self.host, iso(window + _WINDOW), "following has used its share of the hour")


def _window(now: str) -> datetime:
    """When the third of an hour began that it is now."""
    moment = parse_iso(now)
    return moment - (moment - datetime.fromtimestamp(0, UTC)) % _WINDOW


def _refused(host: str, until: str, why: str) -> ExternalFailure:
    return ExternalFailure(
        f"GitHub ({host}) may not be asked before {until}: {why}",
        code="GITHUB_RATE_LIMITED",
        hint="`swarm status` shows what is left; it goes on by itself",
        details={"retry_at": until, "host": host},
    )
