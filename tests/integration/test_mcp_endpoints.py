"""What the coordinator answers besides MCP: its health, its counts, and what agents report about themselves."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from swarm_core.models import Instance
from swarm_core.swarm import Swarm
from swarm_mcp import hooks
from tests.integration.mcp_fixture import Coordinated
from tests.integration.mcp_lines import coordinated
from tests.support import wait_until


@pytest.fixture(scope="module")
def shared() -> Iterator[Coordinated]:
    with coordinated() as made:
        yield made


@pytest.fixture(scope="module")
def work(shared: Coordinated) -> Instance:
    """An agent that says nothing by itself, so that only hooks tell what it does."""
    with shared.swarm() as swarm:
        made = shared.world.work(swarm, "say ready")
        return shared.world.wait_idle(swarm, made.id)


@pytest.fixture(scope="module")
def tokens(shared: Coordinated, work: Instance) -> dict[str, str]:
    with shared.swarm() as swarm:
        made = {
            "metrics": swarm.create_token("prometheus", ["metrics"]).token,
            "read": swarm.create_token("reader", ["read"]).token,
            "revoked": swarm.create_token("gone", ["metrics"]).token,
        }
        swarm.revoke_token("gone")
    return made | {"operator": shared.operator_token, "agent": shared.token(work)}


def ask(
    made: Coordinated, path: str, token: str | None = None, *, method: str = "GET", body: bytes | None = None
) -> tuple[int, dict[str, str], bytes]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", made.port, timeout=20)) as connection:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()


# Health and counts


def test_health_needs_no_token_and_tells_no_secret(shared: Coordinated, tokens: dict[str, str]) -> None:
    status, _, body = ask(shared, "/health")
    assert status == 200
    assert json.loads(body)["ok"] is True
    assert not any(token in body.decode() for token in tokens.values())


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        *((who, 401) for who in (None, "wrong", "revoked")),
        *((who, 403) for who in ("read", "agent")),
        *((who, 200) for who in ("metrics", "operator")),
    ],
)
def test_counts_are_for_who_may_see_them(
    shared: Coordinated, tokens: dict[str, str], who: str | None, expected: int
) -> None:
    status, headers, body = ask(shared, "/metrics", tokens.get(who, "wrong") if who else None)
    assert status == expected
    if expected != 200:
        refused = json.loads(body)
        assert refused["code"] == refused["error"]["code"] == {401: "UNAUTHORIZED", 403: "FORBIDDEN"}[expected]
        assert headers["www-authenticate"].startswith("Bearer")


_SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)(\{(?P<labels>[a-z]+="[^"\\\n]*"(,[a-z]+="[^"\\\n]*")*)\})? (?P<value>\S+)'
)


def read_metrics(text: str) -> tuple[dict[str, str], dict[tuple[str, str], float]]:
    """Families by name with their type, and samples by name and labels, as Prometheus reads them."""
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    samples: dict[tuple[str, str], float] = {}
    family = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in kinds
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == family
            kinds[name] = kind
        else:
            found = _SAMPLE.fullmatch(line)
            assert found, line
            suffixes = ("", "_bucket", "_sum", "_count") if kinds[family] == "histogram" else ("",)
            assert found["name"].removeprefix(family) in suffixes
            key = (found["name"], found["labels"] or "")
            assert key not in samples
            samples[key] = float(found["value"])
    return kinds, samples


def test_counts_are_text_that_prometheus_reads_and_count_every_call(
    shared: Coordinated, tokens: dict[str, str]
) -> None:
    def now() -> dict[tuple[str, str], float]:
        status, headers, body = ask(shared, "/metrics", tokens["metrics"])
        assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        kinds, samples = read_metrics(body.decode())
        assert set(kinds.values()) <= {"counter", "gauge", "histogram"}
        return samples

    before = now()
    client = shared.operator()
    for _ in range(3):
        client.call("query_instances")
    client.call('odd "name"\n')
    client.call("search", query=7)
    after = now()

    def grew(name: str, labels: str) -> float:
        return after.get((name, labels), 0) - before.get((name, labels), 0)

    assert grew("swarm_tool_calls_total", 'tool="query_instances",code="ok"') == 3
    assert grew("swarm_tool_calls_total", 'tool="unknown",code="NOT_FOUND"') == 1
    assert grew("swarm_tool_calls_total", 'tool="search",code="INVALID_REQUEST"') == 1
    assert grew("swarm_tool_call_seconds_count", 'tool="query_instances"') == 3
    assert grew("swarm_newest_event", "") >= 5
    assert after[("swarm_instances", 'status="running"')] == 1
    assert after[("swarm_sessions", "")] >= 1


def test_the_buckets_of_a_histogram_only_grow(shared: Coordinated, tokens: dict[str, str]) -> None:
    shared.operator().call("query_instances")
    _, samples = read_metrics(ask(shared, "/metrics", tokens["metrics"])[2].decode())
    buckets = [v for (n, labels), v in samples.items() if n.endswith("_bucket") and '"query_instances"' in labels]
    assert buckets == sorted(buckets)
    assert buckets[-1] == samples["swarm_tool_call_seconds_count", 'tool="query_instances"'] > 0
    assert buckets[-2] == buckets[-1], "none takes ten minutes"


def test_unknown_pages_and_methods_are_refused(shared: Coordinated, tokens: dict[str, str]) -> None:
    assert ask(shared, "/nothing", tokens["operator"])[0] == 404
    assert ask(shared, "/hooks/stop", tokens["agent"])[0] == 405
    assert ask(shared, "/metrics", tokens["metrics"], method="POST", body=b"{}")[0] == 405


# Hooks


def hook(made: Coordinated, event: str, token: str | None, body: bytes = b"{}") -> tuple[int, Any]:
    status, _, text = ask(made, f"/hooks/{event}", token, method="POST", body=body)
    return status, json.loads(text)


def seen(swarm: Swarm, instance: Instance) -> tuple[str, str, str, str]:
    found = swarm.find(instance.id)
    return found.activity, found.activity_source, found.activity_detail, found.activity_at


@pytest.mark.parametrize(
    ("event", "activity", "detail"),
    [("prompt_submit", "busy", ""), ("notification", "blocked", "may I?"), ("stop", "idle", "")],
)
def test_a_known_event_becomes_activity_with_its_source_and_time(
    shared: Coordinated, work: Instance, tokens: dict[str, str], event: str, activity: str, detail: str
) -> None:
    with shared.swarm() as swarm:
        before = swarm.context.db.now()
        assert hook(shared, event, tokens["agent"], json.dumps({"detail": detail}).encode()) == (200, {})
        found = seen(swarm, work)
        assert found[:3] == (activity, "hook", detail)
        assert before <= found[3] <= swarm.context.db.now()


def test_a_detail_is_shown_as_one_short_line(shared: Coordinated, work: Instance, tokens: dict[str, str]) -> None:
    detail = "first\nsecond\x1b[31m" + "x" * 5000
    hook(shared, "notification", tokens["agent"], json.dumps({"detail": detail}).encode())
    with shared.swarm() as swarm:
        shown = seen(swarm, work)[2]
    assert shown.isprintable()
    assert shown.startswith("first second")
    assert len(shown) <= 500


@pytest.mark.parametrize(
    ("event", "body"),
    [
        ("nothing_like_it", b"{}"),
        ("x" * 3000, b"{}"),
        ("session_end", b"{}"),
        ("%00%ff", b"{}"),
    ],
)
def test_an_event_nobody_knows_changes_nothing_and_is_no_error(
    shared: Coordinated, work: Instance, tokens: dict[str, str], event: str, body: bytes
) -> None:
    hook(shared, "stop", tokens["agent"])
    with shared.swarm() as swarm:
        before, newest = seen(swarm, work), shared.newest_event()
        assert hook(shared, event, tokens["agent"], body) == (200, {})
        assert seen(swarm, work) == before
    assert shared.newest_event() == newest


@pytest.mark.parametrize(
    "body",
    [b"garbage", b"[]", b'"text"', b"7", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' + b"[" * 100_000],
    ids=lambda b: repr(b[:12]),
)
def test_a_body_that_is_no_object_is_refused(
    shared: Coordinated, work: Instance, tokens: dict[str, str], body: bytes
) -> None:
    hook(shared, "stop", tokens["agent"])
    with shared.swarm() as swarm:
        before = seen(swarm, work)
        status, said = hook(shared, "prompt_submit", tokens["agent"], body)
        assert (status, said["code"]) == (400, "INVALID_REQUEST")
        assert seen(swarm, work) == before


@pytest.mark.parametrize("value", [7, None, [1], {"a": 1}, "\ud800", "\x00"], ids=ascii)
def test_odd_values_in_a_body_are_survived(
    shared: Coordinated, work: Instance, tokens: dict[str, str], value: Any
) -> None:
    assert hook(shared, "notification", tokens["agent"], json.dumps({"detail": value}).encode())[0] == 200
    with shared.swarm() as swarm:
        assert seen(swarm, work)[:2] == ("blocked", "hook")
    assert hook(shared, "stop", tokens["agent"]) == (200, {})


def test_no_body_at_all_is_an_empty_one(shared: Coordinated, work: Instance, tokens: dict[str, str]) -> None:
    assert hook(shared, "prompt_submit", tokens["agent"], b"") == (200, {})
    with shared.swarm() as swarm:
        assert seen(swarm, work)[0] == "busy"


def test_a_huge_body_is_refused_before_it_is_read_to_its_end(shared: Coordinated, tokens: dict[str, str]) -> None:
    """The client says that more will come than may; the answer does not wait for it."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", shared.port), timeout=20)) as connection:
        head = (
            f"POST /hooks/stop HTTP/1.1\r\nHost: 127.0.0.1:{shared.port}\r\n"
            f"Authorization: Bearer {tokens['agent']}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(head.encode())
        chunk = b"%x\r\n%b\r\n" % (1 << 16, b"x" * (1 << 16))
        for _ in range(hooks.BODY_MAX // (1 << 16) + 1):
            connection.sendall(chunk)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status in (400, 413)
        assert json.loads(answer.read())["code"] == "INVALID_REQUEST"
    assert hook(shared, "stop", tokens["agent"]) == (200, {})


@pytest.mark.parametrize(
    ("who", "expected"), [(None, 401), ("wrong", 401), ("revoked", 401), ("metrics", 403), ("read", 403)]
)
def test_only_agents_report_about_themselves(
    shared: Coordinated, work: Instance, tokens: dict[str, str], who: str | None, expected: int
) -> None:
    hook(shared, "stop", tokens["agent"])
    with shared.swarm() as swarm:
        before, newest = seen(swarm, work), shared.newest_event()
        assert hook(shared, "prompt_submit", tokens.get(who, "wrong") if who else None)[0] == expected
        assert seen(swarm, work) == before
    wait_until(lambda: shared.events(after=newest, name="auth:refused"), what="the refusal is told")


def test_the_token_of_an_agent_that_was_shut_out_reports_nothing(shared: Coordinated) -> None:
    with shared.swarm() as swarm:
        other = shared.world.work(swarm, "say ready")
        token = shared.token(other)
        assert hook(shared, "prompt_submit", token) == (200, {})
        swarm.revoke_token(other.id)
        assert hook(shared, "stop", token)[0] == 401
        assert seen(swarm, other)[:2] == ("busy", "hook")
