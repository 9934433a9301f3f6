"""What every request has to pass before anything else looks at it, and the headers of every answer.

In this order: our name in Host, no foreign page behind it, somebody we know, a body that is small and JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from swarm_core import process
from swarm_core.errors import Denied, SwarmError
from swarm_ui.web import endpoint, entry, page
from swarm_ui.web.doors import Doors, Shown
from swarm_ui.web.endpoint import BODY_MAX, NOBODY, Refused, Visitor
from swarm_ui.web.threads import shared

if TYPE_CHECKING:
    from swarm_ui.web.site import Site

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_OPEN = ("/health", *page.ICONS)
_OPEN_FOLDER = "/static/"
_NOTHING_SHOWN = Shown()
_MOST_COOKIES = 4
# How much of a body that is too large is read before the answer, which its sender would not see otherwise.
_PATIENCE = 16 * BODY_MAX
_LOOK_AGAIN = 5.0
_VISIT_OVER = 1008  # the WebSocket's code for a policy that is not met


class TurnedAway(Denied):
    """A request that is refused for where it comes from or who sends it; `status` is 401, 403 or 421."""

    def __init__(self, status: int, message: str, *, code: str = "FORBIDDEN", hint: str | None = None) -> None:
        super().__init__(message, code=code, hint=hint)
        self.status = status


class Guard:
    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._port = site.card.port
        self._doors: Doors = site.doors
        self._folders = site.settings.own_folders

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers, send = Headers(scope=scope), _with_headers(send)
        shown = _shown(headers, self._doors.cookie)
        try:
            answer = await self._answer_instead(scope, headers, shown)
            if answer is None and _writes(scope):
                receive = await _read_body(headers, receive)
        except SwarmError as error:
            answer = await self._refusal(scope, headers, error)
        if answer is None:
            await _Lasting(receive, send, scope).run(self._app, lambda: self._who(shown))
        else:
            await _send(answer, scope, receive, send)

    async def _answer_instead(self, scope: Scope, headers: Headers, shown: Shown) -> Response | None:
        """What is answered in place of what was asked for; None when the visitor may ask. Raises refusals."""
        self._check_where_from(scope, headers)
        is_page = _reads(scope) and page.is_page(scope["path"], headers)
        if not is_page and _is_open(scope):
            scope["swarm.visitor"] = NOBODY
            return None
        visitor = await self._who(shown)
        given = entry.token(scope) if is_page else None
        if given is not None:
            answer = entry.onward(scope) if visitor else await entry.enter(self._doors, scope, given)
            if answer is not None:
                return answer
        if visitor is None:
            if is_page and given is None and not shown.cookies and entry.came_from_elsewhere(headers):
                return entry.not_in(scope, again=True)
            raise _unknown(shown, given)
        if visitor.how == "cookie" and (_writes(scope) or scope["type"] == "websocket"):
            _check_own_page(headers)
        scope["swarm.visitor"] = visitor
        return None

    def _check_where_from(self, scope: Scope, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if not process.host_allowed([host.encode("latin-1") for host in hosts], self._port):
            raise TurnedAway(421, "this name is not served here", hint="use the address that `swarm status` shows")
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in headers.getlist("origin")):
            raise _foreign()
        site = headers.get("sec-fetch-site", "same-origin")
        if site != "same-origin" and (_writes(scope) or scope["type"] == "websocket"):
            raise _foreign()

    async def _who(self, shown: Shown) -> Visitor | None:
        if shown == _NOTHING_SHOWN:
            return None
        return self._doors.remembered(shown) or await shared(self._doors.who, shown)

    async def _refusal(self, scope: Scope, headers: Headers, error: SwarmError) -> Response:
        answer = endpoint.failed(error, folders=self._folders)
        if isinstance(error, TurnedAway):
            answer.status_code = error.status
            facts = {"code": error.code, "method": scope.get("method", "WebSocket"), "path": scope["path"][:200]}
            await shared(self._doors.refused, error.message, **facts)
        if error.code == "UNAUTHORIZED":
            answer.headers["WWW-Authenticate"] = "Bearer"
        if error.code != "INVALID_REQUEST" and _reads(scope) and page.is_page(scope["path"], headers):
            if error.code == "UNAUTHORIZED":
                return entry.not_in(scope, again=False)
            return entry.out_of_order(scope, answer.status_code, error)
        return answer


class _Lasting:
    """One request on its way through; an answer that lasts, such as a stream, ends when the visit does."""

    def __init__(self, receive: Receive, send: Send, scope: Scope) -> None:
        self._receive = receive
        self._send = send
        self._scope = scope
        self._over = self._finished = False

    async def run(self, app: ASGIApp, who: Callable[[], Awaitable[Visitor | None]]) -> None:
        self._who = who
        await app(self._scope, self._hear, self._say)
        if self._over and not self._finished:
            await self._send(
                {"type": "websocket.close", "code": _VISIT_OVER}
                if self._scope["type"] == "websocket"
                else {"type": "http.response.body", "body": b"", "more_body": False}
            )

    async def _hear(self) -> Message:
        heard = asyncio.ensure_future(self._receive())
        try:
            while not (await asyncio.wait({heard}, timeout=_LOOK_AGAIN))[0]:
                if self._scope["swarm.visitor"].how != "open" and not await self._still_in():
                    self._over = True
                    kind = self._scope["type"]
                    return {"type": f"{kind}.disconnect"} | ({"code": _VISIT_OVER} if kind == "websocket" else {})
            return heard.result()
        finally:
            heard.cancel()

    async def _still_in(self) -> bool:
        with contextlib.suppress(SwarmError):  # a database that cannot be asked now ends no visit
            return await self._who() is not None
        return True

    async def _say(self, message: Message) -> None:
        if message["type"] == "websocket.close" or (
            message["type"] in ("http.response.body", "websocket.http.response.body")
            and not message.get("more_body", False)
        ):
            self._finished = True
        if self._over and message["type"] == "websocket.close":
            message = {**message, "code": _VISIT_OVER}
        await self._send(message)


def _shown(headers: Headers, cookie: str) -> Shown:
    authorization = headers.get("authorization")
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        return Shown(bearer=token.strip() if scheme.lower() == "bearer" else "")
    pairs = (part.strip().partition("=") for line in headers.getlist("cookie") for part in line.split(";"))
    return Shown(cookies=tuple(value for name, _, value in pairs if name == cookie)[:_MOST_COOKIES])


def _reads(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] in ("GET", "HEAD")


def _writes(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS")


def _is_open(scope: Scope) -> bool:
    return _reads(scope) and (scope["path"] in _OPEN or scope["path"].startswith(_OPEN_FOLDER))


def _check_own_page(headers: Headers) -> None:
    """A cookie comes along with whatever a browser sends, so the page behind it has to be named, and be ours."""
    if not headers.getlist("origin"):
        raise TurnedAway(403, "a request with a cookie names its page in Origin")


def _unknown(shown: Shown, given: str | None) -> TurnedAway:
    if given is not None:
        message = "the link opens nothing any more"
    elif shown == _NOTHING_SHOWN:
        message = "the request has no visit and no token"
    else:
        message = "the visit or token is unknown or over"
    return TurnedAway(
        401, message, code="UNAUTHORIZED", hint="`swarm link` prints a link that opens the dashboard"
    )


def _foreign() -> TurnedAway:
    return TurnedAway(403, "the request comes from a page of another site")


async def _read_body(headers: Headers, receive: Receive) -> Receive:
    """The whole body, so that nobody after us meets one that is too large. Raises Refused."""
    if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise Refused("a body is JSON: Content-Type: application/json", status=415)
    parts: list[bytes] = []
    size, more = 0, True
    announced = headers.get("content-length", "0")
    too_large = not announced.isdigit() or int(announced[:20]) > _PATIENCE
    while more and size <= _PATIENCE and not too_large:
        message = await receive()
        if message["type"] != "http.request":
            return _replayed([message], receive)
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
        if size <= BODY_MAX:
            parts.append(message.get("body", b""))
    if too_large or size > BODY_MAX:
        raise Refused(f"a body has at most {BODY_MAX} bytes", status=413)
    return _replayed([{"type": "http.request", "body": b"".join(parts), "more_body": False}], receive)


def _replayed(messages: list[Message], receive: Receive) -> Receive:
    async def heard() -> Message:
        return messages.pop(0) if messages else await receive()

    return heard


async def _send(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": _VISIT_OVER})
            return
    if answer.status_code == 413:
        answer.headers["Connection"] = "close"
    await answer(scope, receive, send)


def _with_headers(send: Send) -> Send:
    async def said(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
        await send(message)

    return said
