"""Arguments made from each tool's schema and messages of every kind: the server lives and answers in form.

Over HTTP, in both eras of the protocol, and over stdio; and no error tells a path, a token or how it is made.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swarm_mcp import registry
from tests.integration.fuzz_fixture import BOTH, JSON, Target, fuzzed, target
from tests.mcp_client import StdioClient
from tests.odd_json import Raw, encode, nearly
from tests.odd_messages import METHODS, MODERN, call, documents

__all__ = ["target"]

CALLERS = ("operator", "work", "review")


# Arguments made from each tool's schema


def schema_for(tool: str, caller: str) -> dict[str, Any]:
    """An agent that ended itself could say no more."""
    schema = json.loads(json.dumps(registry.definition(tool).input_schema))
    if tool == "update_instance_status" and caller != "operator":
        schema["properties"]["status"]["enum"] = ["running", "approved"]
    return schema


def known_to(target: Target, tool: str) -> dict[str, list[Any]]:
    ids = [target.ended.id, "work-471999-a1"]
    if tool not in ("update_instance_status", "spawn_fork_instance"):
        ids += [target.work.id, target.review.id]
    return {"instance_id": ids, "instance": ids}


CALLS = {
    "query_instances": 100,
    "search": 100,
    "send_feedback": 80,
    "create_pull_request": 80,
    "query_pulls": 80,
    "merge_pull_request": 60,
    "update_instance_status": 80,
    "spawn_review_instance": 60,
    "spawn_fork_instance": 40,
    "get_status": 60,
}


def test_every_tool_is_shot_at() -> None:
    assert CALLS.keys() == registry.tools().keys()


@pytest.mark.parametrize("tool", sorted(CALLS))
def test_no_arguments_are_too_odd_for_a_tool(target: Target, tool: str) -> None:
    target.seen.clear()
    before = target.mcp.newest_event()
    taken = 0

    @fuzzed(CALLS[tool])
    @given(data=st.data(), caller=st.sampled_from(CALLERS), modern=st.booleans())
    def shoot(data: st.DataObject, caller: str, modern: bool) -> None:
        nonlocal taken
        schema = schema_for(tool, caller)
        arguments = data.draw(nearly(schema, known=known_to(target, tool)), label="arguments")
        body, headers = call(tool, arguments, modern=modern)
        reply = target.send(caller, body, session=not modern, **headers)
        target.check(reply)
        taken += any(was_taken(message) for message in reply.messages)

    shoot()
    print(tool, dict(target.seen))
    assert target.seen["-32602"] >= 5, target.seen
    assert taken - target.seen["-32602"] >= 5, target.seen
    assert len(target.mcp.events(after=before, tool=tool)) == taken


def was_taken(message: dict[str, Any]) -> bool:
    """Whether it was looked at as a call of a tool, and so is an event."""
    return "result" in message or message.get("error", {}).get("data", {}).get("tool_name") is not None


# Messages


def modern_call(query: str) -> bytes:
    return call("search", {"query": Raw(query)}, modern=True)[0]


def deep_call(depth: int) -> bytes:
    return modern_call('{"a":' * depth + "1" + "}" * depth)


@st.composite
def headers_of(draw: st.DrawFn) -> dict[str, str]:
    """What goes with a message, mostly as it should be."""
    found = {"accept": BOTH, "content-type": JSON}
    if draw(st.integers(0, 3)) == 0:
        kinds = [JSON, "application/json; charset=utf-16", "text/plain", "", "x" * 5000]
        found["content-type"] = draw(st.sampled_from(kinds))
    if draw(st.integers(0, 3)) == 0:
        found["accept"] = draw(st.sampled_from([JSON, "text/event-stream", "*/*", "text/html", ""]))
    return found


def test_no_message_is_too_odd_over_http(target: Target) -> None:
    target.seen.clear()

    @fuzzed(300)
    @given(
        body=documents(),
        caller=st.sampled_from(["operator", "review"]),
        way=st.sampled_from(["session"] * 5 + ["no session", "modern", "modern", "foreign session"]),
        extra=headers_of(),
        method=METHODS | st.just("\xff"),
    )
    @example(deep_call(900), "operator", "modern", {}, "tools/call")  # no event could be written of it
    @example(modern_call(r'"\ud800"'), "operator", "modern", {}, "tools/call")  # nor of this
    def shoot(body: bytes, caller: str, way: str, extra: dict[str, str], method: str) -> None:
        if way == "modern":
            named = method.encode("latin-1", "replace").decode("latin-1").replace("\0", "")
            extra = extra | {"mcp-protocol-version": MODERN, "mcp-method": named, "mcp-name": "search"}
        if way == "foreign session":
            extra = extra | {"mcp-session-id": target.session("work")}
        target.check(target.send(caller, body, session=way == "session", **extra))

    shoot()
    print(dict(target.seen))
    assert min(target.seen[c] for c in ("ok", "-32700", "-32600", "-32601", "-32602", "202")) > 5, target.seen


def test_no_line_is_too_odd_over_stdio(target: Target) -> None:
    """After every line a ping is answered, and nothing but messages is written."""
    client = target.mcp.stdio(target.tokens["operator"])
    target.seen.clear()
    pings = 0

    @fuzzed(250)
    @given(line=documents())
    def shoot(line: bytes) -> None:
        nonlocal pings
        pings += 1
        last = f"ping-{pings}"
        client.write(line + b"\n" + encode({"jsonrpc": "2.0", "id": last, "method": "ping"}) + b"\n")
        answer = client.answer_to(last)
        for message in (*answer.notifications, answer.message):
            target.check_message(message)

    shoot()
    print(dict(target.seen))
    assert min(target.seen[c] for c in ("ok", "-32700", "-32600", "-32601", "-32602")) > 5, target.seen
    check_end(client)


def check_end(client: StdioClient) -> None:
    """It ends with its input, in good order, and has logged no bug."""
    assert client.process.stdin is not None
    assert client.process.stderr is not None
    client.process.stdin.close()
    assert client.process.wait(20) == 0
    for line in client.process.stderr.read().splitlines():
        assert "traceback" not in json.loads(line), line
