"""What one caller does to the calls of another: nothing, be it by cancelling, by repeating or by flooding."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.integration.forging_fixture import MODERN, NOT_SENT, REVOKED, Town, bearer, complete, facts, send, total
from tests.ledger import Row
from tests.mcp_client import HttpClient
from tests.support import wait_until


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made


# Cancelling


def cancellations(request_id: Any) -> list[dict[str, Any]]:
    found = []
    for one in (request_id, str(request_id)):
        told = {"requestId": one, "reason": "forged"}
        found.append({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": told})
        found.append({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": one}})
    return found


def test_nobody_cancels_another_s_call(town: Town, beside: ThreadPoolExecutor, gate: Path):
    call = beside.submit(town.ann_client.call, "spawn_fork_instance", id=77, prompt="say forked")
    wait_until(gate.exists, timeout=30, what="the call is under way")
    assert town.bob_client.call("query_instances", id=77).ok["you"] == town.bob.id
    thief = HttpClient(town.mcp.port, town.bob_token)
    for session in (town.bob_client.session, town.ann_client.session, None):
        thief.session = session
        for message in cancellations(77):
            thief.send(message)
    modern = [*bearer(town.bob_token), ("MCP-Protocol-Version", MODERN), ("Content-Type", "application/json")]
    modern.append(("Accept", "application/json, text/event-stream"))
    for named in ([], [("Mcp-Session-Id", str(town.ann_client.session))]):
        for message in cancellations(77):
            send(town.mcp, [*modern, *named], json.dumps(message).encode())
        headers, body = complete("query_instances", 77)
        send(town.mcp, [*headers, *bearer(town.bob_token), *named], body)
    thief.close()
    assert not call.done()
    town.open_gate()
    assert call.result(60).ok["fork_instance_id"].startswith("fork-")


def test_nobody_cancels_another_s_call_that_has_no_session(town: Town, beside: ThreadPoolExecutor, gate: Path):
    headers, body = complete("spawn_fork_instance", 78, prompt="say forked")
    call = beside.submit(send, town.mcp, [*headers, *bearer(town.ann_token)], body)
    wait_until(gate.exists, timeout=30, what="the call is under way")
    for message in cancellations(78):
        assert town.bob_client.send(message).status == 202
        modern = [(n, v) for n, v in headers if not n.startswith("Mcp-")]
        assert send(town.mcp, [*modern, *bearer(town.bob_token)], json.dumps(message).encode()).status == 202
    taken = complete("spawn_review_instance", 78, reviewer_prompt="\0")
    assert send(town.mcp, [*taken[0], *bearer(town.bob_token)], taken[1]).code == "INVALID_INPUT"
    assert not call.done()
    town.open_gate()
    assert call.result(60).ok["fork_instance_id"].startswith("fork-")


def test_its_own_caller_can_cancel_it(town: Town, beside: ThreadPoolExecutor, gate: Path):
    call = beside.submit(town.ann_client.call, "spawn_fork_instance", id=79, prompt="say forked")
    wait_until(gate.exists, timeout=30, what="the call is under way")
    same = HttpClient(town.mcp.port, town.ann_token)
    same.session = town.ann_client.session
    with closing(same):
        same.send(cancellations(79)[1])
        assert call.result(60).code == "CANCELLED"


# Repeated requests


def test_a_key_is_its_own_callers_only(town: Town):
    key = {"swarm/idempotencyKey": "the-same-for-all"}
    first = town.ann_client.call("update_instance_status", key, status="running", message="ann's own").ok
    newest = town.read.newest()
    again = town.ann_client.call("update_instance_status", key, status="running", message="ann's own").ok
    assert again == first == {"instance_id": town.ann.id, "status": "running", "previous_status": "running"}
    (event,) = town.read.calls(newest)
    assert event.metadata["details"]["replay_of_request"]
    newest = town.read.newest()
    bobs = town.bob_client.call("update_instance_status", key, status="running", message="ann's own").ok
    assert bobs["instance_id"] == town.bob.id
    other = HttpClient(town.mcp.port, town.mcp.operator_token)
    other.initialize()
    with closing(other):
        asked = {"status": "running", "message": "ann's own", "instance_id": town.bob.id}
        assert other.call("update_instance_status", key, **asked).ok["instance_id"] == town.bob.id
    for event in town.read.events(newest, like="tool:%"):
        assert "replay_of_request" not in event.metadata.get("details", {})
    with town.mcp.swarm() as swarm:
        stdio = town.mcp.stdio(swarm.rotate_token(town.new().id).token)
    own = stdio.call("update_instance_status", key, status="running", message="ann's own").ok
    assert own["instance_id"] not in (town.ann.id, town.bob.id)


# Floods


def test_a_flood_is_counted_and_stops_nobody(town: Town, beside: ThreadPoolExecutor):
    gone = town.new()
    old = town.mcp.token(gone)
    town.mcp.token(gone)
    calm = percentile(town, 20)
    newest = town.read.newest()
    sent = threading.Event()

    def flood(count: int) -> None:
        with closing(HTTPConnection("127.0.0.1", town.mcp.port, timeout=30)) as connection:
            for _ in range(count):
                connection.request("POST", "/mcp", b"{}", {"Content-Type": "application/json"})
                assert connection.getresponse().read() is not None
                sent.set()

    with town.unchanged():
        flooding = [beside.submit(flood, 100) for _ in range(5)]
        sent.wait(20)
        assert town.harm(bearer(old)).status == 401  # not lost among the others
        took = percentile(town, 20)
        for one in flooding:
            one.result(60)
        wait_until(lambda: total(of(town, newest, NOT_SENT)) >= 500, timeout=30, what="all are told of")
    events = of(town, newest, NOT_SENT)
    assert total(events) == 500
    assert len(events) < 100
    (replayed,) = of(town, newest, REVOKED)
    assert facts(replayed)[3] == gone.id
    assert took < max(2.0, 20 * calm), (took, calm)


def of(town: Town, after: int, reason: str) -> list[Row]:
    return [e for e in town.read.events(after, like="auth:%") if e.error_message == reason]


def percentile(town: Town, calls: int) -> float:
    """Seconds in which nineteen of twenty small calls of a valid agent are answered."""
    took = []
    for _ in range(calls):
        began = time.monotonic()
        assert town.ann_client.call("query_instances").ok["you"] == town.ann.id
        took.append(time.monotonic() - began)
    return sorted(took)[int(calls * 0.95) - 1]
