"""Who is calling: a token is looked up on every request, and nothing else a client says about itself counts."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import time
from collections.abc import Callable
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.types import ASGIApp, Receive, Scope, Send

from swarm_core.errors import Denied, SwarmError
from swarm_core.models import Principal
from swarm_core.store import events, tokens
from swarm_core.store.database import Database
from swarm_mcp.loop import LoopStore

MCP_SCOPE = "mcp"
_WINDOW = 10.0
_MOST_IN_A_WINDOW = 50
# Headers in which a client might name somebody else as the caller.
_CLAIMS = (b"x-swarm-", b"x-instance-id", b"x-agent-id", b"x-caller-id", b"x-forwarded-user", b"x-remote-user")

log = logging.getLogger(__name__)


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


class Refusals:
    """Writes down who was refused; a flood is one event with a count, so that it cannot fill the disk."""

    def __init__(self, db: Database, counted: Callable[[str], None]) -> None:
        self._db = db
        self._counted = counted
        self._window = 0.0
        self._written = 0
        self._unwritten = 0
        self._tasks: set[asyncio.Future[None]] = set()

    def add(self, reason: str, *, name: str | None, **facts: Any) -> None:
        """From the event loop; the row is written by a thread."""
        self._counted(reason)
        now = time.monotonic()
        if now - self._window > _WINDOW:
            if self._unwritten:
                self._write("many", None, {"count": self._unwritten})
            self._window, self._written, self._unwritten = now, 0, 0
        if self._written >= _MOST_IN_A_WINDOW:
            self._unwritten += 1
            return
        self._written += 1
        self._write(reason, name, facts)

    def record(self, reason: str, name: str | None, facts: dict[str, Any]) -> None:
        try:
            with self._db.write():
                events.add(
                    self._db,
                    "auth:refused",
                    instance_id=name,
                    actor="unknown",
                    error_code="UNAUTHORIZED",
                    error_message=reason,
                    metadata=facts,
                )
        except SwarmError as error:
            log.warning("no event for a refused request (%s): %s", reason, error.code)

    async def drain(self) -> None:
        if self._unwritten:
            self._write("many", None, {"count": self._unwritten})
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    def _write(self, reason: str, name: str | None, facts: dict[str, Any]) -> None:
        log.warning("refused: %s %s", reason, facts)
        task = asyncio.get_running_loop().run_in_executor(None, self.record, reason, name, facts)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Door:
    """Lets through only requests with a valid token that carries the scope: 401 without, 403 without scope."""

    def __init__(self, app: ASGIApp, identity: Identity, refusals: Refusals, *, scope: str) -> None:
        self._app = app
        self._identity = identity
        self._refusals = refusals
        self._scope = scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        path = scope["path"]
        claimed = next((name for name, _ in headers if name.startswith(_CLAIMS)), None)
        if claimed is not None:
            said = claimed.decode("latin-1")[:80]
            self._refusals.add("claimed identity", name=None, header=said, path=path)
            message = f"the header {said} names a caller, and a caller is known by its token alone"
            await refuse(send, 400, "INVALID_REQUEST", message)
            return
        try:
            found = self._identity.find(_bearer(headers))
        except SwarmError as error:
            await refuse(send, 503, error.code, "the database does not answer; try again in a moment")
            return
        principal = found.principal
        if principal is None:
            self._refusals.add(found.reason, name=found.name, path=path)
            await refuse(send, 401, "UNAUTHORIZED", f"a valid bearer token is needed: {found.reason}")
            return
        if self._scope not in principal.scopes:
            self._refusals.add("missing scope", name=None, principal=principal.actor, path=path, scope=self._scope)
            await refuse(send, 403, "FORBIDDEN", f"the token lacks the scope {self._scope}")
            return
        scope["user"] = _user(principal)
        scope["swarm.principal"] = principal
        await self._app(scope, receive, send)


@functools.lru_cache(4096)
def _user(principal: Principal) -> AuthenticatedUser:
    """What the SDK binds an MCP session to: the principal, never the token, so that rotation keeps sessions."""
    access = AccessToken(
        token="",
        client_id=principal.actor,
        scopes=list(principal.scopes),
        subject=principal.name,
        claims={"iss": "swarm"},
    )
    return AuthenticatedUser(access)


def _bearer(headers: list[tuple[bytes, bytes]]) -> str:
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1 or given[0][:7].lower() != b"bearer ":
        return ""
    return given[0][7:].strip().decode("latin-1")


async def refuse(send: Send, status: int, code: str, message: str) -> None:
    body = {"ok": False, "code": code, "message": message, "error": {"code": code, "message": message}}
    text = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    if status in (401, 403):
        error = b"invalid_token" if status == 401 else b"insufficient_scope"
        headers.append((b"www-authenticate", b'Bearer error="' + error + b'"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
