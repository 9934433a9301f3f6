"""The MCP server object: what it says of itself, and how each method of the protocol is answered."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import mcp_types as t
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict, ValidationError
from starlette.requests import Request
from starlette.types import Scope

from swarm_core.errors import ExternalFailure, SwarmError
from swarm_core.models import Principal
from swarm_mcp import contract, permissions, registry, resources
from swarm_mcp.dispatch import Dispatcher, Origin

STDIO = "stdio"
_TOO_EARLY = (t.INVALID_PARAMS, "")  # how the SDK refuses what comes before initialize
_OF_A_CALL = frozenset({"name", "arguments", "_meta"})
INSTRUCTIONS = """\
Swarm coordinates coding agents, each in a git worktree of its own. You are one of them and are known by your \
connection: never pass your own id.
Work agents: do the task, test it, COMMIT everything, then call spawn_review_instance and wait. Feedback comes \
as a message starting with [swarm msg ...]; fix, commit and ask for another review. When it is approved, call \
create_pull_request.
Reviewers: read the diff of the branch you were given against its base and run its tests. Then do exactly one of \
these: send_feedback with feedback_type needs_work; or update_instance_status with status approved; or \
create_pull_request, which approves as well.
An error result has code, message and recovery_hint: do what the hint says instead of repeating the call. If you \
cannot go on, call update_instance_status with status failed and say why."""

log = logging.getLogger(__name__)

_T = TypeVar("_T")
Context = ServerRequestContext[Any, Any]
Whoever = Callable[[], Principal]


class CancelParams(t.NotificationParams):
    model_config = ConfigDict(extra="allow")
    id: str | int | None = None


class SwarmServer(Server[Any]):
    """`who` tells who is behind the process's own stdin; over HTTP every request says it by its token."""

    def __init__(self, dispatcher: Dispatcher, reader: resources.Reader, *, who: Whoever | None = None) -> None:
        self._dispatcher = dispatcher
        self._reader = reader
        self._who = who
        super().__init__(
            contract.NAME,
            version=contract.TOOL_VERSION,
            title="Swarm",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=_input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        # Without the SDK's tracing, which costs a tenth of a small call and which nobody here reads.
        self.middleware[:] = [self._coded]
        self.add_notification_handler("$/cancelRequest", CancelParams, self._cancel)
        self.add_request_handler("shutdown", t.RequestParams, self._shutdown)
        self.add_notification_handler("exit", t.NotificationParams, self._exit)

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> t.ServerCapabilities:
        about = {
            "schemaVersion": contract.SCHEMA_VERSION,
            "toolVersion": contract.TOOL_VERSION,
            "capabilities": self._dispatcher.capabilities(),
        }
        ours = {contract.NAME: about, **(experimental_capabilities or {})}
        return super().get_capabilities(notification_options, ours, extensions, protocol_version=protocol_version)

    # Tools

    async def _list_tools(self, ctx: Context, params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
        principal = self._principal(ctx)
        shown = registry.shown_to(permissions.caller_of(principal), principal.scopes)
        return t.ListToolsResult(tools=list(shown))

    async def _call_tool(self, ctx: Context, params: t.CallToolRequestParams) -> t.CallToolResult:
        answer = await self._dispatcher.call(self._origin(ctx), params.name, params.arguments)
        return cast("t.CallToolResult", answer)  # the SDK takes a result in its wire spelling as well

    async def at_once(
        self, message: t.JSONRPCRequest, request: Request, version: str
    ) -> t.JSONRPCResponse | t.JSONRPCError | None:
        """Answer a call that runs on the event loop. What is not quite such a call, the SDK has to look at."""
        params = message.params or {}
        if message.method != "tools/call" or not params.keys() <= _OF_A_CALL:
            return None
        name, arguments, meta = params.get("name"), params.get("arguments"), params.get("_meta", {})
        if not isinstance(arguments, dict) or not isinstance(meta, dict) or not registry.on_loop(name, arguments):
            return None
        origin = Origin(
            request.scope["swarm.principal"], _connection_of(request), request_id=str(message.id), meta=meta
        )
        try:
            payload = await self._dispatcher.call(origin, name, arguments)
        except MCPError as error:
            return t.JSONRPCError(jsonrpc="2.0", id=message.id, error=error.error)
        return t.JSONRPCResponse(jsonrpc="2.0", id=message.id, result=contract.sent_to(version, payload))

    # Resources and prompts

    async def _list_resources(
        self, ctx: Context, params: t.PaginatedRequestParams | None
    ) -> t.ListResourcesResult:
        if not self._may_read(ctx):
            return t.ListResourcesResult(resources=[])
        return self._reader.listed()

    async def _list_templates(
        self, ctx: Context, params: t.PaginatedRequestParams | None
    ) -> t.ListResourceTemplatesResult:
        shown = resources.TEMPLATES if self._may_read(ctx) else ()
        return t.ListResourceTemplatesResult(resource_templates=list(shown))

    async def _read_resource(self, ctx: Context, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
        uri = str(params.uri)
        return await self._reading(ctx, {"uri": uri}, lambda: self._reader.read(uri))

    async def _list_prompts(self, ctx: Context, params: t.PaginatedRequestParams | None) -> t.ListPromptsResult:
        return t.ListPromptsResult(prompts=list(resources.PROMPTS if self._may_read(ctx) else ()))

    async def _get_prompt(self, ctx: Context, params: t.GetPromptRequestParams) -> t.GetPromptResult:
        name, arguments = params.name, params.arguments or {}
        return await self._reading(ctx, {"name": name}, lambda: self._reader.prompt(name, arguments))

    def _may_read(self, ctx: Context) -> bool:
        principal = self._principal(ctx)
        return permissions.may_call(permissions.READ, permissions.caller_of(principal), principal.scopes)

    async def _reading(self, ctx: Context, asked: dict[str, str], read: Callable[[], _T]) -> _T:
        return await self._answered(self._dispatcher.reading(self._origin(ctx), ctx.method, asked, read))

    # The rest

    async def _cancel(self, ctx: Context, params: CancelParams) -> None:
        if params.id is not None:
            self._dispatcher.cancel(self._connection(ctx), str(params.id))

    async def _shutdown(self, ctx: Context, params: t.RequestParams) -> dict[str, Any]:
        """For old clients: ending is closing the connection, so there is nothing to do."""
        return {}

    async def _exit(self, ctx: Context, params: t.NotificationParams) -> None:
        return

    async def _coded(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Give the SDK's own errors a code and details as ours have them, and record a call that they end."""
        try:
            return await call_next(ctx)
        except MCPError as error:
            if contract.is_complete(error.error):
                raise
            if (error.code, error.data) == _TOO_EARLY:
                refused = contract.protocol_error(error.code, contract.not_initialized(), tool=_tool_of(ctx))
            else:
                refused = MCPError.from_error_data(contract.completed(error.error, tool=_tool_of(ctx)))
        except ValidationError as error:
            refused = contract.invalid(f"Invalid parameters for {ctx.method[:80]}", error, tool=_tool_of(ctx))
        if ctx.method == "tools/call":
            await self._dispatcher.refused(self._principal(ctx), ctx.params, refused.error)
        raise refused

    async def refused(self, scope: Scope, message: t.JSONRPCRequest, error: t.ErrorData) -> None:
        """Record a call that the transport refused."""
        if message.method == "tools/call":
            await self._dispatcher.refused(scope["swarm.principal"], message.params, error)

    async def _answered(self, work: Awaitable[_T]) -> _T:
        """What is no tool call fails as a JSON-RPC error; the text of a bug stays in the log."""
        try:
            return await work
        except MCPError:
            raise
        except SwarmError as error:
            number = t.INVALID_PARAMS if contract.category(error) in ("validation", "state") else t.INTERNAL_ERROR
            raise contract.protocol_error(number, error, folders=self._dispatcher.folders) from None
        except Exception:  # an exception that leaves a handler would reach the client with its text
            log.exception("a request failed")
            bug = ExternalFailure("a bug in swarm; see its log", code="INTERNAL")
            raise contract.protocol_error(t.INTERNAL_ERROR, bug) from None

    def _principal(self, ctx: Context) -> Principal:
        if ctx.request is not None:
            principal: Principal = ctx.request.scope["swarm.principal"]
            return principal
        assert self._who is not None
        try:
            return self._who()
        except SwarmError as error:
            raise contract.protocol_error(t.INVALID_REQUEST, error) from None

    def _connection(self, ctx: Context) -> str:
        return STDIO if ctx.request is None else _connection_of(ctx.request)

    def _origin(self, ctx: Context) -> Origin:
        meta: dict[str, Any] = dict(ctx.meta or {})
        wanted = meta.get("progress_token", meta.get("progressToken")) is not None

        async def progress(count: float, text: str) -> None:
            await ctx.session.report_progress(count, None, text)

        return Origin(
            principal=self._principal(ctx),
            connection=self._connection(ctx),
            request_id=str(ctx.request_id),
            meta=meta,
            progress=progress if wanted else None,
            in_session=ctx.request is None or "mcp-session-id" in ctx.request.headers,
        )


def _connection_of(request: Request) -> str:
    """A request belongs to its principal: an era without sessions lets anybody send any session's id."""
    return f"{request.scope['swarm.principal'].actor} {request.headers.get('mcp-session-id', '')}"


def _tool_of(ctx: Context) -> str | None:
    """The tool that a request names, whatever else is wrong with it."""
    name = (ctx.params or {}).get("name") if ctx.method == "tools/call" else None
    return name[:80] if isinstance(name, str) else None


def _input_schema(name: str) -> dict[str, Any] | None:
    return registry.definition(name).input_schema if name in registry.tools() else None
