"""Who is calling: a token is looked up on every request, and nothing else a client says about itself counts."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.types import ASGIApp, Receive, Scope, Send

from swarm_core import ids
from swarm_core.errors import Denied, SwarmError
from swarm_core.models import Principal
from swarm_core.store import events, tokens
from swarm_core.store.database import Database
from swarm_mcp.loop import LoopStore

MCP_SCOPE = "mcp"
_WINDOW = 10.0
_MOST_IN_A_WINDOW = 20
# Headers in which a client might name somebody else as the caller.
_CLAIMS = (
    *(b"x-swarm", b"swarm-", b"x-instance", b"x-caller", b"x-agent-id", b"x-agent-name", b"x-principal"),
    *(b"x-user", b"x-remote-user", b"x-forwarded-user", b"x-auth-request-user", b"remote-user"),
)

log = logging.getLogger(__name__)

_Key = tuple[str, str, str | None, str | None]


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


@dataclass(slots=True)
class _Window:
    began: float
    written: int = 0
    counted: int = 0


class Refusals:
    """Writes down who was refused and why.

    A flood is a few events and a count, so that it cannot fill the disk. Each reason, and each principal, has a
    window of its own: a flood of one hides no other.
    """

    def __init__(self, db: Database, counted: Callable[[str], None]) -> None:
        self._db = db
        self._counted = counted
        self._windows: dict[_Key, _Window] = {}
        self._tasks: set[asyncio.Future[int]] = set()

    def add(
        self,
        reason: str,
        *,
        code: str = "UNAUTHORIZED",
        name: str | None = None,
        principal: str | None = None,
        **facts: Any,
    ) -> None:
        """`name` is whose token it was, `principal` who it is that tried, where that is known.

        On the event loop the row is written by a thread.
        """
        self._counted(reason)
        self.flush()
        key = (reason, code, name, principal)
        window = self._windows.setdefault(key, _Window(time.monotonic()))
        if window.written < _MOST_IN_A_WINDOW:
            window.written += 1
            self._write(key, facts)
        else:
            window.counted += 1

    def flush(self) -> None:
        """Tell of those that were only counted, where their time is over."""
        now = time.monotonic()
        for key in [k for k, w in self._windows.items() if now - w.began > _WINDOW]:
            self._write_count(key)

    async def drain(self) -> None:
        for key in list(self._windows):
            self._write_count(key)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    def _write_count(self, key: _Key) -> None:
        window = self._windows.pop(key)
        if window.counted:
            self._write(key, {"count": window.counted})

    def _write(self, key: _Key, facts: dict[str, Any]) -> None:
        log.warning("refused: %s (token of %s, by %s) %s", key[0], key[2], key[3], facts)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._record(key, facts)
            return
        task = loop.run_in_executor(None, self._record, key, facts)
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._done, key))

    def _done(self, key: _Key, task: asyncio.Future[int]) -> None:
        self._tasks.discard(task)
        if task.result():
            self._windows.setdefault(key, _Window(time.monotonic())).counted += task.result()

    def _record(self, key: _Key, facts: dict[str, Any]) -> int:
        """How many refusals could not be written down."""
        reason, code, name, principal = key
        about = name or principal
        known = {"belonged_to": name, "principal": principal}
        try:
            with self._db.write():
                events.add(
                    self._db,
                    "auth:refused",
                    instance_id=about if about and ids.is_id(about) else None,
                    actor=principal or "unknown",
                    error_code=code,
                    error_message=reason,
                    metadata=facts | {k: v for k, v in known.items() if v},
                )
        except SwarmError as error:
            log.warning("no event yet for a refused request (%s): %s", reason, error.code)
            return int(facts.get("count", 1))
        return 0


class Door:
    """Lets through only requests with a valid token that carries the scope: 401 without, 403 without scope."""

    def __init__(self, app: ASGIApp, identity: Identity, refusals: Refusals, *, scope: str) -> None:
        self._app = app
        self._identity = identity
        self._refusals = refusals
        self._scope = scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        token = _bearer(headers)
        try:
            found = self._identity.find(token)
        except SwarmError as error:
            await refuse(send, 503, error.code, "the database does not answer; try again in a moment")
            return
        principal = found.principal
        claim = _claim(headers, scope["query_string"])
        if claim is not None:
            self._tell("claimed identity", "INVALID_REQUEST", found, scope, claim=claim)
            message = f"{claim} is not accepted: a caller is known by its token alone"
            await refuse(send, 400, "INVALID_REQUEST", message)
            return
        if principal is None:
            self._tell(found.reason, "UNAUTHORIZED", found, scope)
            await refuse(send, 401, "UNAUTHORIZED", f"a valid bearer token is needed: {found.reason}")
            return
        if self._scope not in principal.scopes:
            self._tell("missing scope", "FORBIDDEN", found, scope, scope=self._scope)
            await refuse(send, 403, "FORBIDDEN", f"the token lacks the scope {self._scope}")
            return
        scope["swarm.token"] = token
        scope["user"] = _user(principal)
        scope["swarm.principal"] = principal
        await self._app(scope, receive, send)

    def _tell(self, reason: str, code: str, found: tokens.Lookup, request: Scope, **facts: str) -> None:
        actor = found.principal.actor if found.principal is not None else None
        page = _page(request["path"])
        self._refusals.add(reason, code=code, name=found.name, principal=actor, path=page, **facts)


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


def _claim(headers: list[tuple[bytes, bytes]], query: bytes) -> str | None:
    """Where a request names its caller besides its token; what it says there is not repeated."""
    if query:
        return "a query string"
    claimed = next((name for name, _ in headers if name.startswith(_CLAIMS)), None)
    return f"the header {claimed.decode('latin-1')[:80]}" if claimed is not None else None


def _page(path: str) -> str:
    """The page without what a client may have put behind it."""
    return "/" + path.split("/")[1][:40] if path.startswith("/") else "?"


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
