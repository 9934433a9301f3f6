"""The contract with MCP clients: the shape of results and errors, and the numbers of protocol errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import mcp_types as t
import pydantic_core
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError
from mcp_types.methods import serialize_server_result
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from swarm_core.contract import (
    NAME,
    SCHEMA_VERSION,
    TOOL_VERSION,
    canonical,
    category,
    described,
    error_object,
    nulls,
    violations,
    without_paths,
)
from swarm_core.errors import (
    Cancelled,
    Denied,
    ExternalFailure,
    InvalidInput,
    InvalidRequest,
    NotFound,
    SwarmError,
)

QUEUE_OVERLOADED = -32001
# Every number the server sends, the code in its `data`, and when. The SDK makes some of them; see `completed`.
NUMBERS: dict[int, tuple[str, str]] = {
    t.PARSE_ERROR: ("INVALID_REQUEST", "The message is not JSON."),
    t.INVALID_REQUEST: (
        "INVALID_REQUEST",
        "The message is not a JSON-RPC request, its id is in use, or there is no such session. "
        "`UNAUTHORIZED`, on stdio: the token has ended.",
    ),
    t.METHOD_NOT_FOUND: ("NOT_FOUND", "There is no such method."),
    t.INVALID_PARAMS: (
        "INVALID_REQUEST",
        "The arguments do not match the schema, or the call came before `initialize`; `data.details` lists the "
        "violations and `data.tool_name` names the tool. A resource or prompt that cannot be given has the code "
        "of its failure, for example `INSTANCE_NOT_FOUND`.",
    ),
    t.INTERNAL_ERROR: (
        "INTERNAL",
        "A bug; the log has its traceback. Also the code of a failed read, or `SHUTTING_DOWN` when the server "
        "ends before the answer.",
    ),
    QUEUE_OVERLOADED: ("QUEUE_OVERLOADED", "Too many calls are under way; `data.details.queue` has the limit."),
    t.HEADER_MISMATCH: ("INVALID_REQUEST", "Without a session: a header does not match the request's body."),
    t.UNSUPPORTED_PROTOCOL_VERSION: (
        "INVALID_REQUEST",
        "Without a session: the protocol version is unknown; `data.supported` lists those that are served.",
    ),
    REQUEST_CANCELLED: ("CANCELLED", "HTTP: the client cancelled the request, or its session has ended."),
}
_CONDITIONS: dict[str, type[SwarmError]] = {
    "UNAUTHORIZED": Denied,
    "FORBIDDEN": Denied,
    "NOT_FOUND": NotFound,
    "QUEUE_OVERLOADED": ExternalFailure,
}
_as_text_slowly = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

__all__ = ["NAME", "SCHEMA_VERSION", "TOOL_VERSION", "canonical", "category", "nulls", "without_paths"]


def failure(
    error: SwarmError, *, tool: str | None = None, instance_id: str | None = None, folders: Sequence[str] = ()
) -> dict[str, Any]:
    """The body of a tool error. `code` and `message` are there twice: old clients read them at the top."""
    body = error_object(error, tool=tool, instance_id=instance_id, folders=folders)
    more = body["details"] if isinstance(body["details"], dict) else {}
    return {**more, "ok": False, "code": body["code"], "message": body["message"], "error": body}


def refusal(code: str, message: str, hint: str | None = None) -> dict[str, Any]:
    """The body of a refusal at the door, where nothing but its code is known."""
    return failure(_CONDITIONS.get(code, InvalidInput)(message, code=code, hint=hint))


def result(payload: dict[str, Any], *, is_error: bool = False) -> dict[str, Any]:
    """One text item of compact JSON and the same object beside it, as it goes over the wire."""
    content = [{"type": "text", "text": _as_text(payload)}]
    # The 2026 era needs the last; for the others the SDK takes it out.
    return {"content": content, "structuredContent": payload, "isError": is_error, "resultType": "complete"}


def sent_to(version: str, answer: dict[str, Any]) -> dict[str, Any]:
    """A result in the spelling of a session's protocol version, as the SDK would write it."""
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        return serialize_server_result("tools/call", version, answer)
    return {name: value for name, value in answer.items() if name != "resultType"}


def _as_text(payload: dict[str, Any]) -> str:
    """Compact JSON. Half a surrogate pair, which a file name may hold, is only for the standard library."""
    try:
        return pydantic_core.to_json(payload).decode()
    except (pydantic_core.PydanticSerializationError, UnicodeEncodeError):
        return _as_text_slowly(payload)


def protocol_error(
    number: int, error: SwarmError, *, tool: str | None = None, folders: Sequence[str] = (), **more: Any
) -> MCPError:
    """A JSON-RPC error; its `data` is the error object. Clients show only the message, so it has the hint too."""
    data = error_object(error, tool=tool, folders=folders)
    if data["recovery_hint"]:
        data["message"] = f"{data['message']}; {data['recovery_hint']}"
    return MCPError(number, data["message"], {**more, **data})


def invalid(about: str, error: ValidationError, *, tool: str | None = None) -> MCPError:
    """The error of parameters that do not match their schema."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return violated(about, violations(found), tool=tool)


def violated(about: str, listed: list[dict[str, str]], *, tool: str | None = None) -> MCPError:
    said = InvalidRequest(f"{about}: {described(listed)}", violations=listed)
    return protocol_error(t.INVALID_PARAMS, said, tool=tool)


def bug() -> ExternalFailure:
    return ExternalFailure("a bug in swarm; its traceback is in the coordinator's log", code="INTERNAL")


def not_initialized() -> InvalidRequest:
    return InvalidRequest("the connection has no session yet", hint="send initialize first")


def is_complete(error: t.ErrorData) -> bool:
    """Whether we made the error: the SDK's own have no code in their data."""
    return isinstance(error.data, dict) and "code" in error.data


def code_of(error: t.ErrorData) -> str:
    return str(error.data["code"]) if is_complete(error) else "INTERNAL"


def completed(error: t.ErrorData, *, tool: str | None = None) -> t.ErrorData:
    """The error as it may leave the server: with a code, whoever made it.

    The SDK's numbers for a closed connection and for an exception of ours are not part of the contract.
    """
    if is_complete(error):
        return error
    more = dict(error.data) if isinstance(error.data, dict) else {}
    number, failed = error.code, _as_swarm_error(error)
    if number in (t.CONNECTION_CLOSED, 0):
        number = t.INTERNAL_ERROR
    if number == t.UNSUPPORTED_PROTOCOL_VERSION:
        more["supported"] = list(KNOWN_PROTOCOL_VERSIONS)
    failed.details |= more
    return protocol_error(number, failed, tool=tool, **more).error


def _as_swarm_error(error: t.ErrorData) -> SwarmError:
    if error.code == t.METHOD_NOT_FOUND:
        named = f": {error.data[:80]}" if isinstance(error.data, str) else ""
        return NotFound(f"{error.message}{named}")
    if error.code == t.CONNECTION_CLOSED:
        return ExternalFailure("the server is shutting down", code="SHUTTING_DOWN", hint="try again in a moment")
    if error.code == REQUEST_CANCELLED:
        return Cancelled(error.message)
    if error.code in (t.INTERNAL_ERROR, 0):
        said = error.message if error.code else "a bug in swarm; see its log"
        return ExternalFailure(said, code="INTERNAL")
    return InvalidRequest(error.message)
