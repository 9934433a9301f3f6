"""The contract of the MCP server, row by row, against real server processes on both transports.

Each test names the row of the conformance matrix that it checks. C-003, C-010 and C-011 are in test_mcp_parity.py.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import httpx2
import mcp
import pytest
from mcp.client.streamable_http import streamable_http_client

from swarm_core.agents import table
from swarm_core.models import Instance
from swarm_mcp import contract, registry
from tests.integration.mcp_fixture import Coordinated
from tests.integration.mcp_lines import TRANSPORTS, Gate, Line, coordinated, gate, open_line
from tests.integration.mcp_shape import TOOLS, check_failure, check_invalid
from tests.integration.review_fixture import finished_work
from tests.mcp_client import VERSION
from tests.support import wait_until
from tests.world import assert_agreement


@pytest.fixture(scope="module")
def shared() -> Iterator[Coordinated]:
    with coordinated() as made:
        yield made


@pytest.fixture(scope="module")
def work(shared: Coordinated) -> Instance:
    with shared.swarm() as swarm:
        return finished_work(shared.world, swarm)


@pytest.fixture(scope="module", params=TRANSPORTS)
def line(shared: Coordinated, request: pytest.FixtureRequest) -> Line:
    """The operator."""
    return open_line(shared, request.param)


def names(found: list[dict[str, Any]]) -> list[str]:
    return [tool["name"] for tool in found]


# C-001: the list


def test_the_live_list_is_the_committed_snapshot(line: Line) -> None:
    """C-001"""
    listed = line.client.request("tools/list").result["tools"]
    assert len(set(names(listed))) == len(listed)
    live = {tool.pop("name"): tool for tool in listed}
    assert live == TOOLS
    assert set(live) == set(registry.tools())


# C-002: the handshake


def test_initialize_says_who_answers_what_it_can_and_which_contract_it_keeps(line: Line) -> None:
    """C-002"""
    answer = line.client.request("initialize", {"protocolVersion": VERSION, "capabilities": {}} | CLIENT)
    result = answer.result
    assert (result["protocolVersion"], result["serverInfo"]["name"]) == (VERSION, "swarm")
    assert result["serverInfo"]["version"] == contract.TOOL_VERSION
    assert {"tools", "prompts", "resources"} <= result["capabilities"].keys()
    about = result["capabilities"]["experimental"]["swarm"]
    assert (about["schemaVersion"], about["toolVersion"]) == (contract.SCHEMA_VERSION, contract.TOOL_VERSION)
    assert about["capabilities"]["agents"].keys() == table.AGENTS.keys()
    assert about["capabilities"]["agents"]["scripted"] is True
    assert about["capabilities"]["programs"]["tmux"] is True
    for tool in ("spawn_review_instance", "create_pull_request", "send_feedback", "update_instance_status"):
        assert tool in result["instructions"]


CLIENT = {"clientInfo": {"name": "test", "version": "1"}}
OFFERED = [
    *((v, v) for v in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")),
    *((v, "2025-11-25") for v in ("1999-01-01", "2026-07-28", "latest", "")),
]


@pytest.mark.parametrize(("offered", "answered"), OFFERED)
def test_a_known_protocol_version_is_kept_and_an_unknown_one_answered_with_the_newest(
    shared: Coordinated, offered: str, answered: str
) -> None:
    """C-002"""
    client = shared.client(shared.operator_token, initialize=False)
    assert client.initialize(offered).result["protocolVersion"] == answered
    client.extra = {"MCP-Protocol-Version": answered}
    assert client.tools().keys() == TOOLS.keys()
    assert client.call("query_instances").ok["you"] == "operator"


@pytest.mark.parametrize(("offered", "answered"), [OFFERED[0], OFFERED[4]])
def test_stdio_negotiates_alike(shared: Coordinated, offered: str, answered: str) -> None:
    """C-002"""
    client = shared.stdio(shared.operator_token, initialize=False)
    assert client.initialize(offered).result["protocolVersion"] == answered
    assert client.call("query_instances").ok["you"] == "operator"
    assert client.close() == 0


def test_a_client_of_the_sessionless_era_is_known_by_each_request(shared: Coordinated, work: Instance) -> None:
    """C-002: server/discover in place of the handshake."""

    async def talk(token: str) -> tuple[Any, list[str], Any, Any]:
        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            mcp.Client(streamable_http_client(f"http://127.0.0.1:{shared.port}/mcp", http_client=http)) as client,
        ):
            listed = await client.list_tools()
            called = await client.call_tool("query_instances", {"limit": 1})
            refused = await client.call_tool("nothing_like_it", {})
            about = (client.protocol_version, client.server_capabilities.experimental, client.instructions)
            return about, [t.name for t in listed.tools], called.structured_content, refused

    before = shared.newest_event()
    about, listed, called, refused = anyio.run(talk, shared.operator_token)
    assert about[0] == "2026-07-28"
    assert about[1]["swarm"]["schemaVersion"] == contract.SCHEMA_VERSION
    assert about[2]
    assert set(listed) == TOOLS.keys()
    assert called["you"] == "operator"
    assert (refused.is_error, refused.structured_content["code"]) == (True, "NOT_FOUND")
    _, listed, called, _ = anyio.run(talk, shared.token(work))
    assert called["you"] == work.id
    assert "send_feedback" not in listed
    assert [e.actor for e in shared.events(after=before, tool="query_instances")] == ["operator", work.id]


def sessionless(
    made: Coordinated, tool: str, *, id: Any, meta: dict[str, Any] | None = None, **arguments: Any
) -> Any:
    """Headers and body of a call without a session."""
    client = made.client(made.operator_token, initialize=False)
    era = "2026-07-28"
    client.extra = {"MCP-Protocol-Version": era, "Mcp-Method": "tools/call", "Mcp-Name": tool}
    name = "io.modelcontextprotocol"
    envelope = {f"{name}/protocolVersion": era, f"{name}/clientCapabilities": {}, **(meta or {})}
    params = {"name": tool, "arguments": arguments, "_meta": envelope}
    return client, {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def test_two_sessionless_clients_of_one_caller_may_use_the_same_id(shared: Coordinated, work: Instance) -> None:
    """C-002: without a session each request stands alone."""
    asking, question = sessionless(shared, "spawn_fork_instance", id=1, instance_id=work.id, prompt="say alone")
    other, second = sessionless(shared, "search", id=1, query="alone")
    with ThreadPoolExecutor(1) as pool, gate(shared.world) as barrier:
        held = pool.submit(asking.send, question)
        barrier.held()
        assert "hits" in other.send(second).ok
        barrier.open()
        assert held.result(30).ok["fork_instance_id"]


@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}], ids=["quiet", "with progress"])
def test_a_sessionless_client_cancels_by_going_away(shared: Coordinated, work: Instance, meta: Any) -> None:
    """C-007"""
    before = shared.newest_event()
    asking, question = sessionless(
        shared, "spawn_fork_instance", id=1, meta=meta, instance_id=work.id, prompt=f"say {meta}"
    )
    with gate(shared.world) as barrier:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", shared.port, timeout=30)) as connection:
            connection.request("POST", "/mcp", json.dumps(question), asking.headers())
            barrier.held()
        told(shared, before)
        undone(shared, barrier, before, "spawn_fork_instance", "CANCELLED")


@pytest.mark.parametrize("number", [0, "a word", "7", 2**53 + 1, 2**63 + 5, -1, ""], ids=repr)
def test_every_id_comes_back_as_it_was_sent(line: Line, number: Any) -> None:
    """C-002"""
    answer = line.client.call("query_instances", id=number)
    assert answer.message["id"] == number
    assert type(answer.message["id"]) is type(number)
    assert answer.ok["you"] == "operator"


def test_an_id_under_way_is_not_taken_twice(shared: Coordinated, line: Line, work: Instance) -> None:
    """C-002: ids are compared as text, so that nobody can mean two calls with one id."""
    with gate(shared.world) as barrier:
        held = line.begin("spawn_fork_instance", id=77, instance_id=work.id, prompt="say once")
        barrier.held()
        refused = line.beside().call("search", id="77", query="x").error
        assert (refused["code"], refused["data"]["code"]) == (-32600, "INVALID_REQUEST")
        barrier.open()
        assert held.answer().ok["fork_instance_id"]


# C-004: JSON and streams


def test_over_http_an_answer_is_json_and_progress_makes_it_a_stream_that_ends_with_it(
    shared: Coordinated, work: Instance
) -> None:
    """C-004"""
    client = shared.operator()
    plain = client.call("spawn_fork_instance", instance_id=work.id, prompt="say hello")
    assert (plain.headers["content-type"], plain.notifications) == ("application/json", [])
    told = client.call("spawn_fork_instance", {"progressToken": "t"}, instance_id=work.id, prompt="say bye")
    assert told.headers["content-type"].startswith("text/event-stream")
    assert {n["method"] for n in told.notifications} == {"notifications/progress"}
    assert told.ok["fork_instance_id"] != plain.ok["fork_instance_id"]


# C-005 and C-006: errors


def wrong_values(schema: dict[str, Any]) -> list[Any]:
    """Values of another type than the schema's, and one that is too long or too large where there is a limit."""
    kind = schema["type"]
    numbers = {"integer": ["7", 1.5, True, []], "boolean": ["true", 1]}
    found = list({"string": [7, True, ["x"], {}], "array": ["x"], **numbers}[kind])
    if "enum" in schema or "pattern" in schema:
        found.append("nothing like it")
    if schema.get("minLength"):
        found.append("")
    if "maxLength" in schema:
        found.append("x" * (schema["maxLength"] + 1))
    if "maximum" in schema:
        found += [schema["maximum"] + 1, schema["minimum"] - 1]
    if kind == "array":
        item = schema["items"]
        found += [[7], *([value] for value in wrong_values(item) if isinstance(value, str))]
        found.append([item.get("enum", ["event"])[0]] * (schema["maxItems"] + 1))
    return found


VALID: dict[str, dict[str, Any]] = {
    "spawn_review_instance": {},
    "spawn_fork_instance": {},
    "create_pull_request": {"title": "t", "description": "d"},
    "send_feedback": {"feedback": "f", "feedback_type": "needs_work"},
    "update_instance_status": {"status": "running"},
    "query_instances": {},
    "query_pulls": {},
    "merge_pull_request": {"instance_id": "work-99-a1"},
    "search": {"query": "q"},
    "get_status": {},
}


@pytest.mark.parametrize("tool", TOOLS)
def test_arguments_that_do_not_fit_the_schema_are_refused_by_name(
    shared: Coordinated, line: Line, tool: str
) -> None:
    """C-005, C-006"""
    before, sent = shared.newest_event(), 0
    schema = TOOLS[tool]["inputSchema"]

    def refused(arguments: dict[str, Any], field: str) -> None:
        nonlocal sent
        sent += 1
        check_invalid(line.client.call(tool, **arguments), field, tool)

    for unknown in ("surplus", "caller_id", "_meta"):
        refused(VALID[tool] | {unknown: 1}, unknown)
    for required in schema.get("required", []):
        refused({k: v for k, v in VALID[tool].items() if k != required}, required)
    for field, about in schema["properties"].items():
        refused(VALID[tool] | {field: None}, field)
        for value in wrong_values(about):
            refused(VALID[tool] | {field: value}, field)
    told = shared.events(after=before, tool=tool)
    assert [e.error_code for e in told] == ["INVALID_REQUEST"] * sent


@pytest.mark.parametrize("arguments", [[], "x", 7, [{}]], ids=repr)
def test_arguments_that_are_no_object_are_refused(line: Line, arguments: Any) -> None:
    """C-005"""
    answer = line.client.request("tools/call", {"name": "query_instances", "arguments": arguments})
    check_invalid(answer, "arguments")


def test_a_call_without_a_name_is_refused(line: Line) -> None:
    """C-005"""
    check_invalid(line.client.request("tools/call", {"arguments": {}}), "name")


def test_left_out_arguments_are_none(line: Line) -> None:
    """C-005"""
    assert line.client.request("tools/call", {"name": "query_instances"}).ok["you"] == "operator"


def test_an_unknown_tool_is_a_tool_error(shared: Coordinated, line: Line) -> None:
    """C-005"""
    before = shared.newest_event()
    payload = check_failure(line.client.call("nothing_like_it"), "NOT_FOUND", "nothing_like_it")
    assert payload["error"]["canonical"] == "NOT_FOUND"
    assert [(e.tool_name, e.error_code) for e in shared.events(after=before, name="tool:called")] == [
        ("nothing_like_it", "NOT_FOUND")
    ]


@pytest.mark.parametrize("method", ["tools/nothing", "completion/complete", "logging/setLevel", "x"])
def test_an_unknown_method_is_a_protocol_error(line: Line, method: str) -> None:
    """C-005"""
    params = {
        "completion/complete": {
            "ref": {"type": "ref/prompt", "name": "work"},
            "argument": {"name": "task", "value": ""},
        },
        "logging/setLevel": {"level": "info"},
    }.get(method)
    error = line.client.request(method, params).error
    assert (error["code"], error["data"]["code"]) == (-32601, "NOT_FOUND")
    assert method in error["message"]


def test_an_instance_that_does_not_exist_is_a_tool_error(line: Line) -> None:
    """C-005"""
    answer = line.client.call("update_instance_status", status="failed", instance_id="work-99-a1")
    payload = check_failure(answer, "INSTANCE_NOT_FOUND", "update_instance_status")
    assert payload["error"]["canonical"] == "NOT_FOUND"


# C-007: cancelling


def undone(shared: Coordinated, barrier: Gate, before: int, tool: str, code: str) -> None:
    """Nothing is left of the call but one event that tells how it ended."""
    assert barrier.gone()
    (told,) = shared.events(after=before, name="tool:called", tool=tool)
    assert told.error_code == code
    barrier.remove()
    with shared.swarm() as swarm:
        assert_agreement(shared.world, swarm)
        assert told.instance_id is not None
        about = swarm.find(told.instance_id)
    assert (about.status, about.cleaned) == ("failed", True)


@pytest.mark.parametrize("number", [41, "forty-one"])
def test_the_old_cancel_notification_ends_the_call_with_a_cancelled_result(
    shared: Coordinated, line: Line, work: Instance, number: Any
) -> None:
    """C-007, with `$/cancelRequest`"""
    before = shared.newest_event()
    with gate(shared.world) as barrier:
        held = line.begin("spawn_fork_instance", id=number, instance_id=work.id, prompt="say no")
        barrier.held()
        line.beside().notify("$/cancelRequest", {"id": number})
        answer = held.answer()
        check_failure(answer, "CANCELLED", "spawn_fork_instance")
        assert answer.message["id"] == number
        undone(shared, barrier, before, "spawn_fork_instance", "CANCELLED")


def test_the_cancel_notification_ends_the_call_without_a_result(
    shared: Coordinated, line: Line, work: Instance
) -> None:
    """C-007: over HTTP an error ends the request, because a POST has to be answered; on stdio nothing comes."""
    before = shared.newest_event()
    with gate(shared.world) as barrier:
        held = line.begin("spawn_fork_instance", instance_id=work.id, prompt="say no")
        barrier.held()
        line.beside().notify("notifications/cancelled", {"requestId": held.id, "reason": "changed my mind"})
        if line.transport == "http":
            error = held.answer().error
            assert (error["code"], error["data"]["code"]) == (-32800, "CANCELLED")
        else:
            told(shared, before)
            assert line.client.request("ping").notifications == []
        undone(shared, barrier, before, "spawn_fork_instance", "CANCELLED")
    assert line.client.call("query_instances").ok["you"] == "operator"


def told(shared: Coordinated, before: int) -> None:
    """Wait for the event of a call that gets no answer."""
    wait_until(lambda: shared.events(after=before, name="tool:called"), timeout=30, what="the end is told")


@pytest.mark.parametrize("way", ["$/cancelRequest", "notifications/cancelled"])
def test_a_cancelled_review_leaves_the_work_running_and_no_progress_comes_after_the_cancel(
    shared: Coordinated, line: Line, way: str
) -> None:
    """C-007"""
    with shared.swarm() as swarm:
        own = finished_work(shared.world, swarm)
    before = shared.newest_event()
    with gate(shared.world) as barrier:
        meta = {"progressToken": f"review {way}"}
        held = line.begin("spawn_review_instance", meta=meta, instance_id=own.id)
        barrier.held()
        key = "id" if way.startswith("$") else "requestId"
        line.beside().notify(way, {key: held.id})
        if line.transport == "stdio" and key == "requestId":
            told(shared, before)
            heard = line.client.request("ping").notifications
        else:
            answer = held.answer()
            assert answer.code == "CANCELLED"
            heard = answer.notifications
        texts = [n["params"]["message"] for n in heard]
        assert texts
        assert [text for text in texts if text.startswith("undoing")] == []
        undone(shared, barrier, before, "spawn_review_instance", "CANCELLED")
    with shared.swarm() as swarm:
        assert swarm.find(own.id).status == "running"


def test_nobody_cancels_the_call_of_another(shared: Coordinated, line: Line, work: Instance) -> None:
    """C-007: the same number on another connection means another call."""
    stranger = open_line(shared, "http", shared.token(work)).client
    with gate(shared.world) as barrier:
        held = line.begin("spawn_fork_instance", id=4242, instance_id=work.id, prompt="say yes")
        barrier.held()
        stranger.notify("$/cancelRequest", {"id": 4242})
        stranger.notify("notifications/cancelled", {"requestId": 4242})
        assert stranger.call("query_instances").ok["you"] == work.id
        assert not barrier.gone()
        barrier.open()
        assert held.answer().ok["fork_instance_id"]


@pytest.mark.parametrize("params", [{}, {"id": None}, {"id": 12345}, {"id": [1]}, {"id": "x" * 999}, None])
def test_cancelling_what_is_not_there_changes_nothing(line: Line, params: Any) -> None:
    """C-007"""
    line.client.notify("$/cancelRequest", params)
    line.client.notify("notifications/cancelled", params and {"requestId": params.get("id", 3)})
    assert line.client.call("query_instances").ok["you"] == "operator"


# C-008: time runs out


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_call_that_takes_too_long_is_ended_with_its_programs(transport: str) -> None:
    """C-008"""
    limit = {"MCP_TOOL_TIMEOUT": "1500"}
    with coordinated(start=transport == "http", **limit) as made:
        with made.swarm() as swarm:
            swarm.ensure_operator_token()
            own = finished_work(made.world, swarm)
        client = open_line(made, transport).client
        for _ in range(10):  # on a busy machine time may be up before the hook has begun
            with gate(made.world) as barrier:
                before = made.newest_event()
                answer = client.call("spawn_fork_instance", instance_id=own.id, prompt="say no")
                payload = check_failure(answer, "TOOL_TIMEOUT", "spawn_fork_instance")
                assert (payload["timeoutMs"], payload["error"]["details"]["timeoutMs"]) == (1500, 1500)
                if barrier.reached():
                    undone(made, barrier, before, "spawn_fork_instance", "TOOL_TIMEOUT")
                    break
        else:
            pytest.fail("the hook was never reached")
        assert client.call("query_instances").ok["you"] == "operator"


# C-009: too much at once


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_call_too_many_is_refused_at_once(transport: str) -> None:
    """C-009: what queues is refused; a read or search that is answered on the event loop takes nobody's place."""
    with coordinated(start=transport == "http", config="queue_max = 1\n") as made:
        with made.swarm() as swarm:
            swarm.ensure_operator_token()
            own = finished_work(made.world, swarm)
        line = open_line(made, transport)
        beside = line.beside()
        with gate(made.world) as barrier:
            held = line.begin("spawn_fork_instance", instance_id=own.id, prompt="say yes")
            barrier.held()
            before = made.newest_event()
            for prompt in ("say one", "say two"):
                error = beside.call("spawn_fork_instance", instance_id=own.id, prompt=prompt).error
                assert (error["code"], error["data"]["code"]) == (-32001, "QUEUE_OVERLOADED")
                assert error["data"]["details"]["queue"] == {"max": 1, "size": 1}
            assert beside.call("query_instances").ok["you"] == "operator"
            assert beside.call("search", query="x").ok["hits"] == []
            check_invalid(beside.call("search", query=7), "query")
            check_failure(beside.call("nothing_like_it"), "NOT_FOUND", "nothing_like_it")
            assert [e.error_code for e in made.events(after=before, name="tool:called")] == [
                *("QUEUE_OVERLOADED", "QUEUE_OVERLOADED", None, None, "INVALID_REQUEST", "NOT_FOUND")
            ]
            barrier.open()
            assert held.answer().ok["fork_instance_id"]
        assert "hits" in beside.call("search", query="x").ok


# Progress


def test_progress_comes_only_when_it_was_asked_for(line: Line, work: Instance) -> None:
    """C-004"""
    answer = line.client.call("spawn_fork_instance", instance_id=work.id, prompt="say silent")
    assert answer.ok
    assert answer.notifications == []


@pytest.mark.parametrize("token", ["word", 7, 0], ids=repr)
def test_progress_counts_up_is_not_too_often_and_its_last_word_is_kept(
    line: Line, work: Instance, token: Any
) -> None:
    """C-004: at most one in a quarter of a second, besides the first and the last."""
    began = time.monotonic()
    meta = {"progressToken": token}
    answer = line.client.call("spawn_fork_instance", meta, instance_id=work.id, prompt="say it")
    spent = time.monotonic() - began
    assert answer.ok
    heard = [n["params"] for n in answer.notifications]
    assert {n["method"] for n in answer.notifications} == {"notifications/progress"}
    assert all(p.keys() <= {"progressToken", "progress", "total", "message"} for p in heard)
    assert [p["progressToken"] for p in heard] == [token] * len(heard)
    counts = [p["progress"] for p in heard]
    assert counts == sorted(set(counts))
    assert 2 <= len(heard) <= spent / 0.25 + 2
    assert heard[-1]["message"] == LAST_WORD


LAST_WORD = "starting the agent"


# Beyond the matrix: stdio


def test_stdout_of_the_stdio_server_carries_the_protocol_alone(shared: Coordinated, work: Instance) -> None:
    client = shared.stdio(shared.operator_token, MCP_LOG_LEVEL="debug")
    client.write(b"this is no message\n")
    assert client.read()["error"]["code"] == -32700
    client.call("spawn_fork_instance", {"progressToken": 1}, instance_id=work.id, prompt="say loud")
    client.call("nothing_like_it")
    assert client.request("shutdown").result == {}
    client.notify("exit")
    assert client.process.wait(20) == 0
    assert client.process.stdout is not None
    left = client.process.stdout.read()
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in left.splitlines())
    said = client.stderr()
    assert all(json.loads(line)["level"] for line in said.splitlines())
    assert '"debug"' in said


def test_shutdown_and_exit_end_nothing_over_http(shared: Coordinated) -> None:
    client = shared.operator()
    assert client.request("shutdown").result == {}
    client.notify("exit")
    assert client.call("query_instances").ok["you"] == "operator"
