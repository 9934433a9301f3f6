"""The life of a token: whose calls it makes, how it ends, and where it is never written down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from swarm_core.models import Instance
from swarm_core.store import tokens
from tests.integration.forging_fixture import (
    HARM,
    NOT_SENT,
    REVOKED,
    TOOLS,
    Town,
    bearer,
    complete,
    environment,
    facts,
    send,
    total,
)
from tests.integration.mcp_fixture import Coordinated
from tests.integration.review_fixture import finished_work
from tests.ledger import Row
from tests.mcp_client import Answer, HttpClient, StdioClient
from tests.support import git_run, wait_until


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made


# The ends of tokens


@pytest.mark.parametrize("status", ["terminated", "failed"])
def test_an_agent_that_ends_itself_has_no_token_from_then_on_whatever_is_in_flight(
    town: Town, beside: ThreadPoolExecutor, status: str
) -> None:
    instance = town.new()
    token = town.mcp.token(instance)
    clients = [town.mcp.client(token) for _ in range(8)]
    ended = threading.Event()

    def ask(client: HttpClient) -> list[tuple[bool, Answer]]:
        """Every call until one is refused, with whether it was begun after the end was answered."""
        asked: list[tuple[bool, Answer]] = []
        while len(asked) < 2000 and (not asked or asked[-1][1].status == 200):
            after = ended.is_set()
            asked.append((after, client.call("update_instance_status", status="running", message="going on")))
        return asked

    asking = [beside.submit(ask, client) for client in clients[1:]]
    assert clients[0].call("update_instance_status", status=status).ok["status"] == status
    ended.set()
    series = [future.result(60) for future in asking]
    assert {answers[-1][1].status for answers in series} == {401}
    assert {answer.status for answers in series for after, answer in answers if after} <= {401}
    assert clients[0].call("spawn_fork_instance").status == 401
    changes = [e for e in town.mcp.events() if e.instance_id == instance.id and e.name == "instance:status"]
    assert changes[-1].status_to == status
    last = max(e.id for e in town.mcp.events() if e.tool_name and e.success and e.actor == instance.id)
    assert last <= next(e.id for e in town.mcp.events() if e.tool_name and e.id > changes[-1].id)


def test_a_stopped_agent_s_token_ends(town: Town):
    instance = town.new()
    token = town.mcp.token(instance)
    client = town.mcp.client(token)
    assert client.call("query_instances").ok["you"] == instance.id
    with town.mcp.swarm() as swarm:
        swarm.stop(instance.id)
    newest = town.read.newest()
    with town.unchanged():
        assert client.call("update_instance_status", status="running").status == 401
        assert town.harm(bearer(token)).status == 401
        events = town.refused(newest, 2)
    assert {facts(e) for e in events} == {(REVOKED, "UNAUTHORIZED", "unknown", instance.id)}
    assert {e.instance_id for e in events} == {instance.id}


def test_a_token_of_an_earlier_start_ends_with_it(town: Town):
    instance = town.new()
    first = town.mcp.token(instance)
    with town.mcp.swarm() as swarm:
        again = swarm.restart(instance.id)
        assert again.epoch == instance.epoch + 1
    newest = town.read.newest()
    with town.unchanged():
        assert town.harm(bearer(first)).status == 401
        (event,) = town.refused(newest)
    assert facts(event) == (REVOKED, "UNAUTHORIZED", "unknown", instance.id)
    assert town.mcp.agent(instance).call("query_instances").ok["you"] == instance.id


def test_a_token_that_was_not_revoked_is_still_bound_to_its_start(town: Town):
    instance = town.new()
    with town.mcp.swarm() as swarm, swarm.context.db.write():
        late = tokens.issue(swarm.context.db, instance.id, instance.epoch - 1)
    newest = town.read.newest()
    with town.unchanged():
        assert town.harm(bearer(late)).status == 401
        (event,) = town.refused(newest)
    assert facts(event) == ("the token is of an earlier start", "UNAUTHORIZED", "unknown", instance.id)


def test_after_rotation_the_old_token_is_refused_and_the_session_goes_on_with_the_new(town: Town):
    instance = town.new()
    old = town.mcp.token(instance)
    client = town.mcp.client(old)
    session = client.session
    with town.mcp.swarm() as swarm:
        new = swarm.rotate_token(instance.id).token
    newest = town.read.newest()
    with town.unchanged():
        assert client.call("update_instance_status", status="failed").status == 401
        (event,) = town.refused(newest)
    assert facts(event) == (REVOKED, "UNAUTHORIZED", "unknown", instance.id)
    assert event.instance_id == instance.id
    client.token = new
    assert client.call("query_instances").ok["you"] == instance.id
    assert client.session == session


def test_a_rotated_or_revoked_automation_is_refused_and_named(town: Town):
    with town.mcp.swarm() as swarm:
        first = swarm.create_token("nightly", ["read", "status"]).token
        second = swarm.rotate_token("nightly").token
    client = town.mcp.client(second)
    assert client.call("query_instances").ok["you"] == "automation:nightly"
    with town.mcp.swarm() as swarm:
        swarm.revoke_token("nightly")
    newest = town.read.newest()
    with town.unchanged():
        assert client.call("query_instances").status == 401
        assert town.harm(bearer(first)).status == 401
        events = town.refused(newest, 2)
    assert {facts(e) for e in events} == {(REVOKED, "UNAUTHORIZED", "unknown", "nightly")}
    assert {e.instance_id for e in events} == {None}


def test_the_operator_s_old_token_is_refused(town: Town):
    old = town.mcp.operator_token
    with town.mcp.swarm() as swarm:
        new = swarm.rotate_token("operator").token
    newest = town.read.newest()
    with town.unchanged():
        assert town.harm(bearer(old)).status == 401
        (event,) = town.refused(newest)
    assert facts(event)[3] == "operator"
    assert town.mcp.client(new).call("query_instances").ok["you"] == "operator"


@pytest.mark.parametrize("end", ["revoked", "rotated"])
def test_an_open_stream_ends_soon_after_its_token(town: Town, end: str):
    instance = town.new()
    token = town.mcp.token(instance)
    client = town.mcp.client(token)
    with listening(client) as stream:
        with town.mcp.swarm() as swarm:
            new = "" if end == "revoked" else swarm.rotate_token(instance.id).token
            if end == "revoked":
                swarm.revoke_token(instance.id)
        assert stream.read() == b""  # the connection's timeout bounds it
    if end == "rotated":
        client.token = new
        assert client.call("query_instances").ok["you"] == instance.id
        with listening(client):
            pass


@contextmanager
def listening(client: HttpClient) -> Iterator[HTTPResponse]:
    with closing(HTTPConnection("127.0.0.1", client.port, timeout=8)) as connection:
        connection.request("GET", "/mcp", headers=client.headers() | {"Accept": "text/event-stream"})
        response = connection.getresponse()
        assert response.status == 200
        yield response


# The life of an instance's token


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_agent_s_own_call_reaches_the_server_as_its_own(town: Town):
    newest = town.read.newest()
    instance = town.new('call query_instances {}\ncall update_instance_status {"status": "running"}\nsay asked')
    wait_until(lambda: len(calls_of(town, newest, instance.id)) == 2, timeout=30, what="both calls")
    assert [(e.tool_name, e.success) for e in calls_of(town, newest, instance.id)] == [
        ("query_instances", True),
        ("update_instance_status", True),
    ]
    assert {e.instance_id for e in calls_of(town, newest, instance.id)} == {instance.id}
    assert instance.pid is not None
    mine = environment(instance.pid)
    assert mine["SWARM_INSTANCE"] == instance.id
    assert town.mcp.client(mine["SWARM_TOKEN"]).call("query_instances").ok["you"] == instance.id
    with town.mcp.swarm() as swarm:
        again = swarm.restart(instance.id)
    assert again.pid is not None
    new = environment(again.pid)["SWARM_TOKEN"]
    assert town.harm(bearer(mine["SWARM_TOKEN"])).status == 401
    assert town.mcp.client(new).call("query_instances").ok["you"] == instance.id


def calls_of(town: Town, after: int, actor: str) -> list[Row]:
    return [e for e in town.read.events(after, like="tool:%") if e.actor == actor]


def _stop(town: Town, instance: Instance, client: HttpClient) -> None:
    with town.mcp.swarm() as swarm:
        swarm.stop(instance.id)


def _clean(town: Town, instance: Instance, client: HttpClient) -> None:
    with town.mcp.swarm() as swarm:
        swarm.stop(instance.id)
        swarm.clean(instance.id)


def _crash(town: Town, instance: Instance, client: HttpClient) -> None:
    assert instance.pid is not None
    os.kill(instance.pid, signal.SIGKILL)


def _end_well(town: Town, instance: Instance, client: HttpClient) -> None:
    assert instance.pid is not None
    os.kill(instance.pid, signal.SIGTERM)


def _session_killed(town: Town, instance: Instance, client: HttpClient) -> None:
    socket = str(town.mcp.world.settings.tmux_socket)
    subprocess.run(["tmux", "-S", socket, "kill-session", "-t", instance.id], check=True, timeout=20)


def _says_done(town: Town, instance: Instance, client: HttpClient) -> None:
    assert client.call("update_instance_status", status="terminated").ok["status"] == "terminated"


def _says_failed(town: Town, instance: Instance, client: HttpClient) -> None:
    assert client.call("update_instance_status", status="failed", message="no way").ok["status"] == "failed"


def _a_person_ends_it(town: Town, instance: Instance, client: HttpClient) -> None:
    operator = town.mcp.operator()
    asked = {"instance_id": instance.id, "status": "failed"}
    assert operator.call("update_instance_status", **asked).ok["status"] == "failed"


ENDS = [_stop, _clean, _crash, _end_well, _session_killed, _says_done, _says_failed, _a_person_ends_it]


@pytest.mark.parametrize("end", ENDS, ids=lambda f: f.__name__.strip("_"))
def test_however_an_agent_ends_its_token_ends_with_it(
    town: Town, end: Callable[[Town, Instance, HttpClient], None]
):
    instance = town.new()
    token = town.mcp.token(instance)
    client = town.mcp.client(token)
    end(town, instance, client)
    wait_until(lambda: valid_tokens(town, instance.id) == 0, timeout=20, what="the token is revoked")
    newest = town.read.newest()
    assert town.harm(bearer(token)).status == 401
    (event,) = town.refused(newest)
    assert facts(event) == (REVOKED, "UNAUTHORIZED", "unknown", instance.id)


def tokens_of(town: Town, name: str) -> list[dict[str, Any]]:
    return [r for r in town.read.state()["tokens"] if r["name"] == name]


def valid_tokens(town: Town, name: str) -> int:
    return len([r for r in tokens_of(town, name) if r["revoked_at"] is None])


def spawned_at_the_gate(town: Town, beside: ThreadPoolExecutor, gate: Path) -> tuple[Future[Answer], Instance]:
    """A fork that is being started and has no worktree yet."""
    with town.mcp.swarm() as swarm:
        known = {i.id for i in swarm.instances(include_cleaned=True)}
    asked = {"instance_id": town.ann.id, "prompt": "say forked"}
    call = beside.submit(town.mcp.operator().call, "spawn_fork_instance", **asked)
    wait_until(gate.exists, timeout=30, what="the worktree is being made")
    with town.mcp.swarm() as swarm:
        (fork,) = [i for i in swarm.instances() if i.id not in known]
    return call, fork


def test_a_start_that_fails_leaves_no_token(town: Town, beside: ThreadPoolExecutor, gate: Path):
    call, fork = spawned_at_the_gate(town, beside, gate)
    (town.mcp.world.settings.instance_dir(fork.id) / "order" / "in-the-way").mkdir(parents=True)
    town.open_gate()
    assert call.result(60).code not in ("", "FORBIDDEN")
    assert [r["revoked_at"] is None for r in tokens_of(town, fork.id)] == [False]


def test_who_is_ended_while_it_starts_keeps_no_token(town: Town, beside: ThreadPoolExecutor, gate: Path):
    call, fork = spawned_at_the_gate(town, beside, gate)
    asked = {"instance_id": fork.id, "status": "failed", "message": "not needed any more"}
    assert town.mcp.operator().call("update_instance_status", **asked).ok["status"] == "failed"
    town.open_gate()
    call.result(60)
    wait_until(lambda: fork.id not in town.mcp.world.sessions(), timeout=20, what="its session ended")
    wait_until(lambda: valid_tokens(town, fork.id) == 0, what="its token is revoked")


# Over stdio


def start_stdio(town: Town, **environ: str) -> StdioClient:
    client = StdioClient(town.mcp.world.environ | environ)
    town.mcp.clients.append(client)
    return client


def test_a_stdio_server_starts_for_nobody_but_its_token_s_owner(town: Town):
    gone = town.new()
    revoked = town.mcp.token(gone)
    with town.mcp.swarm() as swarm:
        swarm.stop(gone.id)
    operator = town.mcp.operator_token
    ways: dict[tuple[str, str | None], dict[str, str]] = {
        (NOT_SENT, None): {},
        (REVOKED, gone.id): {"SWARM_TOKEN": revoked, "SWARM_INSTANCE": gone.id},
        ("environment of another", town.bob.id): {
            "SWARM_TOKEN": town.bob_token,
            "SWARM_INSTANCE": town.ann.id,
        },
        ("environment of another", "operator"): {"SWARM_TOKEN": operator, "SWARM_INSTANCE": town.ann.id},
    }
    newest = town.read.newest()
    with town.unchanged():
        clients = [start_stdio(town, **environ) for environ in ways.values()]
        for client in clients:
            out, err = client.process.communicate(timeout=60)
            assert (client.process.returncode, out) == (1, b"")
            assert "UNAUTHORIZED" in err.decode()
            assert not any(t.encode() in err for t in (revoked, operator, town.bob_token))
        events = town.refused(newest, len(ways))
    assert {(e.error_message, e.metadata.get("belonged_to")) for e in events} == set(ways)
    assert {e.metadata["transport"] for e in events} == {"stdio"}
    claimed = {(e.metadata["claimed"], e.metadata.get("belonged_to")) for e in events}
    assert {(town.ann.id, town.bob.id), (town.ann.id, "operator"), ("", None)} <= claimed


def test_a_stdio_server_whose_token_ends_answers_no_more_calls(town: Town):
    instance = town.new()
    client = town.mcp.stdio(town.mcp.token(instance), SWARM_INSTANCE=instance.id)
    assert client.call("query_instances").ok["you"] == instance.id
    with town.mcp.swarm() as swarm:
        swarm.revoke_token(instance.id)
    newest = town.read.newest()
    asks = 60
    with town.unchanged():
        for tool, arguments in TOOLS.items():
            assert client.call(tool, **arguments).code == "UNAUTHORIZED", tool
        for method in ("tools/list", "resources/list", "prompts/list"):
            assert client.request(method).code == "UNAUTHORIZED"
        read_one = client.request("resources/read", {"uri": "swarm://instances"})
        assert read_one.code == "UNAUTHORIZED"
        for _ in range(asks - len(TOOLS) - 4):
            client.call("query_instances")
        assert client.close() == 0
        assert total(town.read.events(newest, like="auth:%")) == asks
    events = town.read.events(newest, like="auth:%")
    assert {facts(e)[::3] for e in events} == {(REVOKED, instance.id)}
    assert len(events) < asks / 2
    assert not [e for e in town.read.events(newest) if e.tool_name]


# Where tokens are not


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_token_is_written_down_nowhere(stopped_mcp: Coordinated):
    mcp = stopped_mcp
    mcp.start(MCP_LOG_LEVEL="debug")
    with mcp.swarm() as swarm:
        agent = finished_work(mcp.world, swarm, "call query_instances {}\nsay asked")
        other = finished_work(mcp.world, swarm)
        mcp.world.wait_idle(swarm, agent.id)
        ci = swarm.create_token("ci", ["read", "metrics"]).token
        gone = swarm.create_token("gone", ["read"]).token
        swarm.revoke_token("gone")
    assert agent.pid is not None
    own = environment(agent.pid)["SWARM_TOKEN"]
    secrets = {own, ci, gone, mcp.operator_token, mcp.token(other)}
    heard = [misuse(mcp, token) for token in secrets]
    stdio = mcp.stdio(own)
    assert stdio.call("query_instances").ok["you"] == agent.id
    heard.append(str(stdio.call("update_instance_status", status="failed", token=own).message))
    processes = argv_of_all()
    stdio.process.stdin.close()
    heard.append(stdio.process.stderr.read().decode())
    heard.append(send(mcp, bearer(mcp.operator_token), b"", method="GET", path="/metrics").message["text"])
    tmux = ["tmux", "-S", str(mcp.world.settings.tmux_socket)]
    for asked in (["show-environment", "-g"], ["show-environment", "-t", agent.id], ["show-messages"]):
        heard.append(subprocess.run([*tmux, *asked], capture_output=True, text=True, check=False).stdout)
    heard.append(git_run(mcp.world.repo, "log", "--all", "--format=%B%an%ae"))
    assert mcp.stop() == 0
    everywhere = b"".join([*processes, mcp.log.read_bytes(), *(text.encode() for text in heard)])
    files = {p for root in (mcp.world.home, mcp.world.repo, mcp.folder) for p in root.rglob("*") if p.is_file()}
    assert mcp.world.settings.database_path in files
    assert mcp.log in files
    for token in secrets:
        assert token.encode() not in everywhere
        holding = {p.name for p in files if token.encode() in p.read_bytes()}
        assert holding <= {"operator.token"}


def misuse(mcp: Coordinated, token: str) -> str:
    """Send the token in every wrong place; all that was answered."""
    answers = [
        send(mcp, bearer(f"{token}x")),
        send(mcp, [("Authorization", f"Basic {token}")]),
        send(mcp, [("Cookie", token), ("X-Api-Key", token)]),
        send(mcp, [("X-Swarm-Token", token)]),
        send(mcp, [("Origin", f"http://{token[:8]}.example"), *bearer(token)]),
        send(mcp, [], path=f"/mcp?access_token={token}"),
        send(mcp, [], path=f"/mcp/{token}"),
        send(mcp, [], path=f"/hooks/{token}"),
        send(mcp, bearer(token), path=f"/hooks/{token}"),
        send(mcp, bearer(token), b"{", path="/hooks/stop"),
        send(mcp, [*bearer(token), ("Mcp-Session-Id", "0" * 32)], HARM),
    ]
    headers, body = complete("update_instance_status", status="nonsense", token=token)
    answers.append(send(mcp, [*headers, *bearer(token)], body))
    return "\n".join(f"{a.status} {a.headers} {a.message}" for a in answers)


def argv_of_all() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue
    return found
