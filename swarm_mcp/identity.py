"""Who is calling: a token is looked up on every request, and nothing else a client says about itself counts."""

from __future__ import annotations

from swarm_core.errors import Denied
from swarm_core.models import Principal
from swarm_core.store import tokens
from swarm_mcp.loop import LoopStore


class Identity:
    """Looks tokens up, on the event loop."""

    def __init__(self, store: LoopStore) -> None:
        self._store = store

    def find(self, token: str) -> tokens.Lookup:
        return self._store.find(token)

    def is_current(self, kind: str, name: str) -> bool:
        """Whether any token still speaks for the principal."""
        return tokens.has_valid(self._store.db, kind, name)

    def require(self, token: str | None, environ_instance: str | None = None) -> Principal:
        """The principal of a process that was started with the token; raises Denied."""
        if not token:
            raise Denied(
                "SWARM_TOKEN is not set, so nobody is calling",
                code="UNAUTHORIZED",
                hint="agents get it from swarm; a person uses the token in SWARM_HOME/operator.token",
            )
        found = self.find(token)
        if found.principal is None:
            raise Denied(
                f"SWARM_TOKEN is not valid: {found.reason}",
                code="UNAUTHORIZED",
                hint="`swarm token rotate INSTANCE` makes a new one",
                details={"reason": found.reason, "belonged_to": found.name},
            )
        if environ_instance and environ_instance != found.principal.name:
            raise Denied(
                f"SWARM_TOKEN belongs to {found.principal.name} and not to {environ_instance[:80]}",
                code="UNAUTHORIZED",
                hint="start the server with the environment of one instance",
                details={"reason": "environment of another", "belonged_to": found.principal.name},
            )
        return found.principal
