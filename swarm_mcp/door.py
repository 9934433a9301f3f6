"""The door of the HTTP server: what a request has to carry before anything looks at it."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.types import ASGIApp, Receive, Scope, Send

from swarm_core.errors import SwarmError
from swarm_core.models import Principal
from swarm_core.store import tokens
from swarm_mcp import contract
from swarm_mcp.identity import Identity
from swarm_mcp.refusals import Refusals

MCP_SCOPE = "mcp"
# Headers in which a client might name somebody else as the caller.
_CLAIMS = frozenset(
    {
        *(b"x-instance", b"x-instance-id", b"x-caller", b"x-caller-id", b"x-caller-type", b"x-principal"),
        *(b"x-agent-id", b"x-agent-name", b"x-user", b"x-user-id", b"x-user-name", b"x-username"),
        *(b"x-remote-user", b"x-forwarded-user", b"x-auth-request-user", b"remote-user"),
    }
)
_OURS = (b"x-swarm", b"swarm-")


class Door:
    """Lets through only requests with a valid token that carries the scope: 401 without, 403 without scope."""

    def __init__(
        self, app: ASGIApp, identity: Identity, refusals: Refusals, *, scope: str, folders: Sequence[str]
    ) -> None:
        self._app = app
        self._identity = identity
        self._refusals = refusals
        self._scope = scope
        self._folders = folders

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        token = _bearer(headers)
        try:
            found = self._identity.find(token)
        except SwarmError as error:
            await _answer(send, 503, contract.failure(error, folders=self._folders))
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
    claimed = next((name for name, _ in headers if name in _CLAIMS or name.startswith(_OURS)), None)
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
    await _answer(send, status, contract.refusal(code, message))


async def _answer(send: Send, status: int, body: dict[str, Any]) -> None:
    text = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    if status in (401, 403):
        error = b"invalid_token" if status == 401 else b"insufficient_scope"
        headers.append((b"www-authenticate", b'Bearer error="' + error + b'"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
