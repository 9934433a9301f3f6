"""Attempts to be somebody else: every one is refused, changes nothing, and is written down."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.integration.forging_fixture import (
    NOT_SENT,
    TOOLS,
    UNKNOWN,
    Headers,
    Town,
    bearer,
    complete,
    facts,
    send,
)
from tests.mcp_client import HttpClient

# Tokens

BAD: dict[str, tuple[Callable[[str, str], Headers], str]] = {
    "none": (lambda ann, bob: [], NOT_SENT),
    "garbage": (lambda ann, bob: bearer("garbage"), UNKNOWN),
    "empty": (lambda ann, bob: [("Authorization", "")], NOT_SENT),
    "scheme-alone": (lambda ann, bob: [("Authorization", "Bearer")], NOT_SENT),
    "empty-bearer": (lambda ann, bob: [("Authorization", "Bearer ")], NOT_SENT),
    "two-headers": (lambda ann, bob: [*bearer(bob), *bearer(ann)], NOT_SENT),
    "the-same-twice": (lambda ann, bob: [*bearer(ann), *bearer(ann)], NOT_SENT),
    "two-in-one": (lambda ann, bob: [("Authorization", f"Bearer {bob}, Bearer {ann}")], UNKNOWN),
    "no-scheme": (lambda ann, bob: [("Authorization", ann)], NOT_SENT),
    "basic": (lambda ann, bob: [("Authorization", f"Basic {ann}")], NOT_SENT),
    "token-scheme": (lambda ann, bob: [("Authorization", f"Token {ann}")], NOT_SENT),
    "bearer-and-colon": (lambda ann, bob: [("Authorization", f"Bearer: {ann}")], NOT_SENT),
    "no-space": (lambda ann, bob: [("Authorization", f"Bearer{ann}")], NOT_SENT),
    "longer": (lambda ann, bob: bearer(f"{ann}x"), UNKNOWN),
    "followed": (lambda ann, bob: bearer(f"{ann} x"), UNKNOWN),
    "semicolon": (lambda ann, bob: bearer(f"{ann};"), UNKNOWN),
    "shorter": (lambda ann, bob: bearer(ann[:-1]), UNKNOWN),
    "other-case": (lambda ann, bob: bearer(ann.swapcase()), UNKNOWN),
    "in-quotes": (lambda ann, bob: bearer(f'"{ann}"'), UNKNOWN),
    "hash": (lambda ann, bob: bearer(hashlib.sha256(ann.encode()).hexdigest()), UNKNOWN),
    "null": (lambda ann, bob: bearer("null"), UNKNOWN),
    "odd-bytes": (lambda ann, bob: bearer(f"{ann}\xff\xe9"), UNKNOWN),
    "wildcard": (lambda ann, bob: bearer("%"), UNKNOWN),
    "quote": (lambda ann, bob: bearer("' OR 1=1 --"), UNKNOWN),
    "very-long": (lambda ann, bob: bearer("a" * 30_000), UNKNOWN),
    "cookie": (lambda ann, bob: [("Cookie", f"token={ann}; SWARM_TOKEN={ann}")], NOT_SENT),
    "proxy": (lambda ann, bob: [("Proxy-Authorization", f"Bearer {ann}")], NOT_SENT),
    "api-key": (lambda ann, bob: [("X-Api-Key", ann), ("X-Auth-Token", ann)], NOT_SENT),
}


@pytest.mark.parametrize("way", BAD)
def test_without_a_valid_token_nobody_calls(town: Town, way: str):
    make, reason = BAD[way]
    newest = town.read.newest()
    with town.unchanged():
        answer = town.harm(make(town.ann_token, town.bob_token))
        assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
        assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        (event,) = town.refused(newest)
    assert facts(event) == (reason, "UNAUTHORIZED", "unknown", None)
    assert event.instance_id is None
    assert town.ann_token not in json.dumps([answer.message, event.metadata, event.error_message])


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
def test_the_scheme_is_known_in_any_case(town: Town, scheme: str):
    headers, body = complete("query_instances")
    answer = send(town.mcp, [*headers, ("Authorization", f"{scheme} {town.ann_token}")], body)
    assert answer.ok["you"] == town.ann.id


def test_a_refusal_without_a_token_costs_no_session(town: Town):
    operator = town.mcp.operator_token
    before = gauge(town, operator, "swarm_sessions")
    for _ in range(5):
        client = town.mcp.client("nobody", initialize=False)
        assert client.initialize().status == 401
        assert client.session is None
    assert gauge(town, operator, "swarm_sessions") == before


def gauge(town: Town, token: str, name: str) -> float:
    text = send(town.mcp, bearer(token), b"", method="GET", path="/metrics").message["text"]
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


# Sessions


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "PUT", "OPTIONS"])
@pytest.mark.parametrize("who", ["bob", "operator", "ci"])
def test_a_session_belongs_to_who_opened_it(town: Town, who: str, method: str):
    token = {"bob": town.bob_token, "operator": town.mcp.operator_token, "ci": town.ci_token}[who]
    actor = {"bob": town.bob.id, "operator": "operator", "ci": "automation:ci"}[who]
    thief = HttpClient(town.mcp.port, token, timeout=10)
    thief.session = town.ann_client.session
    newest = town.read.newest()
    call = {"name": "update_instance_status", "arguments": {"status": "failed"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    with closing(thief), town.unchanged():
        answer = thief.post(json.dumps(message).encode(), method=method)
        assert answer.status == 404
        (event,) = town.refused(newest)
    assert facts(event) == ("session of another", "NOT_FOUND", actor, None)
    assert event.instance_id == (actor if who == "bob" else None)
    assert town.ann_client.session not in json.dumps(event.metadata)
    assert town.ann_client.call("query_instances").ok["you"] == town.ann.id


def test_a_session_without_a_token_or_with_a_bad_one_is_no_way_in(town: Town):
    for token in (None, "garbage"):
        thief = HttpClient(town.mcp.port, token, timeout=10)
        thief.session = town.ann_client.session
        newest = town.read.newest()
        with closing(thief), town.unchanged():
            assert thief.call("update_instance_status", status="failed").status == 401
            town.refused(newest)


def test_another_s_session_is_not_found_in_the_era_without_sessions_either(town: Town):
    newest = town.read.newest()
    with town.unchanged():
        named = ("Mcp-Session-Id", str(town.ann_client.session))
        answer = town.harm([*bearer(town.bob_token), named])
        assert answer.status == 404
        (event,) = town.refused(newest)
    assert facts(event) == ("session of another", "NOT_FOUND", town.bob.id, None)


def test_an_unknown_session_is_not_found(town: Town):
    lost = HttpClient(town.mcp.port, town.bob_token)
    lost.session = "0" * 32
    with closing(lost), town.unchanged():
        assert lost.call("update_instance_status", status="failed").status == 404


def test_two_session_ids_in_one_request_open_nothing_of_another(town: Town):
    headers = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]
    call = {"name": "update_instance_status", "arguments": {"status": "failed", "message": "\0"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call}).encode()
    own, other = str(town.bob_client.session), str(town.ann_client.session)
    newest = town.read.newest()
    mine, theirs = (
        send(town.mcp, [*headers, *bearer(town.bob_token), ("Mcp-Session-Id", a), ("Mcp-Session-Id", b)], body)
        for a, b in ((own, other), (other, own))
    )
    assert (mine.status, mine.code, theirs.status) == (200, "INVALID_INPUT", 404)
    assert [e.actor for e in town.read.calls(newest)] == [town.bob.id]
    assert facts(*town.refused(newest)) == ("session of another", "NOT_FOUND", town.bob.id, None)


# Names in a call

CALLER_NAMES = ["caller_id", "caller", "agent_id", "from_instance", "actor", "principal", "sender", "review_id"]


@pytest.mark.parametrize("tool", TOOLS)
def test_no_tool_takes_the_name_of_its_caller(town: Town, tool: str):
    for name in [*CALLER_NAMES, "caller_type", "agent_name", "token", "by_person", "epoch"]:
        newest = town.read.newest()
        with town.unchanged():
            answer = town.bob_client.call(tool, **TOOLS[tool], **{name: town.ann.id})
        assert (answer.error["code"], answer.code) == (-32602, "INVALID_REQUEST"), name
        (event,) = town.read.calls(newest)
        assert (event.name, event.actor, event.error_code) == ("tool:called", town.bob.id, "INVALID_REQUEST")
        assert (event.tool_name, event.instance_id) == (tool, town.bob.id)
        assert name in event.metadata["arguments"]


WITHOUT_TARGET = ("query_instances", "query_pulls", "search", "get_status")


@pytest.mark.parametrize("tool", [t for t in TOOLS if t not in WITHOUT_TARGET])
def test_naming_another_as_the_target_is_denied(town: Town, tool: str):
    newest = town.read.newest()
    with town.unchanged():
        assert town.bob_client.call(tool, **TOOLS[tool] | {"instance_id": town.ann.id}).code == "FORBIDDEN"
    (event,) = town.read.calls(newest)
    assert (event.name, event.actor, event.instance_id) == ("tool:denied", town.bob.id, town.ann.id)
    assert event.metadata["rule"] == "default-deny"


def test_what_a_client_says_of_itself_beside_the_call_does_not_count(town: Town):
    said: dict[str, Any] = dict.fromkeys([*CALLER_NAMES, "instance_id", "swarm/principal", "sub"], town.ann.id)
    client = HttpClient(town.mcp.port, town.bob_token)
    info = {"name": town.ann.id, "title": "operator", "version": "1"}
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"experimental": {"swarm": said}},
        "clientInfo": info,
    }
    with closing(client), town.unchanged():
        assert client.request("initialize", params | {"_meta": said, **said}).result
        newest = town.read.newest()
        assert client.call("query_instances", meta=said).ok["you"] == town.bob.id
        request = {"name": "query_instances", "arguments": {}, "_meta": said, **said}
        assert client.request("tools/call", request).ok["you"] == town.bob.id
        refusal = client.call("update_instance_status", meta=said, status="failed", instance_id=town.ann.id)
        assert refusal.code == "FORBIDDEN"
    events = town.read.calls(newest, 3)
    assert {e.actor for e in events} == {town.bob.id}
    assert [e.name for e in events] == ["tool:called", "tool:called", "tool:denied"]


CLAIMS = [
    "X-Swarm-Instance",
    "X-SWARM-TOKEN",
    "X-Swarm",
    "Swarm-Instance",
    "X-Instance-Id",
    "X-Instance",
    "X-Agent-Id",
    "X-Agent-Name",
    "X-Caller-Id",
    "X-Caller",
    "X-Principal",
    "X-User",
    "X-User-Id",
    "X-Forwarded-User",
    "X-Remote-User",
    "Remote-User",
    "X-Auth-Request-User",
]


def test_a_header_that_names_a_caller_is_refused(town: Town):
    newest = town.read.newest()
    with town.unchanged():
        for name in CLAIMS:
            answer = town.harm([*bearer(town.bob_token), (name, town.ann.id)])
            assert (answer.status, answer.code) == (400, "INVALID_REQUEST"), name
        events = town.refused(newest, len(CLAIMS))
    assert {facts(e) for e in events} == {("claimed identity", "INVALID_REQUEST", town.bob.id, None)}
    assert {e.metadata["claim"] for e in events} == {f"the header {name.lower()}" for name in CLAIMS}
    assert town.ann.id not in json.dumps([e.metadata for e in events])


IGNORED = ["X-Forwarded-For", "Forwarded", "From", "Via", "Cookie", "X-Api-Key", "X-Auth-Token", "X-Real-Ip"]


def test_other_headers_are_not_read(town: Town):
    headers, body = complete("query_instances")
    said = [(name, f"{town.ann.id} {town.ann_token}") for name in IGNORED]
    assert send(town.mcp, [*headers, *bearer(town.bob_token), *said], body).ok["you"] == town.bob.id


@pytest.mark.parametrize("page", ["/mcp", "/hooks/stop"])
@pytest.mark.parametrize(
    "query", ["instance_id={id}", "caller_id={id}", "access_token={token}", "token={token}&x=1"]
)
def test_a_query_string_is_refused(town: Town, query: str, page: str):
    asked = query.format(id=town.ann.id, token=town.ann_token)
    for own in (bearer(town.ci_token), []):
        newest = town.read.newest()
        with town.unchanged():
            answer = town.harm(own, path=f"{page}?{asked}")
            assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
            (event,) = town.refused(newest)
        assert facts(event)[:3] == ("claimed identity", "INVALID_REQUEST", "automation:ci" if own else "unknown")
        assert town.ann.id not in json.dumps(event.metadata)


PATHS = [
    "/mcp/",
    "/mcp/{id}",
    "/{id}/mcp",
    "//mcp",
    "/MCP",
    "/mcp;{id}",
    "/mcp/../mcp/{id}",
    "/mcp%2f{id}",
    "/",
    "/x",
]


@pytest.mark.parametrize("path", [*PATHS, "/hooks/stop/{id}", "/hooks/", "/instances/{id}"])
def test_no_path_leads_to_another(town: Town, path: str):
    newest = town.read.newest()
    with town.unchanged():
        answer = town.harm(bearer(town.bob_token), path=path.format(id=town.ann.id))
        assert answer.status == 404
    assert not [e for e in town.read.events(newest) if e.tool_name]


def test_an_escaped_path_is_the_same_door(town: Town):
    headers, body = complete("query_instances")
    assert send(town.mcp, [*headers, *bearer(town.bob_token)], body, path="/%6dcp").ok["you"] == town.bob.id
    with town.unchanged():
        assert town.harm([], path="/%6dcp").status == 401


def test_a_hook_is_of_its_sender_whatever_its_body_says(town: Town):
    body = json.dumps({"instance_id": town.ann.id, "session_id": town.ann.conversation_id, "detail": "forged"})
    with town.mcp.swarm() as swarm:
        before = swarm.find(town.ann.id)
        answer = send(town.mcp, bearer(town.bob_token), body.encode(), path="/hooks/prompt_submit")
        assert answer.status == 200
        assert (swarm.find(town.bob.id).activity_source, swarm.find(town.bob.id).activity_detail) == (
            "hook",
            "forged",
        )
        after = swarm.find(town.ann.id)
    assert (after.activity, after.activity_at) == (before.activity, before.activity_at)


# Browsers


HOSTS = ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example:{port}", ""]


PAGES = {"/mcp": "POST", "/metrics": "GET", "/health": "GET", "/hooks/stop": "POST"}


@pytest.mark.parametrize("host", HOSTS)
def test_under_another_name_nothing_is_served(town: Town, host: str):
    newest = town.read.newest()
    with town.unchanged():
        named = host.format(port=town.mcp.port)
        assert town.harm(bearer(town.ann_token), host=named).status == 403
        (event,) = town.refused(newest)
    assert facts(event)[:2] == ("host of another name", "FORBIDDEN")
    assert event.metadata["named"] == named


def test_under_another_name_no_page_is_served(town: Town):
    newest = town.read.newest()
    with town.unchanged():
        for page, method in PAGES.items():
            assert town.harm(bearer(town.ann_token), path=page, method=method, host="evil.example").status == 403
        town.refused(newest, len(PAGES))


def test_without_a_host_or_with_two_nothing_is_served(town: Town):
    newest = town.read.newest()
    own = f"127.0.0.1:{town.mcp.port}"
    with town.unchanged():
        assert town.harm(bearer(town.ann_token), host=None).status == 400
        assert town.harm([*bearer(town.ann_token), ("Host", own)], host=own).status in (400, 403)
        town.refused(newest, 2)


ORIGINS = [
    "http://evil.example",
    "https://evil.example:{port}",
    "null",
    "",
    "file://",
    "http://localhost:3000",
    "http://127.0.0.1",
    "https://127.0.0.1:{port}",
    "http://127.0.0.1:{port}.evil.example",
    "http://evil.example/127.0.0.1:{port}",
    "chrome-extension://abcdef",
]


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_page_of_another_site_reaches_nothing(town: Town, origin: str):
    named = origin.format(port=town.mcp.port)
    newest = town.read.newest()
    with town.unchanged():
        assert town.harm([*bearer(town.ann_token), ("Origin", named)]).status == 403
        (event,) = town.refused(newest)
    assert facts(event)[:2] == ("page of another site", "FORBIDDEN")
    assert event.metadata["named"] == named


def test_a_page_of_another_site_reaches_no_page_and_may_not_even_ask(town: Town):
    said = [*bearer(town.ann_token), ("Origin", "http://evil.example"), ("Access-Control-Request-Method", "POST")]
    newest = town.read.newest()
    with town.unchanged():
        for page, method in [*PAGES.items(), ("/mcp", "OPTIONS")]:
            answer = town.harm(said, path=page, method=method)
            assert answer.status == 403
            assert not [name for name in answer.headers if name.startswith("access-control")]
        town.refused(newest, len(PAGES) + 1)


def test_two_origins_are_not_better_than_one(town: Town):
    own, other = f"http://127.0.0.1:{town.mcp.port}", "http://evil.example"
    with town.unchanged():
        for said in ((own, other), (other, own)):
            assert town.harm([*bearer(town.ann_token), *[("Origin", o) for o in said]]).status == 403


def test_our_own_origin_is_let_through(town: Town):
    headers, body = complete("query_instances")
    for host in ("127.0.0.1", "localhost"):
        said = [("Origin", f"http://{host}:{town.mcp.port}")]
        assert send(town.mcp, [*headers, *bearer(town.ann_token), *said], body).ok["you"] == town.ann.id
