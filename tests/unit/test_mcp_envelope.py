"""What counts as a JSON-RPC message, and what is said about the rest."""

from __future__ import annotations

import json

import mcp_types as t
import pytest

from swarm_mcp import envelope

SECRET = "PINEAPPLE"


def _wrong(body, number, request_id=None):
    return pytest.param(body if isinstance(body, bytes) else json.dumps(body).encode(), number, request_id)


RUBBISH = {
    "nothing": _wrong(b"", -32700),
    "text": _wrong(SECRET.encode(), -32700),
    "half": _wrong(b'{"jsonrpc":"2.0","id":1,"method":"PINEAPPLE"', -32700),
    "two": _wrong(b'{"jsonrpc":"2.0","id":1,"method":"a"}{}', -32700),
    "not utf-8": _wrong(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
    "half a surrogate pair": _wrong(rb'{"jsonrpc":"2.0","id":1,"method":"\ud800"}', -32700),
    "not a number": _wrong(b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"n":NaN}}', -32700),
    "deep": _wrong(b"[" * 100_000, -32700),
    "string": _wrong(SECRET, -32600),
    "number": _wrong(17, -32600),
    "null": _wrong(None, -32600),
    "empty batch": _wrong([], -32600),
    "batch": _wrong([{"jsonrpc": "2.0", "id": 1, "method": SECRET}], -32600),
    "empty object": _wrong({}, -32600),
    "no version": _wrong({"id": 3, "method": SECRET}, -32600, 3),
    "other version": _wrong({"jsonrpc": "1.0", "id": "three", "method": SECRET}, -32600, "three"),
    "list of params": _wrong({"jsonrpc": "2.0", "id": 0, "method": "x", "params": [SECRET]}, -32600, 0),
    "no method name": _wrong({"jsonrpc": "2.0", "id": 3, "method": {"a": SECRET}}, -32600, 3),
    "null id": _wrong({"jsonrpc": "2.0", "id": None, "method": SECRET}, -32600),
    "boolean id": _wrong({"jsonrpc": "2.0", "id": True, "method": SECRET}, -32600),
    "fractional id": _wrong({"jsonrpc": "2.0", "id": 1.5, "method": SECRET}, -32600),
    "list as id": _wrong({"jsonrpc": "2.0", "id": [SECRET], "method": SECRET}, -32600),
    "wrong answer": _wrong({"jsonrpc": "2.0", "id": 4, "result": SECRET}, -32600),
}


@pytest.mark.parametrize(("body", "number", "request_id"), RUBBISH.values(), ids=RUBBISH.keys())
def test_what_is_no_message_is_refused_without_being_repeated(body, number, request_id):
    with pytest.raises(envelope.Malformed) as refused:
        envelope.read(body)
    answer = refused.value.answer
    assert (answer.id, answer.error.code) == (request_id, number)
    assert answer.error.data["code"] == "INVALID_REQUEST"
    written = envelope.write(answer).decode()
    assert "id" in json.loads(written)
    assert SECRET not in written
    assert "pydantic" not in written


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"jsonrpc": "2.0", "id": 0, "method": "x"}, t.JSONRPCRequest),
        ({"jsonrpc": "2.0", "id": "", "method": "x", "params": {"a": 1}}, t.JSONRPCRequest),
        ({"jsonrpc": "2.0", "id": 2**70, "method": "x"}, t.JSONRPCRequest),
        ({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 7}}, t.JSONRPCNotification),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, t.JSONRPCResponse),
        (
            {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "no", "data": {"code": "NO"}}},
            t.JSONRPCError,
        ),
    ],
)
def test_a_message_comes_out_as_it_went_in(body, kind):
    message = envelope.read(json.dumps(body).encode())
    assert type(message) is kind
    assert json.loads(envelope.write(message)) == body


def test_half_a_surrogate_pair_is_written_as_a_question_mark():
    answer = t.JSONRPCResponse(jsonrpc="2.0", id=1, result={"name": "a\udcffb", "more": "ü"})
    assert json.loads(envelope.write(answer)) == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"name": "a?b", "more": "ü"},
    }
