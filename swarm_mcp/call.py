"""One tool call on its way: who asks, what was recorded of it, and how its end is written down."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

from swarm_core import cancel
from swarm_core.models import Instance, Principal, PrincipalKind
from swarm_core.store import events, instances, requests
from swarm_core.store.database import Database
from swarm_core.swarm import Swarm


@dataclass(slots=True)
class Call:
    """Used by one worker thread. `swarm` reports progress to this call's client."""

    swarm: Swarm
    principal: Principal
    tool: str
    arguments: dict[str, Any]
    key: str | None = None
    scope: cancel.Scope = field(default_factory=cancel.Scope)
    began: float = field(default_factory=time.perf_counter)
    own: Instance | None = None
    rule: str = ""
    about: str | None = None
    made: str | None = None
    place: tuple[str, ...] = ()
    spent: float | None = None
    ended_at: str | None = None
    claim: requests.Claim | None = None
    finished: bool = False
    code: str | None = None
    awaits: str | None = None
    may_wait: bool = False

    @property
    def db(self) -> Database:
        return self.swarm.context.db

    @property
    def actor(self) -> str:
        return self.principal.actor

    def load_own(self) -> Instance | None:
        if self.principal.kind == PrincipalKind.INSTANCE and self.own is None:
            self.own = instances.get(self.db, self.principal.name)
        return self.own

    def link(self, instance: Instance) -> None:
        """Remember what this call has begun to make; inside the transaction that reserves it."""
        self.about = self.made = instance.id
        if self.claim is not None:
            requests.link(self.db, self.claim.id, instance.id)

    def finish(self, payload: dict[str, Any]) -> None:
        """Write the call's event and its result; inside the transaction of its effect where there is one."""
        with self.db.write():
            if self.claim is not None:
                requests.finish(self.db, self.claim.id, payload)
            self.tell(self.db)
            self.swarm.context.checkpoint(f"{self.tool}:recording")
        self.finished = True

    def ended(self) -> None:
        """Note when the call ended: its event may be written later."""
        self.spent, self.ended_at = time.perf_counter() - self.began, self.db.now()

    def tell(self, db: Database) -> None:
        """The event of a call that went well."""
        self._event(db, "tool:called")

    def tell_replay(self, earlier: requests.Claim) -> None:
        """The answer is that of an earlier call; inside the transaction that found it."""
        self._event(self.db, "tool:called", details={"replay_of_request": earlier.id})

    def tell_failure(self, db: Database, message: str, details: dict[str, Any] | None = None) -> None:
        """The event of a call that failed with `code`; a retry takes up what could not be undone.

        A call whose effect is recorded has not failed, and has its event.
        """
        if self.claim is not None:
            made = self.made or self.claim.instance_id
            kept = instances.find(db, made) if made else None
            if self.made and kept is None:
                self.about = None  # what was reserved went with its transaction
            if not requests.fail(db, self.claim.id, undone=kept is None or kept.cleaned):
                return
        name = "tool:denied" if self.code == "FORBIDDEN" else "tool:called"
        if details and "rule" in details:
            self.rule = str(details["rule"])  # what an operation refuses, the table had allowed
        self._event(db, name, code=self.code, message=message, details=details)
        self.finished = True

    def _event(
        self,
        db: Database,
        name: str,
        *,
        code: str | None = None,
        message: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        metadata: dict[str, Any] = {"arguments": self.arguments}
        if self.rule:
            metadata["rule"] = self.rule
        if details:
            metadata["details"] = details
        own = self.principal.name if self.principal.kind == PrincipalKind.INSTANCE else None
        events.add(
            db,
            name,
            instance_id=self.about or own,
            actor=self.actor,
            tool_name=self.tool[:80],
            error_code=code,
            error_message=message,
            at=self.ended_at,
            duration_ms=round((self.spent or time.perf_counter() - self.began) * 1000, 3),
            metadata=metadata,
        )


def digest(tool: str, arguments: dict[str, Any]) -> str:
    """The same for the same call, whatever the order of its fields."""
    text = json.dumps([tool, arguments], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
