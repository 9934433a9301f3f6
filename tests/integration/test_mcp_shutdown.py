"""How the MCP servers end: calls under way get their answers, what does not end is undone, and nothing is left."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from swarm_core.models import Instance
from tests.integration.mcp_fixture import Coordinated
from tests.integration.mcp_lines import Gate, Held, Line, coordinated, gate, open_line
from tests.integration.review_fixture import finished_work
from tests.mcp_client import HttpClient, StdioClient
from tests.support import wait_until
from tests.world import assert_agreement

# Each way to end a stdio server.
ENDS = ("SIGTERM", "exit", "end of input")


@pytest.fixture
def served() -> Iterator[Coordinated]:
    with coordinated() as made:
        yield made


@pytest.fixture(scope="module")
def home() -> Iterator[tuple[Coordinated, Instance]]:
    """For stdio servers, which need no coordinator."""
    with coordinated(start=False) as made, made.swarm() as swarm:
        swarm.ensure_operator_token()
        yield made, finished_work(made.world, swarm)


def work_in(made: Coordinated) -> Instance:
    with made.swarm() as swarm:
        return finished_work(made.world, swarm)


def end(line: Line, way: str) -> None:
    client = line.client
    assert isinstance(client, StdioClient)
    assert client.process.stdin is not None
    if way == "SIGTERM":
        client.process.send_signal(signal.SIGTERM)
    elif way == "exit":
        client.notify("exit")
    else:
        client.process.stdin.close()


def forking(line: Line, work: Instance, barrier: Gate, **more: Any) -> Held:
    """A call that is held up in the middle, and that no earlier one can be taken for."""
    prompt = f"say {barrier.folder.name}"
    held = line.begin("spawn_fork_instance", instance_id=work.id, prompt=prompt, **more)
    barrier.held()
    return held


@contextlib.contextmanager
def listening(line: Line) -> Iterator[http.client.HTTPResponse]:
    """The stream on which a session hears what belongs to no request; it has no end of its own."""
    client = line.client
    assert isinstance(client, HttpClient)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)) as connection:
        connection.request("GET", "/mcp", headers=client.headers() | {"Accept": "text/event-stream"})
        response = connection.getresponse()
        assert response.status == 200
        yield response


def check_undone(made: Coordinated, barrier: Gate, before: int) -> None:
    assert barrier.gone()
    (told,) = made.events(after=before, tool="spawn_fork_instance")
    assert told.error_code == "SHUTTING_DOWN"
    barrier.remove()
    with made.swarm() as swarm:
        assert_agreement(made.world, swarm)
        assert told.instance_id is not None
        assert (swarm.find(told.instance_id).status, swarm.find(told.instance_id).cleaned) == ("failed", True)


def test_a_coordinator_told_to_end_answers_what_is_under_way_and_takes_nothing_new(served: Coordinated) -> None:
    work = work_in(served)
    plain, told = open_line(served, "http"), open_line(served, "http")
    late = open_line(served, "http").client
    with gate(served.world) as barrier, listening(plain) as stream:
        first = forking(plain, work, barrier)
        second = told.begin(
            "spawn_fork_instance", meta={"progressToken": 1}, instance_id=work.id, prompt="say two"
        )
        assert served.child is not None
        served.child.terminate()
        wait_until(lambda: late.call("search", query="x").code == "SHUTTING_DOWN", what="it takes no more calls")
        assert late.call("query_instances").payload["error"]["recovery_hint"]
        barrier.open()
        forks = {held.answer().ok["fork_instance_id"] for held in (first, second)}
        assert stream.read().replace(b": ping", b"").strip() == b""
        assert served.child.wait(20) == 0
    with served.swarm() as swarm:
        assert {swarm.find(f).status for f in forks} == {"running"}
        assert_agreement(served.world, swarm)
        assert swarm.events(limit=1)[0].name == "coordinator:stopped"
    assert {json.loads(line)["level"] for line in served.log.read_text().splitlines()} == {"info"}


def test_a_call_that_does_not_end_is_undone_and_told_so(served: Coordinated) -> None:
    work = work_in(served)
    line, before = open_line(served, "http"), served.newest_event()
    with gate(served.world) as barrier:
        held = forking(line, work, barrier, meta={"progressToken": 1})
        assert served.child is not None
        served.child.terminate()
        answer = held.answer()
        assert answer.code == "SHUTTING_DOWN"
        assert answer.payload["error"]["category"] == "external"
        assert not any(n["params"]["message"].startswith("undoing") for n in answer.notifications)
        assert served.child.wait(20) == 0
        check_undone(served, barrier, before)


@pytest.mark.parametrize("way", ENDS)
def test_a_stdio_server_answers_what_is_under_way(home: tuple[Coordinated, Instance], way: str) -> None:
    made, work = home
    line = open_line(made, "stdio")
    assert isinstance(line.client, StdioClient)
    with gate(made.world) as barrier:
        held = forking(line, work, barrier)
        barrier.open()
        end(line, way)
        assert held.answer().ok["fork_instance_id"]
        assert line.client.process.wait(20) == 0


def test_a_call_on_stdio_that_does_not_end_is_undone_and_told_so(home: tuple[Coordinated, Instance]) -> None:
    made, work = home
    line, before = open_line(made, "stdio"), made.newest_event()
    assert isinstance(line.client, StdioClient)
    with gate(made.world) as barrier:
        held = forking(line, work, barrier)
        end(line, "end of input")
        assert held.answer().code == "SHUTTING_DOWN"
        assert line.client.process.wait(20) == 0
        check_undone(made, barrier, before)
