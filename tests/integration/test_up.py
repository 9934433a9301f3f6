"""`swarm up`, `down` and `status`, with real processes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from swarm_core import proc, process
from swarm_core.process import COORDINATOR, DASHBOARD, UP, Card
from tests.support import wait_until
from tests.world import World

ROLES = (UP, COORDINATOR, DASHBOARD)
ANY_PORT = ("--mcp-port", "0", "--ui-port", "0")


@pytest.fixture
def home(world: World) -> Iterator[World]:
    """A world in which whatever is up at the end is killed."""
    yield world
    for role in ROLES:
        card = process.running(world.settings, role)
        if card is not None:
            kill(world, card)


def cards(world: World) -> dict[str, Card]:
    found = {role: process.running(world.settings, role) for role in ROLES}
    return {role: card for role, card in found.items() if card is not None}


def kill(world: World, card: Card) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(card.pid, signal.SIGKILL)
    wait_until(lambda: process.running(world.settings, card.role) != card, what=f"{card.role} is dead")


def swarm(world: World, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a command."""
    done = world.command(*words, "--json")
    assert done.stdout, done.stderr.decode()
    return done.returncode, json.loads(done.stdout)


def up(world: World, *words: str) -> dict[str, Any]:
    code, body = swarm(world, "up", "--detach", *(words or ANY_PORT))
    assert code == 0, body
    return body


def get(url: str, path: str, *, host: str | None = None) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path, headers={"Host": host} if host else {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read().decode()
        except OSError:
            return 0, {}, ""


def healthy(world: World, role: str) -> Card | None:
    card = process.running(world.settings, role)
    return card if card and card.port and get(card.url, "/health")[0] == 200 else None


def test_up_detached_returns_when_both_are_healthy(home: World) -> None:
    body = up(home)
    for role in (COORDINATOR, DASHBOARD):
        assert body[role]["ok"] is True
        status, _, text = get(body[role]["url"], "/health")
        told = json.loads(text)
        told = told.get("result", told)
        assert (status, told["role"], told["pid"]) == (200, role, body[role]["pid"])
    assert set(cards(home)) == set(ROLES)


def test_status_has_its_documented_shape_up_and_down(home: World) -> None:
    code, before = swarm(home, "status")
    assert code == 0
    assert (before["up"], before["coordinator"], before["dashboard"]) == (None, None, None)
    assert not home.home.exists(), "asking creates nothing"
    up(home)
    with home.open() as core:
        home.work(core, "busy 600")
    wait_until(lambda: swarm(home, "status")[1]["instances"]["by_activity"] == {"busy": 1}, what="it is busy")
    _, after = swarm(home, "status")
    assert set(after) == {
        *("up", "coordinator", "dashboard", "database", "instances", "tmux"),
        *("pulls", "github"),
    }
    assert set(after["coordinator"]) == {
        *("pid", "port", "url", "started_at", "home", "ok", "problem", "last_look_age_s")
    }
    assert set(after["coordinator"]) == set(after["dashboard"])
    assert after["database"]["path"] == str(home.settings.database_path)
    assert after["database"]["bytes"] > 0
    assert after["instances"] == {
        "total": 1,
        "by_status": {"running": 1},
        "by_activity": {"busy": 1},
        "needs_you": [],
    }
    assert (after["tmux"]["up"], after["tmux"]["sessions"]) == (True, 1)
    assert home.command("status").returncode == 0


def test_status_names_who_needs_a_person(home: World) -> None:
    with home.open() as core:
        instance = home.work(core, "exit 3")
        wait_until(core.reconcile, what="the failure is found")
        assert core.find(instance.id).status == "failed"
    _, body = swarm(home, "status")
    assert [one["id"] for one in body["instances"]["needs_you"]] == [instance.id]
    assert instance.id in home.command("status").stdout.decode()


def test_down_ends_all_three_and_leaves_the_agents_running(home: World) -> None:
    up(home)
    with home.open() as core:
        instance = home.work(core, "busy 600")
    ended = cards(home)
    code, body = swarm(home, "down")
    assert code == 0
    assert (set(body["stopped"]), body["killed"], body["agents_running"]) == (set(ROLES), [], 1)
    assert cards(home) == {}
    wait_until(lambda: not any(proc.is_alive(card.pid) for card in ended.values()), what="they are gone")
    assert home.sessions() == {instance.id: True}
    assert not list((home.home / "run").glob("*.json"))


def test_down_with_nothing_running_says_so(home: World) -> None:
    done = home.command("down")
    assert done.returncode == 0
    assert b"Nothing is running" in done.stdout
    assert swarm(home, "down") == (0, {"ok": True, "stopped": [], "killed": [], "agents_running": 0})


@pytest.mark.parametrize("words", [("up",), ("up", "--detach")])
def test_a_second_up_is_refused(home: World, words: tuple[str, ...]) -> None:
    up(home)
    before = cards(home)
    code, body = swarm(home, *words, *ANY_PORT)
    assert (code, body["error"]["code"]) == (1, "ALREADY_UP")
    assert "swarm status" in body["error"]["hint"]
    assert cards(home) == before


@pytest.mark.parametrize("flag", ["--mcp-port", "--ui-port"])
@pytest.mark.parametrize("detach", [True, False])
def test_a_taken_port_fails_with_its_code_and_leaves_nothing_running(home: World, flag: str, detach: bool) -> None:
    other = {"--mcp-port": "--ui-port", "--ui-port": "--mcp-port"}[flag]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = (flag, str(taken.getsockname()[1]), other, "0")
        code, body = swarm(home, "up", *(["--detach"] if detach else []), *ports)
    assert (code, body["error"]["code"]) == (1, "PORT_IN_USE")
    assert cards(home) == {}


@pytest.mark.parametrize("role", [COORDINATOR, DASHBOARD])
def test_a_killed_process_is_started_again_on_its_port(home: World, role: str) -> None:
    up(home)
    before = cards(home)[role]
    kill(home, before)
    after = wait_until(lambda: healthy(home, role), timeout=30, what="it is back")
    assert isinstance(after, Card)
    assert after.pid != before.pid
    assert after.port == before.port


def test_after_kill_9_of_the_supervisor_up_and_down_work_again(home: World) -> None:
    up(home)
    first = cards(home)
    kill(home, first[UP])
    assert set(cards(home)) == {COORDINATOR, DASHBOARD}
    up(home)
    second = cards(home)
    assert set(second) == set(ROLES)
    assert second[COORDINATOR].pid != first[COORDINATOR].pid
    kill(home, second[UP])
    assert set(swarm(home, "down")[1]["stopped"]) == {COORDINATOR, DASHBOARD}
    assert cards(home) == {}


def test_after_kill_9_of_everything_up_works_again(home: World) -> None:
    up(home)
    with home.open() as core:
        instance = home.work(core, "busy 600")
    for card in cards(home).values():
        kill(home, card)
    assert swarm(home, "status")[1]["coordinator"] is None
    up(home)
    with home.open() as core:
        wait_until(lambda: core.find(instance.id).activity == "busy", what="it is adopted")
        assert core.find(instance.id).status == "running"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_in_the_foreground_ends_both_when_asked(home: World, number: int) -> None:
    argv = [sys.executable, "-m", "swarm_ui.cli", "up", *ANY_PORT, "--json"]
    with subprocess.Popen(argv, env=home.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        try:
            told = child.stdout.readline()
            assert told.startswith(b'{"ok": true'), told + child.stdout.read()
            children = cards(home)
            child.send_signal(number)
            assert child.wait(30) == 0
        finally:
            child.kill()
    assert cards(home) == {}
    assert not any(proc.is_alive(card.pid) for card in children.values())


def test_a_coordinator_started_by_hand_is_not_taken_over(home: World) -> None:
    environ = home.environ | {"MCP_SERVER_PORT": "0"}
    by_hand = subprocess.Popen(
        [sys.executable, "-P", "-m", "swarm_mcp"],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: healthy(home, COORDINATOR), timeout=30, what="it runs")
        code, body = swarm(home, "up", "--detach", *ANY_PORT)
        assert (code, body["error"]["code"]) == (1, "COORDINATOR_RUNNING")
        assert cards(home).keys() == {COORDINATOR}
        assert by_hand.poll() is None
    finally:
        by_hand.kill()
        by_hand.wait()


def test_the_dashboard_opens_with_the_link_that_up_tells(home: World) -> None:
    told = up(home)[DASHBOARD]
    url, link = told["url"], told["link"].removeprefix(told["url"])
    status, headers, _ = get(url, link)
    assert (status, headers["location"]) == (303, "/")
    assert get(url, "/")[0] == 401
    assert get(url, "/", host="evil.example")[0] == 421
