"""Every JSON-RPC error carries the one error object, whoever made it; and a refused call leaves an event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.client._probe import _parse_supported
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

from swarm_core.contract import ERROR_FIELDS
from swarm_core.errors import CODES
from swarm_mcp import contract
from tests.integration.mcp_fixture import Coordinated
from tests.integration.mcp_lines import TRANSPORTS, Line, coordinated, open_line
from tests.mcp_client import Answer, StdioClient
from tests.support import wait_until

ERA = "2026-07-28"
_META = "io.modelcontextprotocol"


@pytest.fixture(scope="module")
def shared() -> Iterator[Coordinated]:
    with coordinated() as made:
        yield made


@pytest.fixture(scope="module", params=TRANSPORTS)
def line(shared: Coordinated, request: pytest.FixtureRequest) -> Line:
    return open_line(shared, request.param)


def check(answer: Answer, number: int, code: str, tool: str | None = None) -> dict[str, Any]:
    """The error's number and its object; returns the object."""
    error = answer.error
    data: dict[str, Any] = error["data"]
    assert (error["code"], data["code"]) == (number, code), error
    assert data.keys() >= ERROR_FIELDS.keys()
    assert data["message"] == error["message"]
    assert data["tool_name"] == tool
    assert data["code"] in CODES
    assert number in contract.NUMBERS
    return data


def raw(line: Line, body: bytes) -> Answer:
    if isinstance(line.client, StdioClient):
        line.client.write(body + b"\n")
        return Answer(0, line.client.read())
    return line.client.post(body)  # type: ignore[attr-defined,no-any-return]


def test_what_is_not_json_and_what_is_not_json_rpc(line: Line) -> None:
    check(raw(line, b"{"), -32700, "INVALID_REQUEST")
    check(raw(line, b'{"id": 3, "method": "x"}'), -32600, "INVALID_REQUEST")


def test_an_unknown_method(line: Line) -> None:
    assert "no/such" in check(line.client.request("no/such"), -32601, "NOT_FOUND")["message"]


def test_arguments_that_do_not_fit_name_their_tool_and_leave_an_event(shared: Coordinated, line: Line) -> None:
    before = shared.newest_event()
    data = check(line.client.call("search", limit=0), -32602, "INVALID_REQUEST", "search")
    assert {one["path"] for one in data["details"]} == {"query", "limit"}
    (event,) = shared.events(after=before, tool="search")
    assert (event.success, event.error_code, event.actor) == (False, "INVALID_REQUEST", "operator")


@pytest.mark.parametrize("arguments", [[1], "text", 3, True], ids=repr)
def test_arguments_of_another_json_type_leave_an_event(shared: Coordinated, line: Line, arguments: Any) -> None:
    before = shared.newest_event()
    answer = line.client.request("tools/call", {"name": "search", "arguments": arguments})
    check(answer, -32602, "INVALID_REQUEST", "search")
    (event,) = shared.events(after=before, tool="search")
    assert (event.name, event.success, event.error_code) == ("tool:called", False, "INVALID_REQUEST")
    assert event.metadata["arguments"] == arguments


def test_a_call_without_a_tool_leaves_an_event(shared: Coordinated, line: Line) -> None:
    before = shared.newest_event()
    check(line.client.request("tools/call", {"arguments": {}}), -32602, "INVALID_REQUEST")
    (event,) = shared.events(after=before, name="tool:called")
    assert (event.success, event.error_code) == (False, "INVALID_REQUEST")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_call_before_initialize_is_refused_and_leaves_an_event(shared: Coordinated, transport: str) -> None:
    token = shared.operator_token
    opened = shared.client if transport == "http" else shared.stdio
    client = opened(token, initialize=False)
    before = shared.newest_event()
    answer = client.call("search", query="x", id=7)
    assert answer.message["id"] == 7
    data = check(answer, -32602, "INVALID_REQUEST", "search")
    assert "initialize" in data["recovery_hint"]
    (event,) = shared.events(after=before, tool="search")
    assert (event.success, event.error_code, event.actor) == (False, "INVALID_REQUEST", "operator")


def test_what_cannot_be_read_has_the_code_of_its_failure(line: Line) -> None:
    answer = line.client.request("resources/read", {"uri": "swarm://instance/work-9-a9"})
    assert "swarm ls" in check(answer, -32602, "INSTANCE_NOT_FOUND")["recovery_hint"]


def test_on_stdio_a_token_that_has_ended_is_unauthorized(shared: Coordinated) -> None:
    with shared.swarm() as swarm:
        token = swarm.create_token("short-lived", ["read"]).token
    client = shared.stdio(token)
    with shared.swarm() as swarm:
        swarm.revoke_token("short-lived")
    check(client.call("search", query="x"), -32600, "UNAUTHORIZED")


# Without a session


def sessionless(
    shared: Coordinated, *, headers: dict[str, str] | None = None, meta: dict[str, Any] | None = None
) -> Answer:
    """A call of `search` without a session, with these headers and this envelope in place of the right ones."""
    client = shared.client(shared.operator_token, initialize=False)
    said = {"MCP-Protocol-Version": ERA, "Mcp-Method": "tools/call", "Mcp-Name": "search"} | (headers or {})
    client.extra = {name: value for name, value in said.items() if value}
    envelope = {f"{_META}/protocolVersion": ERA, f"{_META}/clientCapabilities": {}} if meta is None else meta
    params = {"name": "search", "arguments": {"query": "x"}, "_meta": envelope}
    return client.send({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params})


@pytest.mark.parametrize(
    ("headers", "meta", "number"),
    [
        ({"Mcp-Method": "tools/list"}, None, -32020),
        ({"Mcp-Name": "another"}, None, -32020),
        ({"Mcp-Name": ""}, None, -32020),
        ({}, {}, -32602),
        ({}, {f"{_META}/protocolVersion": ERA}, -32602),
        (
            {"MCP-Protocol-Version": "2031-01-01"},
            {f"{_META}/protocolVersion": "2031-01-01", f"{_META}/clientCapabilities": {}},
            -32022,
        ),
    ],
    ids=["method", "name", "no name", "no envelope", "half an envelope", "version"],
)
def test_a_header_or_envelope_that_is_wrong_has_a_code_and_leaves_an_event(
    shared: Coordinated, headers: dict[str, str], meta: dict[str, Any] | None, number: int
) -> None:
    before = shared.newest_event()
    answer = sessionless(shared, headers=headers, meta=meta)
    assert answer.status == 400
    assert answer.message["id"] == 5
    check(answer, number, "INVALID_REQUEST", "search")
    (event,) = shared.events(after=before, tool="search")
    assert (event.success, event.error_code, event.actor) == (False, "INVALID_REQUEST", "operator")


def test_an_unknown_version_is_answered_with_all_that_are_served(shared: Coordinated) -> None:
    meta = {f"{_META}/protocolVersion": "2031-01-01", f"{_META}/clientCapabilities": {}}
    answer = sessionless(shared, headers={"MCP-Protocol-Version": "2031-01-01"}, meta=meta)
    data = check(answer, -32022, "INVALID_REQUEST", "search")
    assert (data["supported"], data["requested"]) == (list(KNOWN_PROTOCOL_VERSIONS), "2031-01-01")
    assert _parse_supported(data) == list(KNOWN_PROTOCOL_VERSIONS), "as the SDK's client reads it"


def test_a_sessionless_call_goes_on_as_before(shared: Coordinated) -> None:
    assert "hits" in sessionless(shared).ok


def test_refusals_at_the_door_have_the_object_too(shared: Coordinated) -> None:
    nobody = shared.client(None, initialize=False)
    stranger = shared.client(shared.operator_token, initialize=False)
    stranger.extra = {"Origin": "http://evil.example"}
    claiming = shared.client(shared.operator_token, initialize=False)
    claiming.extra = {"X-Swarm-Instance": "work-1-a1"}
    for client, status, code in (
        (nobody, 401, "UNAUTHORIZED"),
        (stranger, 403, "FORBIDDEN"),
        (claiming, 400, "INVALID_REQUEST"),
    ):
        answer = client.post(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode())
        assert (answer.status, answer.code) == (status, code)
        assert answer.message["error"].keys() == ERROR_FIELDS.keys()
    wait_until(lambda: shared.events(name="auth:refused"), what="a refusal is an event")
