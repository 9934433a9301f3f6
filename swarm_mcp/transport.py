"""Streamable HTTP that answers a request with plain JSON unless there is something to say before the answer.

Built on private hooks of the SDK, which is why the project pins mcp==2.3.*. Requests of the 2026-07-28 era have no
session; the SDK's own handler answers them in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, TypeGuard
from uuid import uuid4

import anyio
import mcp_types as t
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    MCP_SESSION_ID_HEADER,
    REQUEST_CANCELLED,
    REQUEST_STREAM_BUFFER_SIZE,
    EventMessage,
    StreamableHTTPServerTransport,
    check_accept_headers,
)
from mcp.server.streamable_http_manager import (
    DEFAULT_MAX_REQUEST_BODY_SIZE,
    DEFAULT_MAX_SESSIONS,
    DEFAULT_SESSION_IDLE_TIMEOUT,
    StreamableHTTPSessionManager,
)
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from sse_starlette.sse import AppStatus
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from swarm_core.errors import Cancelled, ExternalFailure, InvalidRequest
from swarm_mcp import contract, envelope

COMMIT_AFTER = 5.0
PING_EVERY = 15.0
_LOOK_EVERY = 0.01
_MOST_OF_ONE = 64
_STREAM_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}

_SILENCE = EventMessage(t.JSONRPCNotification(jsonrpc="2.0", method="silence"))
Answer = t.JSONRPCResponse | t.JSONRPCError
# The next message of an exchange, or None when that many seconds (None: any number) passed without one.
Next = Callable[[float | None], Awaitable[t.JSONRPCMessage | None]]
OnForeign = Callable[[str, Scope], None]
# Hears of a request that was refused before the server saw it.
OnRefused = Callable[[Scope, t.JSONRPCRequest, t.ErrorData], Awaitable[None]]
# Answers a request by itself, given the session's protocol version; None when the SDK has to.
AtOnce = Callable[[t.JSONRPCRequest, Request, str], Awaitable[Answer | None]]


async def _nothing_refused(scope: Scope, message: t.JSONRPCRequest, error: t.ErrorData) -> None:
    return


async def _nothing_at_once(message: t.JSONRPCRequest, request: Request, version: str) -> Answer | None:
    return None


class HybridTransport(StreamableHTTPServerTransport):
    """One session: JSON when the answer comes first, else `text/event-stream`; what the client accepts decides.

    A client that goes away does not end its request: the request keeps its id until it is answered.
    """

    def __init__(
        self,
        session_id: str,
        *,
        security_settings: TransportSecuritySettings | None,
        idle_timeout: float | None,
        commit_after: float,
        at_once: AtOnce,
        on_begun: Callable[[Scope], None],
        on_refused: OnRefused,
    ) -> None:
        super().__init__(session_id, security_settings=security_settings, idle_timeout=idle_timeout)
        self._commit_after = commit_after
        self._at_once = at_once
        self._on_begun = on_begun
        self._on_refused = on_refused
        self._version: str | None = None
        self._answering: set[str] = set()

    async def _handle_post_request(self, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        if not await self._validate_accept_header(request, scope, send):
            return
        try:
            message = envelope.read(await request.body())
        except ClientDisconnect:
            return
        except envelope.Malformed as malformed:
            await self._json(malformed.answer, HTTPStatus.BAD_REQUEST)(scope, receive, send)
            return
        if not isinstance(message, t.JSONRPCRequest):
            await super()._handle_post_request(scope, request, receive, send)
        elif message.method != "initialize" and MCP_SESSION_ID_HEADER not in request.headers:
            early = contract.protocol_error(t.INVALID_PARAMS, contract.not_initialized(), tool=_tool_of(message))
            await self._on_refused(scope, message, early.error)
            refused = t.JSONRPCError(jsonrpc="2.0", id=message.id, error=early.error)
            await self._json(refused, HTTPStatus.BAD_REQUEST)(scope, receive, send)
        elif message.method != "initialize" and not await self._validate_request_headers(request, send):
            return
        elif str(message.id) in self._request_streams or str(message.id) in self._answering:
            taken = envelope.invalid("a request with this id is under way in this session", message.id)
            await self._json(taken, HTTPStatus.CONFLICT)(scope, receive, send)
        elif (answer := await self._answer_at_once(message, request)) is not None:
            await self._json(answer)(scope, receive, send)
        else:
            await self._answer(message, request, scope, receive, send)

    async def _answer_at_once(self, message: t.JSONRPCRequest, request: Request) -> Answer | None:
        """Past the SDK's queues and tasks, which cost more than a small read; once the session has begun."""
        if self._version is None or not _accepted(request)[0]:
            return None
        self._answering.add(str(message.id))
        try:
            return await self._at_once(message, request, self._version)
        finally:
            self._answering.discard(str(message.id))

    @property
    def is_answering(self) -> bool:
        return bool(self._answering)

    async def _validate_accept_header(self, request: Request, scope: Scope, send: Send) -> bool:
        if any(_accepted(request)):
            return True
        refused = envelope.invalid("Accept has to name application/json or text/event-stream")
        await self._json(refused, HTTPStatus.NOT_ACCEPTABLE)(scope, request.receive, send)
        return False

    async def _answer(
        self, message: t.JSONRPCRequest, request: Request, scope: Scope, receive: Receive, send: Send
    ) -> None:
        takes_json, takes_stream = _accepted(request)
        to_client, messages = anyio.create_memory_object_stream[EventMessage](REQUEST_STREAM_BUFFER_SIZE)
        self._request_streams[str(message.id)] = (to_client, messages)
        upcoming = partial(_next, to_client, messages, message.id)
        try:
            if not await self._deliver(message, request, can_ask=takes_stream):
                to_client.close()
            first = await upcoming(self._commit_after if takes_stream else None) if takes_json else None
            while not takes_stream and not _is_answer(first):
                first = await upcoming(None)
            if message.method == "initialize" and isinstance(first, t.JSONRPCResponse):
                self._version = first.result.get("protocolVersion")
                self._on_begun(scope)
            if takes_json and _is_answer(first):
                await self._json(first)(scope, receive, send)
            else:
                await self._stream(first, upcoming, send)
        finally:
            self._request_streams.pop(str(message.id), None)
            to_client.close()
            messages.close()

    async def _deliver(self, message: t.JSONRPCRequest, request: Request, *, can_ask: bool) -> bool:
        """False when the session has ended. `can_ask`: the server may put questions to the client meanwhile."""
        unanswered = partial(self._terminate_unanswered_request, message.id)
        metadata = self._message_metadata(request, on_request_unanswered=unanswered)
        metadata.can_send_request = can_ask
        assert self._read_stream_writer is not None
        try:
            await self._read_stream_writer.send(SessionMessage(message, metadata=metadata))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    async def _stream(self, first: t.JSONRPCMessage | None, upcoming: Next, send: Send) -> None:
        """Written here and not by sse-starlette, which cuts streams off as soon as the server is told to exit."""
        headers = _STREAM_HEADERS | self._session_header()
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": raw})
        message = first
        while not _is_answer(message):
            await send({"type": "http.response.body", "body": _frame(message), "more_body": True})
            message = await upcoming(PING_EVERY)
        await send({"type": "http.response.body", "body": _frame(message), "more_body": False})

    async def _terminate_unanswered_request(self, request_id: t.RequestId) -> None:
        """A cancelled request is answered too: nothing else ends its POST."""
        assert self._write_stream is not None
        cancelled = envelope.error(REQUEST_CANCELLED, Cancelled("Request cancelled"), request_id)
        await self._write_stream.send(SessionMessage(cancelled))

    def _json(self, message: Answer, status: HTTPStatus = HTTPStatus.OK) -> Response:
        body = envelope.write(message)
        return Response(body, status, self._session_header(), media_type="application/json")

    def _create_error_response(
        self,
        error_message: str,
        status_code: HTTPStatus,
        error_code: int = t.INVALID_REQUEST,
        headers: dict[str, str] | None = None,
    ) -> Response:
        """The SDK's refusals, with a code like all of ours."""
        body = envelope.write(envelope.error(error_code, InvalidRequest(error_message)))
        more = {**(headers or {}), **self._session_header()}
        return Response(body, status_code, more, media_type="application/json")

    def _session_header(self) -> dict[str, str]:
        return {MCP_SESSION_ID_HEADER: self.mcp_session_id} if self.mcp_session_id else {}


class HybridSessionManager(StreamableHTTPSessionManager):
    """The open sessions. There is no event store: the SDK's would show one session's answers to another.

    `on_foreign` is told of a request that names somebody else's session; its sender is told that there is none.
    `on_begun` is told when a client has connected, `on_refused` of requests that the server never saw.
    """

    def __init__(
        self,
        app: Server[Any],
        *,
        security_settings: TransportSecuritySettings | None = None,
        session_idle_timeout: float | None = DEFAULT_SESSION_IDLE_TIMEOUT,
        max_request_body_size: int = DEFAULT_MAX_REQUEST_BODY_SIZE,
        max_sessions: int | None = DEFAULT_MAX_SESSIONS,
        commit_after: float = COMMIT_AFTER,
        on_foreign: OnForeign | None = None,
        at_once: AtOnce = _nothing_at_once,
    ) -> None:
        super().__init__(
            app,
            security_settings=security_settings,
            session_idle_timeout=session_idle_timeout,
            max_request_body_size=max_request_body_size,
            max_sessions=max_sessions,
        )
        self._commit_after = commit_after
        self._at_once = at_once
        self._listeners: dict[str, str] = {}
        self.on_foreign = on_foreign
        self.on_begun: Callable[[Scope], None] = lambda _: None
        self.on_refused: OnRefused = _nothing_refused

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """As in the SDK, but a server that is told to exit leaves the streams to `end_listening`."""
        AppStatus.enable_automatic_graceful_drain = False
        try:
            async with super().run():
                yield
        finally:
            AppStatus.enable_automatic_graceful_drain = True

    @property
    def open_sessions(self) -> int:
        return len(self._server_instances)

    async def terminate_where(self, gone: Callable[[AuthorizationContext], bool]) -> int:
        """End the sessions whose owner is gone, with their streams and requests; how many there were."""
        owners = {owner["client_id"]: owner for owner in self._session_owners.values()}
        over = {name for name, owner in owners.items() if gone(owner)}
        ending = [s for s, owner in self._session_owners.items() if owner["client_id"] in over]
        for session_id in ending:
            transport = self._server_instances.get(session_id)
            if transport is not None:
                await self._discard_session(session_id, transport)
        return len(ending)

    async def answered(self, seconds: float) -> None:
        """Wait until every request has had its answer, at most so long."""
        with anyio.move_on_after(seconds):
            while any(_is_busy(transport) for transport in self._server_instances.values()):
                await anyio.sleep(_LOOK_EVERY)

    def end_listening(self, gone: Callable[[str], bool] = lambda _: True) -> None:
        """End the open GET streams, which carry no answers: all, or those whose token is `gone`."""
        for session_id, token in list(self._listeners.items()):
            transport = self._server_instances.get(session_id)
            if transport is not None and gone(token):
                transport.close_standalone_sse_stream()

    def _admit_session(self, requestor: AuthorizationContext | None) -> HybridTransport | None:
        if self.max_sessions is not None and self.open_sessions >= self.max_sessions:
            return None
        session_id = uuid4().hex
        transport = HybridTransport(
            session_id,
            security_settings=self.security_settings,
            idle_timeout=self.session_idle_timeout,
            commit_after=self._commit_after,
            at_once=self._at_once,
            on_begun=self.on_begun,
            on_refused=self.on_refused,
        )
        if requestor is not None:
            self._make_room(requestor)
            self._session_owners[session_id] = requestor
        self._server_instances[session_id] = transport
        return transport

    def _make_room(self, owner: AuthorizationContext) -> None:
        """A client that opens sessions and never ends them loses its own oldest, not everybody's next."""
        assert self._task_group is not None
        theirs = [session_id for session_id, other in self._session_owners.items() if other == owner]
        theirs.sort(key=self._listeners.__contains__)
        for session_id in theirs[: max(0, len(theirs) + 1 - _MOST_OF_ONE)]:
            transport = self._server_instances.get(session_id)
            if transport is not None and not _is_busy(transport):
                self._task_group.start_soon(self._discard_session, session_id, transport)

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whatever era the request is of: who names another's session is told that there is none."""
        session_id = Headers(scope=scope).get(MCP_SESSION_ID_HEADER, "")
        session = self._server_instances.get(session_id)
        known = session is not None
        foreign = known and _owner(scope) != self._session_owners.get(session_id)
        if foreign and self.on_foreign is not None:
            self.on_foreign(session_id, scope)
        of_handshake = _era(scope) in HANDSHAKE_PROTOCOL_VERSIONS
        if foreign or (session_id and not known and of_handshake):
            body = envelope.write(envelope.invalid("Session not found"))
            refused = Response(body, HTTPStatus.NOT_FOUND, media_type="application/json")
            await refused(scope, receive, send)
            return
        if scope["method"] == "POST" and not of_handshake:
            await self._handle_modern(scope, receive, send)
            return
        if session is not None and scope["method"] == "POST":  # nothing is left that the SDK would look at
            await session.handle_request(scope, receive, send)
            if session.is_terminated:
                await self._discard_session(session_id, session)
            return
        if not session_id and self.max_sessions is not None and self.open_sessions >= self.max_sessions:
            too_many = ExternalFailure("too many open sessions", code="QUEUE_OVERLOADED", hint="end one of yours")
            body = envelope.write(envelope.error(contract.QUEUE_OVERLOADED, too_many))
            refused = Response(body, HTTPStatus.SERVICE_UNAVAILABLE, media_type="application/json")
            await refused(scope, receive, send)
            return
        if not known or scope["method"] != "GET" or session_id in self._listeners:
            await super()._handle_request(scope, receive, send)
            return
        self._listeners[session_id] = scope.get("swarm.token", "")
        try:
            await super()._handle_request(scope, receive, send)
        finally:
            self._listeners.pop(session_id, None)

    async def _handle_modern(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The SDK's handler takes more for JSON than can be kept, so it gets only what other eras may send."""
        try:
            body = await Request(scope, receive).body()
            message = envelope.read(body)
        except ClientDisconnect:
            return
        except envelope.Malformed as malformed:
            answer = envelope.write(malformed.answer)
            refused = Response(answer, HTTPStatus.BAD_REQUEST, media_type="application/json")
            await refused(scope, receive, send)
            return

        async def refused_with(error: t.ErrorData) -> t.ErrorData:
            """What the SDK refuses by its headers or envelope never reaches the server."""
            if isinstance(message, t.JSONRPCRequest) and not contract.is_complete(error):
                error = contract.completed(error, tool=_tool_of(message))
                await self.on_refused(scope, message, error)
            return error

        await super()._handle_request(scope, _again(body, receive), _completing(send, refused_with))


async def _next(
    to_client: MemoryObjectSendStream[EventMessage],
    messages: MemoryObjectReceiveStream[EventMessage],
    request_id: t.RequestId,
    seconds: float | None,
) -> t.JSONRPCMessage | None:
    """A timer that puts silence into the stream costs a tenth of a cancel scope around the waiting."""
    loop = asyncio.get_running_loop()
    timer = loop.call_later(seconds, _put_silence, to_client) if seconds is not None else None
    try:
        found = await messages.receive()
    except (anyio.EndOfStream, anyio.ClosedResourceError):
        return _ended(request_id)
    finally:
        if timer is not None:
            timer.cancel()
    return None if found is _SILENCE else found.message


def _put_silence(to_client: MemoryObjectSendStream[EventMessage]) -> None:
    with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
        to_client.send_nowait(_SILENCE)


def _is_busy(transport: StreamableHTTPServerTransport) -> bool:
    """Whether a request waits for its answer; the GET stream waits for nothing."""
    at_once = isinstance(transport, HybridTransport) and transport.is_answering
    return at_once or bool(transport._request_streams.keys() - {GET_STREAM_KEY})


def _ended(request_id: t.RequestId) -> t.JSONRPCError:
    return envelope.error(REQUEST_CANCELLED, Cancelled("Request cancelled: its session has ended"), request_id)


def _is_answer(message: t.JSONRPCMessage | None) -> TypeGuard[Answer]:
    return isinstance(message, t.JSONRPCResponse | t.JSONRPCError)


def _frame(message: t.JSONRPCMessage | None) -> bytes:
    """An event; without a message a comment, which keeps the connection open."""
    return b"event: message\r\ndata: %b\r\n\r\n" % envelope.write(message) if message else b": ping\r\n\r\n"


def _accepted(request: Request) -> tuple[bool, bool]:
    """Whether the client takes JSON, and whether it takes an event stream. One that does not say takes JSON."""
    return _takes(request.headers.get("accept"))


@lru_cache(256)
def _takes(accept: str | None) -> tuple[bool, bool]:
    """Clients say the same each time, so that reading it once is enough."""
    if accept is None:
        return (True, False)
    return check_accept_headers(Request({"type": "http", "headers": [(b"accept", accept.encode("latin-1"))]}))


def _era(scope: Scope) -> str:
    """The protocol version a request names; one that names none is of the handshake era."""
    return Headers(scope=scope).get(MCP_PROTOCOL_VERSION_HEADER, HANDSHAKE_PROTOCOL_VERSIONS[-1])


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that begins with the body that was read."""
    left = [body]

    async def again() -> Message:
        return {"type": "http.request", "body": left.pop(), "more_body": False} if left else await receive()

    return again


def _completing(send: Send, complete: Callable[[t.ErrorData], Awaitable[t.ErrorData]]) -> Send:
    """A `send` that passes the JSON-RPC error of a refusal through `complete`; everything else stays as it is."""
    start: Message | None = None

    async def sent(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
            start = message
            return
        if start is not None:
            begun, start = start, None
            if (b"content-type", b"application/json") in begun["headers"]:
                refusal = t.JSONRPCError.model_validate_json(message["body"])
                refusal.error = await complete(refusal.error)
                message = {**message, "body": envelope.write(refusal)}
                headers = [(n, v) for n, v in begun["headers"] if n != b"content-length"]
                begun = {**begun, "headers": [*headers, (b"content-length", b"%d" % len(message["body"]))]}
            await send(begun)
        await send(message)

    return sent


def _tool_of(message: t.JSONRPCRequest) -> str | None:
    name = (message.params or {}).get("name") if message.method == "tools/call" else None
    return name[:80] if isinstance(name, str) else None


def _owner(scope: Scope) -> AuthorizationContext | None:
    user = scope.get("user")
    return authorization_context(user) if isinstance(user, AuthenticatedUser) else None
