"""One JSON-RPC message from bytes and back; what is wrong with bytes is said without repeating them."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as t
import pydantic_core
from pydantic import ValidationError

from swarm_core.errors import InvalidRequest, SwarmError
from swarm_mcp import contract


class Malformed(Exception):
    """The bytes are no message that can be passed on; `answer` is what the sender gets."""

    def __init__(self, answer: t.JSONRPCError) -> None:
        super().__init__(answer.error.message)
        self.answer = answer


def read(raw: bytes) -> t.JSONRPCMessage:
    try:
        value = pydantic_core.from_json(raw, allow_inf_nan=False)
    except ValueError:
        raise Malformed(error(t.PARSE_ERROR, InvalidRequest("this is not JSON"))) from None
    if isinstance(value, list):
        raise Malformed(invalid("batches are not supported: send one message at a time"))
    try:
        message = t.jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        raise Malformed(invalid("this is not a JSON-RPC 2.0 message", _id_of(value))) from None
    if isinstance(message, t.JSONRPCNotification) and "id" in value:
        raise Malformed(invalid("the id of a request is a string or a whole number"))
    return message


def write(message: t.JSONRPCMessage) -> bytes:
    """The bytes of a message of ours; an error that the SDK made gets its code here.

    Half a surrogate pair, which a file name may hold, is no text; it becomes a question mark.
    """
    if isinstance(message, t.JSONRPCError):
        message = t.JSONRPCError(jsonrpc="2.0", id=message.id, error=contract.completed(message.error))
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except (pydantic_core.PydanticSerializationError, UnicodeEncodeError):
        body = message.model_dump(by_alias=True, exclude_unset=True)
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def invalid(message: str, request_id: t.RequestId | None = None) -> t.JSONRPCError:
    return error(t.INVALID_REQUEST, InvalidRequest(message), request_id)


def error(number: int, about: SwarmError, request_id: t.RequestId | None = None) -> t.JSONRPCError:
    return t.JSONRPCError(jsonrpc="2.0", id=request_id, error=contract.protocol_error(number, about).error)


def _id_of(value: Any) -> t.RequestId | None:
    """What a malformed request calls itself. A malformed answer has our id, which must not come back as theirs."""
    if not isinstance(value, dict) or "method" not in value:
        return None
    named = value.get("id")
    return named if isinstance(named, str | int) and not isinstance(named, bool) else None
