"""The coordinator as a process: alone on its database, watching, answering, ending."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from swarm_core import config, process
from swarm_core.models import Event, Instance
from tests.support import wait_until
from tests.world import World


@dataclass
class Coordinators:
    """The coordinators a test starts in its world."""

    world: World
    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def settings(self) -> config.Settings:
        return self.world.settings

    def start(self, **environ: str) -> subprocess.Popen[bytes]:
        log = self.folder / f"log-{len(self.started)}"
        with log.open("wb") as sink:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "swarm_mcp"],
                env=self.world.environ | {"MCP_SERVER_PORT": "0"} | environ,
                stdout=subprocess.PIPE,
                stderr=sink,
            )
        self.started.append(child)
        return child

    def log(self) -> list[dict[str, Any]]:
        """The lines of the one started last."""
        path = self.folder / f"log-{len(self.started) - 1}"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def run(self, **environ: str) -> process.Card:
        """Start one and wait until it is healthy."""

        def healthy() -> process.Card | None:
            assert child.poll() is None, self.log()
            card = process.running(self.settings, process.COORDINATOR)
            return card if card and card.port and get(card.port)[0] == 200 else None

        child = self.start(**environ)
        card = wait_until(healthy, timeout=30, what="the coordinator is healthy")
        assert isinstance(card, process.Card)
        return card

    def finished(self, **environ: str) -> tuple[int, str]:
        """Exit code and error code of one that ends by itself."""
        code = self.start(**environ).wait(20)
        return code, self.log()[-1]["error"]["code"]


@pytest.fixture
def coordinators(world: World, tmp_path: Path) -> Iterator[Coordinators]:
    coordinators = Coordinators(world, tmp_path)
    yield coordinators
    for child in coordinators.started:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def get(port: int, path: str = "/health", *, host: str | None = None) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.putrequest("GET", path, skip_host=True)
            for one in [f"127.0.0.1:{port}"] if host is None else filter(None, [host]):
                connection.putheader("Host", one)
            connection.endheaders()
            response = connection.getresponse()
            body = response.read()
        except OSError:
            return 0, {}
    return response.status, json.loads(body) if body.startswith(b"{") else {}


def exited(world: World, instance_id: str) -> Event:
    """The event that tells of the end, once it is there."""

    def told() -> Event | None:
        with world.open() as swarm:
            found = [e for e in swarm.events(instance_id=instance_id) if e.name == "instance:exited"]
        return found[-1] if found else None

    event = wait_until(told, timeout=20, what="the death is recorded")
    assert isinstance(event, Event)
    return event


def test_health_says_who_answers_and_when_it_last_looked(coordinators: Coordinators) -> None:
    card = coordinators.run()
    status, body = get(card.port)
    assert status == 200
    assert set(body) == {
        *("ok", "role", "pid", "version", "database", "started_at", "last_look_age_s", "instances", "problem")
    }
    assert (body["ok"], body["role"], body["pid"], body["instances"]) == (True, "coordinator", card.pid, 0)
    assert body["database"] == coordinators.settings.database_path.name
    assert 0 <= body["last_look_age_s"] < 10


def test_the_run_file_tells_the_port_that_was_taken(coordinators: Coordinators) -> None:
    card = coordinators.run()
    told = json.loads((coordinators.settings.home / "run" / "coordinator.json").read_text())
    assert told["port"] == card.port != 0
    assert told["pid"] == card.pid == coordinators.started[0].pid


def test_a_second_coordinator_refuses_to_start_and_names_the_holder(coordinators: Coordinators) -> None:
    first = coordinators.run()
    assert coordinators.finished() == (1, "COORDINATOR_RUNNING")
    assert coordinators.log()[-1]["error"]["details"]["holder"]["pid"] == first.pid
    assert get(first.port)[0] == 200


def test_a_second_home_cannot_take_the_same_database(coordinators: Coordinators, short_tmp: Path) -> None:
    coordinators.run()
    database = str(coordinators.settings.database_path)
    second = coordinators.start(SWARM_HOME=str(short_tmp / "other"), MCP_DATABASE_PATH=database)
    assert second.wait(5) == 1


def test_a_taken_port_is_reported_and_leaves_nothing_behind(coordinators: Coordinators) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert coordinators.finished(MCP_SERVER_PORT=str(port)) == (1, "PORT_IN_USE")
    assert process.running(coordinators.settings, process.COORDINATOR) is None
    assert not (coordinators.settings.home / "run" / "coordinator.json").exists()


def test_a_bad_setting_is_an_expected_failure(coordinators: Coordinators) -> None:
    assert coordinators.finished(MCP_LOG_LEVEL="loud") == (1, "INVALID_SETTING")


def test_a_bug_ends_with_3_and_its_traceback_in_the_log() -> None:
    program = "import sys; from swarm_core import process; sys.exit(process.run(lambda: print(1 / 0)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20, check=False)
    assert done.returncode == 3
    assert "ZeroDivisionError" in json.loads(done.stderr)["traceback"]
    assert done.stdout == b""


def test_only_requests_for_our_own_name_are_answered(coordinators: Coordinators) -> None:
    port = coordinators.run().port
    for host in (
        "evil.example",
        f"evil.example:{port}",
        f"127.0.0.1.evil.example:{port}",
        "127.0.0.1:1",
        "127.0.0.1",
    ):
        assert get(port, host=host)[0] == 403, host
    assert get(port, host="")[0] == 400
    for host in (f"localhost:{port}", f"[::1]:{port}", f"LOCALHOST:{port}"):
        assert get(port, host=host)[0] == 200, host


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_end_it_leaves_in_good_order(coordinators: Coordinators, number: int) -> None:
    coordinators.run()
    child = coordinators.started[0]
    child.send_signal(number)
    assert child.wait(20) == 0
    assert child.stdout is not None
    assert child.stdout.read() == b""
    assert {line["level"] for line in coordinators.log()} == {"info"}
    assert not (coordinators.settings.home / "run" / "coordinator.json").exists()
    assert process.running(coordinators.settings, process.COORDINATOR) is None
    with coordinators.world.open() as swarm:
        told = [e.name for e in swarm.events() if e.name.startswith("coordinator:")]
        assert told == ["coordinator:started", "coordinator:stopped"]


@pytest.mark.parametrize(
    ("prompt", "killed_by", "code", "number", "status"),
    [
        ("say last words\nwait 1\nexit 3", None, 3, None, "failed"),
        ("say last words\nwait 1\nexit 0", None, 0, None, "terminated"),
        ("say last words\nwait 1\ncrash", None, None, signal.SIGSEGV, "failed"),
        ("say last words\nhang", signal.SIGKILL, None, signal.SIGKILL, "failed"),
    ],
    ids=["exit 3", "exit 0", "crash", "kill -9"],
)
def test_a_death_is_recorded_with_exit_code_and_last_screen(
    coordinators: Coordinators,
    prompt: str,
    killed_by: int | None,
    code: int | None,
    number: int | None,
    status: str,
) -> None:
    coordinators.run()
    world = coordinators.world
    with world.open() as swarm:
        instance = world.work(swarm, prompt)
        if killed_by is not None:
            wait_until(lambda: "last words" in swarm.screen(instance), what="the agent speaks")
    dies(instance, killed_by)
    event = exited(world, instance.id)
    assert (event.metadata["exit_code"], event.metadata["exit_signal"]) == (code, number)
    with world.open() as swarm:
        known = swarm.find(instance.id)
    assert (known.exit_code, known.exit_signal, known.status, known.activity) == (code, number, status, "exited")
    assert "last words" in known.last_screen


def dies(instance: Instance, killed_by: int | None) -> None:
    """Returns when the kernel says that the agent's process has ended."""
    assert instance.pid is not None
    watch = os.pidfd_open(instance.pid)
    try:
        if killed_by is not None:
            os.kill(instance.pid, killed_by)
        assert select.select([watch], [], [], 20)[0], "the agent did not end"
    finally:
        os.close(watch)


def test_after_kill_9_the_next_one_adopts_the_living_and_records_the_dead(coordinators: Coordinators) -> None:
    world = coordinators.world
    coordinators.run()
    with world.open() as swarm:
        lives, lost = world.work(swarm, "busy 600"), world.work(swarm, "hang")
    coordinators.started[0].kill()
    coordinators.started[0].wait()
    assert process.running(coordinators.settings, process.COORDINATOR) is None
    dies(lost, signal.SIGKILL)
    wait_until(lambda: world.sessions() == {lives.id: True, lost.id: False}, what="tmux knows of the death")
    said = world.settings.instance_dir(lives.id) / "status.json"
    wait_until(lambda: json.loads(said.read_text())["activity"] == "busy", what="the living one is at work")
    coordinators.run()  # until its first look is done
    with world.open() as swarm:
        found = [swarm.find(instance.id) for instance in (lives, lost)]
        assert [(i.status, i.activity, i.pid) for i in found] == [
            ("running", "busy", lives.pid),
            ("failed", "exited", None),
        ]
    assert exited(world, lost.id).metadata["exit_signal"] == signal.SIGKILL


def test_health_is_503_while_tmux_does_not_answer_and_200_afterwards(coordinators: Coordinators) -> None:
    port, world = coordinators.run().port, coordinators.world
    with world.open() as swarm:
        world.work(swarm, "busy 600")
    wait_until(lambda: get(port)[1].get("instances") == 1, what="the instance is seen")
    asked = ["tmux", "-S", str(coordinators.settings.tmux_socket), "display-message", "-p", "#{pid}"]
    server = int(subprocess.run(asked, capture_output=True, check=True, timeout=10).stdout)
    os.kill(server, signal.SIGSTOP)
    try:
        wait_until(lambda: get(port)[0] == 503, timeout=40, what="health turns bad")
        body = get(port)[1]
        assert body["ok"] is False
        assert body["problem"]
    finally:
        os.kill(server, signal.SIGCONT)
    wait_until(lambda: get(port)[0] == 200, timeout=40, what="health is good again")
